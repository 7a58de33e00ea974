"""TensorFlow trainers whose optimizers keep a part of their state on each rank.

Geometry: an objective's weights one after the other make a row, which is cut into P equal parts, padded at the end.
What rank r's part has of a variable is a *piece*, a flat variable that the optimizer updates in its place. A step has
three graphs: gradients in a row; the update of the pieces; and the assignment of the row of weights that was gathered.
Between them the host exchanges, not overlapped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.collectives.backend import BUCKET_SIZES, GATHER_SIZES, PartsCollective, StateBytes
from dlscale.collectives.training._tensorflow import Setting, assign, compiled_differentiation
from dlscale.collectives.training.communication import Training
from dlscale.collectives.training.replica_trainer import ReplicaTrainer
from dlscale.models.frameworks._tensorflow_optimizers import Adam, MakesSlots
from dlscale.models.weights import SLOTS
from dlscale.models.workload import State

PROBE = (4, 4)
NUM_STEPS, TOLERANCE = 3, 1e-5


def over(
    replica: Any,
    collectives: Sequence[PartsCollective],
    training: Training,  # noqa: ARG001
    *,
    gathering: PartsCollective,
) -> OptimizerShardedTrainer:
    """The replica with its optimizers sharded over the first of `collectives`; collective.

    States are gathered over `gathering`. Raises UsageError for an optimizer that is not elementwise.
    """
    for objective in replica.objectives:
        _check_by_element(objective.optimizer)
    return OptimizerShardedTrainer(replica, collectives[0], gathering)


def _check_by_element(optimizer: Any) -> None:
    """Returns if it updates every element by its own gradient alone. Raises UsageError.

    Seen by what it does to a small variable as a whole and to one in two flat halves, in the same steps.
    """
    name = type(optimizer).__name__
    if hasattr(optimizer, "kept"):
        raise UsageError(
            f"Keras's {name} keeps its state by the network's own variables, and a rank would have parts of them; take "
            "shard=none"
        )
    first = np.random.default_rng(1).standard_normal((NUM_STEPS + 1, *PROBE), dtype=np.float32)
    middle = first[0].size // 2
    whole = tf.Variable(first[0], name="probe")
    halves = [tf.Variable(half, name="probe") for half in np.split(first[0].reshape(-1), [middle])]
    powers = optimizer.powers if isinstance(optimizer, Adam) else dict
    before = None
    for gradient in first[1:]:
        parts = [tf.constant(part) for part in np.split(gradient.reshape(-1), [middle])]
        if isinstance(optimizer, MakesSlots):
            optimizer.make_slots([whole, *halves])
        before = before or {key: variable.numpy() for key, variable in powers().items()}
        optimizer.apply_gradients([(tf.constant(gradient), whole), *zip(parts, halves, strict=True)])
    for key, variable in powers().items():
        variable.assign(before[key] if before else variable)
    together = np.concatenate([half.numpy() for half in halves])
    if not np.allclose(whole.numpy().reshape(-1), together, rtol=TOLERANCE, atol=TOLERANCE):
        raise UsageError(
            f"optimizer {name} does not update element by element, and a rank has a part of each variable alone; "
            "take an elementwise one such as adam or sgd, or shard=none"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What this rank has of the variable at a `place` of the objective: a slice of it, flat, and what is updated."""

    place: int
    inside: slice
    updated: Any


