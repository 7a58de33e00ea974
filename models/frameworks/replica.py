"""What the replicas of all frameworks share: how they are built, their local batches, and their state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import Any, Protocol

from dlscale.models.samples import Arrays, DataModule, LocalBatches
from dlscale.models.weights import NUM_DRAWN, WEIGHT, Initial, counted, draw_initial
from dlscale.models.workload import Execution, Indices, Input, Preset, ReplicaFactory, Shard, State, Weights


class Build(Protocol):
    """Builds one replica, over the batches that `make_batches` opens."""

    def __call__(self, make_batches: Callable[[], LocalBatches], *, seed: int | None, gate: bool) -> Any:
        """Without a seed its first weights are any."""


def as_factory(builder: Callable[[Any, Preset, Execution], Build]) -> Callable[..., ReplicaFactory]:
    """What `Workload.factory` asks of a framework, from what builds replicas of a program. Raises UsageError."""

    def replica_factory(
        make_program: Any,
        data: DataModule,
        *,
        preset: Preset,
        local_batch: int,
        source: Input,
        execution: Execution,
    ) -> ReplicaFactory:
        if execution.learning_rate is not None:
            preset = replace(preset, learning_rate=execution.learning_rate)
        whole = builder(make_program, preset, execution)

        def factory(*, shard: Shard, seed: int, gate: bool = False, drawn: bool = True) -> Any:
            make_batches = partial(
                LocalBatches,
                data,
                preset=preset,
                local_batch=local_batch,
                source=source,
                shard=shard,
                seed=seed,
                gate=gate,
            )
            build = whole
            if shard.neighbours:
                preset.rows(shard.neighbours)  # refuses what stays whole
                build = builder(partial(make_program, neighbours=shard.neighbours), preset, execution)
            return build(make_batches, seed=seed if drawn else None, gate=gate)

        return factory

    return replica_factory


class BatchedReplica:
    """The part of a `workload.Replica` that is not its framework's: an endless source of local batches."""

    objectives: Sequence[Any]  # with `names` of their weights

    def __init__(
        self, batches: LocalBatches, execution: Execution, schedule: Callable[[int], float] | None = None
    ) -> None:
        """`schedule`: by the number of the step, what the learning rate is multiplied by; None: it stays."""
        self.device = execution.device
        self.compiled = execution.compiled
        self._batches = batches
        self._samples = self._open()
        self._losses: Sequence[Any] = ()
        self.schedule = schedule
        self._full_rate = self._read_rate() if schedule else 0.0

    def _as_batch(self, arrays: Arrays) -> tuple[Any, ...]:
        """Arrays as the networks take them."""
        raise NotImplementedError

    def _read_samples(self) -> Iterator[tuple[Any, ...]]:
        """Endless samples of local batches."""
        raise NotImplementedError

    def _read_state(self) -> State:
        """Copies of what networks and optimizers keep."""
        raise NotImplementedError

    def _write_state(self, state: State) -> None:
        """Overwrite it. Raises UsageError if it is that of others."""
        raise NotImplementedError

    def _read_rate(self) -> float:
        """The rate of the first optimizer."""
        raise NotImplementedError

    def _write_rate(self, learning_rate: float) -> None:
        """From the next update on, all optimizers have that rate."""
        raise NotImplementedError

    def _open(self) -> Iterator[tuple[Any, ...]]:
        fixed = self._batches.fixed
        return self._read_samples() if fixed is None else repeat(self._as_batch(fixed))

    def next_batch(self) -> tuple[Any, ...]:
        """The next local batch, ready to be given to every objective's loss; the update has the rate of this step."""
        self._follow_schedule()
        return (*next(self._samples), *self._as_batch(self._batches.step_inputs()))

    def learning_rate(self) -> float:
        return self._full_rate if self.schedule else self._read_rate()

    def set_learning_rate(self, learning_rate: float) -> None:
        self._full_rate = learning_rate
        self._write_rate(learning_rate)

    def _follow_schedule(self) -> None:
        if self.schedule:
            self._write_rate(self._full_rate * self.schedule(self._batches.num_drawn))

    def last_samples(self) -> Indices | None:
        return self._batches.last_samples

    def num_samples(self) -> int:
        return self._batches.num_samples

    def num_skipped(self) -> int:
        return self._batches.num_skipped

    def names(self) -> list[str]:
        return [name for objective in self.objectives for name in objective.names]

    def losses(self) -> list[float]:
        return [float(loss) for loss in self._losses]

    def state(self) -> State:
        return self.counted() | self._read_state()

    def slots(self) -> State:
        """What the optimizers keep, as `state` names it: valid until the next step or `restore`."""
        return {name: value for name, value in self._read_state().items() if name.startswith("optimizer")}

    def weights(self) -> Weights:
        """Copies of the trainable weights."""
        raise NotImplementedError

    def held(self, *, slots: bool = True) -> State:
        """What a step changes: the weights, and `slots`."""
        weights = {f"{WEIGHT}.{place}": weight for place, weight in enumerate(self.weights())}
        return self.counted() | weights | (self.slots() if slots else {})

    def counted(self) -> State:
        """The number of batches drawn, as a state has it."""
        return {NUM_DRAWN: counted(self._batches.num_drawn)}

    def restore(self, state: State) -> None:
        self._write_state({name: value for name, value in state.items() if name != NUM_DRAWN})
        self.resume_batches(state)

    def resume_batches(self, state: State) -> None:
        """The next batch is that which follows `state`."""
        self._batches.begin_at(int(state[NUM_DRAWN][0]))
        self._follow_schedule()


def first_weights(
    replica: Any, given: Callable[[int], Weights] | None, initial: Initial | None, *, seed: int | None
) -> None:
    """The replica holds the first weights of that seed: those `given`, or drawn by `initial`, or its own."""
    if seed is None:
        return
    if given:
        replica.load(given(seed))
    elif initial:
        shapes = [weight.shape for weight in replica.weights()]
        replica.load(draw_initial(initial, list(zip(replica.names(), shapes, strict=True)), seed=seed))
