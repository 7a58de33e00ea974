"""What the replicas of all frameworks share: how they are built, their local batches, and their state."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

from dlscale.models.parallel import Part
from dlscale.models.samples import Arrays, DataModule, LocalBatches
from dlscale.models.weights import Initial, draw_initial
from dlscale.models.workload import (
    NUM_DRAWN,
    WEIGHT,
    Execution,
    Indices,
    Input,
    Objective,
    Preset,
    Replica,
    ReplicaFactory,
    Shard,
    State,
    Weights,
    counted,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A workload's networks and objectives, before they have weights and batches; a framework adds what it needs."""

    networks: Sequence[Any]
    objectives: Sequence[Any]  # `workload.Objective`
    initial: Initial | None = None
    first_weights: Callable[[int], Weights] | None = None  # by seed; None: `initial` draws them
    outputs: Callable[..., Sequence[Any]]  # (*batch) -> what the networks make of it, while training
    predict: Callable[..., Any]  # (*samples) -> (N, ...), with running statistics and without dropout
    schedule: Callable[[int], float] | None = None  # what rates are multiplied by, by the number of the step


def factory_of(
    make_replica: Callable[..., BatchedReplica],
    named_optimizer: Callable[..., Any],
    split_rows: Callable[[Sequence[Any], Part], None],
    make_program: Callable[..., Any],
    data: DataModule,
    *,
    preset: Preset,
    local_batch: int,
    source: Input,
    execution: Execution,
) -> ReplicaFactory:
    """What builds a workload's replicas: by a framework's class of (program, batches, execution), optimizers and rows.

    Raises UsageError.
    """
    if execution.learning_rate is not None:
        preset = replace(preset, learning_rate=execution.learning_rate)

    def with_rule(objective: Objective) -> Objective:
        made = named_optimizer(execution.optimizer, objective.parameters, learning_rate=preset.learning_rate)
        return replace(objective, optimizer=made)

    def factory(*, shard: Shard, seed: int, gate: bool = False, drawn: bool = True) -> Replica:
        program = make_program(preset, gate=gate)
        if others := shard.neighbours:
            split_rows(program.networks, Part(rows=preset.rows(others), neighbours=others))
        if execution.optimizer and not gate:
            program = replace(program, objectives=[*map(with_rule, program.objectives)])
        given: dict[str, Any] = {"preset": preset, "local_batch": local_batch, "source": source}
        batches = LocalBatches(data, shard=shard, seed=seed, gate=gate, **given)
        replica = make_replica(program, batches, execution)
        if drawn:
            replica.draw_weights(seed)
        return replica

    return factory


class BatchedReplica(Replica):
    """The part of a replica that is not its framework's: an endless source of local batches."""

    def __init__(self, program: Program, batches: LocalBatches, execution: Execution) -> None:
        self.program: Any = program
        self.objectives = program.objectives
        self.device, self.compiled = execution.device, execution.compiled
        self._batches, fixed = batches, batches.fixed
        self._samples = (
            map(self._as_batch, batches.samples()) if fixed is None else repeat(self._as_batch(fixed))
        )
        self._losses: Sequence[Any] = ()
        self._full_rate = self._read_rate() if program.schedule else 0.0

    @abstractmethod
    def _as_batch(self, arrays: Arrays) -> tuple[Any, ...]: ...  # as the networks take them

    @abstractmethod
    def _read_state(self) -> State: ...  # copies of what networks and optimizers keep

    @abstractmethod
    def _write_state(self, state: State) -> None: ...  # raises UsageError for that of others

    @abstractmethod
    def _read_rate(self) -> float: ...  # of the first optimizer

    @abstractmethod
    def _write_rate(self, learning_rate: float) -> None: ...  # of all optimizers, from the next update on

    @abstractmethod
    def _views(self) -> Weights: ...  # trainable weights in their own memory and its order

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