class Part:
    """This rank's part of an objective."""

    def __init__(self, objective: Any, collective: PartsCollective) -> None:
        self._collective = collective
        self.parameters, self.optimizer = objective.parameters, objective.optimizer
        self._sizes = [int(np.prod(parameter.shape)) for parameter in self.parameters]
        ends = np.cumsum([0, *self._sizes])
        self._padding = -int(ends[-1]) % collective.size
        length = (int(ends[-1]) + self._padding) // collective.size
        self.own = slice(collective.rank * length, (collective.rank + 1) * length)
        self.row_bytes = 4 * collective.size * length
        self.gradients = np.zeros(length, np.float32)  # of this part, means over ranks
        self.pieces: list[Piece] = []
        for place, (parameter, begin, end) in enumerate(zip(self.parameters, ends, ends[1:], strict=False)):
            inside = slice(max(begin, self.own.start) - begin, min(end, self.own.stop) - begin)
            if inside.start < inside.stop:
                value = parameter.numpy().reshape(-1)[inside]
                name = parameter.name.partition(":")[0]  # by which it decays, or does not
                self.pieces.append(Piece(place=place, inside=inside, updated=tf.Variable(value, name=name)))
        if isinstance(self.optimizer, MakesSlots):
            self.optimizer.make_slots([piece.updated for piece in self.pieces])
        traced = partial(tf.function, autograph=False)
        self._apply, self._read, self._assign = map(traced, (self._applied, self._updated, self._assigned))

    def row(self, gradients: Sequence[Any]) -> Any:
        """The gradients in a row, as an operation of a graph."""
        flat = [tf.reshape(gradient, [-1]) for gradient in gradients]
        return tf.concat([*flat, tf.zeros([self._padding])], 0)

    def reduce(self, row: NDArray[np.float32]) -> None:
        """Let the gradients of this part be means over ranks; collective."""
        self._collective.reduce_scatter(row, self.gradients, "average")

    def apply(self) -> None:
        """Update this part with the means that are there."""
        self._apply(self.gradients)

    def gather(self) -> None:
        """Let the objective's variables be those that all ranks have updated; collective."""
        row = np.zeros(self.row_bytes // 4, np.float32)  # for a moment: where the row of gradients was
        own = row[self.own]
        updated = self._read().numpy()
        own[: updated.size] = updated
        self._collective.allgather(own, row)
        self._assign(row)

    def slots(self) -> dict[str, list[Any]]:
        names = self.optimizer.get_slot_names()
        return {
            name: [self.optimizer.get_slot(piece.updated, name) for piece in self.pieces] for name in names
        }

    def gathered(self, values: Sequence[Any], collective: PartsCollective) -> list[NDArray[Any]]:
        """What all ranks have of each variable, in its shape; this rank has `values` of its pieces. Collective."""
        part = np.zeros(self.own.stop - self.own.start, np.float32)
        known = np.concatenate([np.zeros(0, np.float32), *(value.numpy() for value in values)])
        part[: known.size] = known
        row = np.empty(self.row_bytes // 4, np.float32)
        collective.allgather(part, row)
        arrays = np.split(row[: sum(self._sizes)], np.cumsum(self._sizes)[:-1])
        return [array.reshape(p.shape) for array, p in zip(arrays, self.parameters, strict=True)]

    def resume(self, index: int, state: State) -> None:
        """Take this rank's pieces from the variables, and of `state` what optimizer number `index` keeps of them."""
        for piece in self.pieces:
            piece.updated.assign(self.parameters[piece.place].numpy().reshape(-1)[piece.inside])
        for name, values in self.slots().items():
            for piece, slot in zip(self.pieces, values, strict=True):
                slot.assign(state[f"{SLOTS}{index}.{name}.{piece.place}"].reshape(-1)[piece.inside])

    def _applied(self, gradients: Any) -> None:
        sizes = [piece.inside.stop - piece.inside.start for piece in self.pieces]
        padding = self.own.stop - self.own.start - sum(sizes)
        *parts, _ = tf.split(gradients, [*sizes, padding])
        pairs = [(part, piece.updated) for part, piece in zip(parts, self.pieces, strict=True)]
        if pairs:
            self.optimizer.apply_gradients(pairs)

    def _updated(self) -> Any:
        """The part of the weights, without the padding."""
        return tf.concat([tf.zeros([0]), *(piece.updated.read_value() for piece in self.pieces)], 0)

    def _assigned(self, row: Any) -> None:
        *parts, _ = tf.split(row, [*self._sizes, self._padding])
        for part, parameter in zip(parts, self.parameters, strict=True):
            parameter.assign(tf.reshape(part, parameter.shape))


class OptimizerShardedTrainer(ReplicaTrainer):
    """A replica whose weights are updated in parts, one per rank (`Trainer`)."""

    def __init__(self, replica: Any, collective: PartsCollective, gathering: PartsCollective) -> None:
        super().__init__(replica)
        self._collective, self._gathering = collective, gathering
        self._parts = [Part(objective, collective) for objective in replica.objectives]
        self._differentiate: Callable[..., Any] = partial(replica.differentiate)
        if replica.compiled:
            self._differentiate = compiled_differentiation(replica)
        self._backward = replica.traced(self._rows)

    def step(self) -> None:
        self._losses, rows = self._backward(*self._replica.next_batch())
        for part, row in zip(self._parts, rows, strict=True):
            part.reduce(row.numpy())
        for part in self._parts:
            part.apply()
        for part in self._parts:
            part.gather()

    def synchronize(self) -> None:
        """A step is done when it returns."""

    def settings(self) -> dict[str, Setting]:
        """Bytes of each exchange, that none overlaps, copies of all gradients, and the collective's own decisions."""
        sizes = ",".join(str(part.row_bytes) for part in self._parts)
        return {
            BUCKET_SIZES: sizes,
            GATHER_SIZES: sizes,
            "overlap": False,
            "teams": 0,
            "exchange": "host",
            "staging_copies": 1,  # into a row
            **self._collective.settings(),
        }

    def state_bytes(self) -> StateBytes:
        """All weights, with this rank's pieces of them; and its part of the optimizers' state.

        Gradients, and the row in which weights are gathered, are there during a step alone.
        """
        pieces = [piece.updated for part in self._parts for piece in part.pieces]
        slots = [slot for part in self._parts for values in part.slots().values() for slot in values]
        weights = [parameter for part in self._parts for parameter in part.parameters]
        return StateBytes(
            parameters=_num_bytes([*weights, *pieces]), gradients=None, optimizer=_num_bytes(slots)
        )

    def state(self) -> State:
        """The replica's, with what optimizers keep gathered from all ranks; collective."""
        state: State = self._replica.state()
        return state | self._gathered()

    def held(self, *, slots: bool = True) -> State:
        """Likewise; collective if `slots` are asked for."""
        held: State = self._replica.held(slots=False)
        return held | (self._replica.slots() | self._gathered() if slots else {})

    def restore(self, state: State) -> None:
        """Resume from `state`, with this rank's part of the slots in it. Raises UsageError."""
        cut = {
            f"{SLOTS}{index}.{name}.{place}"
            for index, part in enumerate(self._parts)
            for name in part.slots()
            for place in range(len(part.parameters))
        }
        self._replica.restore({name: value for name, value in state.items() if name not in cut})
        for index, part in enumerate(self._parts):
            part.resume(index, state)

    def close(self) -> None:
        """Nothing to release."""

    def _rows(self, *batch: Any) -> tuple[list[Any], list[Any]]:
        losses, gradients, updates = self._differentiate(*batch)
        assign(updates)
        rows = [part.row(group) for part, group in zip(self._parts, gradients, strict=True)]
        return list(losses), rows

    def _gathered(self) -> State:
        return {
            f"{SLOTS}{index}.{name}.{place}": array
            for index, part in enumerate(self._parts)
            for name, values in part.slots().items()
            for place, array in enumerate(part.gathered(values, self._gathering))
        }


def _num_bytes(variables: Sequence[Any]) -> int:
    return sum(int(np.prod(variable.shape)) * variable.dtype.size for variable in variables)
