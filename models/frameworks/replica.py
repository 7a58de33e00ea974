"""What the replicas of all frameworks share: how they are built, their local batches, and their state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any

from dlscale.models.samples import Arrays, DataModule, LocalBatches
from dlscale.models.weights import draw_initial
from dlscale.models.workload import (
    NUM_DRAWN,
    WEIGHT,
    Execution,
    Indices,
    Input,
    Preset,
    Replica,
    ReplicaFactory,
    Shard,
    State,
    Weights,
    counted,
)


def factory_of(
    make_replica: Callable[..., BatchedReplica],
    named_optimizer: Callable[..., Any],
    make_program: Callable[..., Any],
    data: DataModule,
    *,
    preset: Preset,
    local_batch: int,
    source: Input,
    execution: Execution,
) -> ReplicaFactory:
    """What builds a workload's replicas: by a framework's first two arguments, of (program, batches, execution).

    Raises UsageError.
    """
    if execution.learning_rate is not None:
        preset = replace(preset, learning_rate=execution.learning_rate)

    def factory(*, shard: Shard, seed: int, gate: bool = False, drawn: bool = True) -> Replica:
        part = {}
        if shard.neighbours:
            preset.rows(shard.neighbours)  # refuses what stays whole
            part = {"neighbours": shard.neighbours}
        program = make_program(preset, gate=gate, **part)
        if (rule := execution.optimizer) and not gate:
            program = replace(
                program,
                objectives=[
                    replace(
                        objective,
                        optimizer=named_optimizer(
                            rule, objective.parameters, learning_rate=preset.learning_rate
                        ),
                    )
                    for objective in program.objectives
                ],
            )
        batches = LocalBatches(
            data,
            preset=preset,
            local_batch=local_batch,
            source=source,
            shard=shard,
            seed=seed,
            gate=gate,
        )
        replica = make_replica(program, batches, execution)
        if drawn:
            replica.draw_weights(seed)
        return replica

    return factory


class BatchedReplica(Replica):
    """The part of a replica that is not its framework's: an endless source of local batches.

    `program` is the framework's: `objectives`, what draws their first weights, and `schedule`, by the number of the
    step what the learning rate is multiplied by.
    """

    objectives: Sequence[Any]  # with `names` of their weights

    def __init__(self, program: Any, batches: LocalBatches, execution: Execution) -> None:
        self.program, self.objectives = program, tuple(program.objectives)
        self.device, self.compiled = execution.device, execution.compiled
        self._batches = batches
        fixed = batches.fixed
        self._samples = self._read_samples() if fixed is None else repeat(self._as_batch(fixed))
        self._losses: Sequence[Any] = ()
        self._full_rate = self._read_rate() if program.schedule else 0.0

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

    def _views(self) -> Weights:
        """The trainable weights in their own memory, as far as that can be seen, and in its order."""
        raise NotImplementedError

    def draw_weights(self, seed: int) -> None:
        """Begin with the first weights of that seed."""
        if self.program.first_weights:
            self.load(self.program.first_weights(seed))
        elif self.program.initial:
            shapes = [weight.shape for weight in self.weights()]
            named = list(zip(self.names(), shapes, strict=True))
            self.load(draw_initial(self.program.initial, named, seed=seed))

    def next_batch(self) -> tuple[Any, ...]:
        """The update that follows has the rate of this step."""
        self._follow_schedule()
        return (*next(self._samples), *self._as_batch(self._batches.step_inputs()))

    def learning_rate(self) -> float:
        return self._full_rate if self.program.schedule else self._read_rate()

    def set_learning_rate(self, learning_rate: float) -> None:
        self._full_rate = learning_rate
        self._write_rate(learning_rate)

    def _follow_schedule(self) -> None:
        if schedule := self.program.schedule:
            self._write_rate(self._full_rate * schedule(self._batches.num_drawn))

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

    def held(self, *, slots: bool = True) -> State:
        weights = {f"{WEIGHT}.{place}": weight for place, weight in enumerate(self._views())}
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

    def _parameters(self) -> list[Any]:
        return [parameter for objective in self.objectives for parameter in objective.parameters]
