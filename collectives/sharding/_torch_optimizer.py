"""Torch trainers whose optimizers keep a part of their state on each rank.

Geometry: the weights of a bucket lie in one flat array, in the same places as their gradients in the bucket's. Both are
cut into P equal parts, padded at the end. Rank r's part may begin and end inside a tensor: what it has of a tensor is a
*piece*, which is a parameter of the optimizer in the place of the tensor. Gradients are reduced into the part, the
optimizer updates its pieces, and the parts of the weights are gathered in place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dlscale.base.errors import UsageError
from dlscale.collectives.backend import GATHER_SIZES, Collective, PartsCollective, Setting, StateBytes
from dlscale.collectives.training._torch import TorchTrainer, Update, storage_bytes
from dlscale.collectives.training._torch_buckets import Bucket, BucketExchange, Staging, exchanges_over
from dlscale.collectives.training.communication import CommunicationThreads, Training
from dlscale.models.frameworks._torch_optimizers import obstacle_to_parts
from dlscale.models.frameworks._torch_state import restored_slot, slots_of
from dlscale.models.workload import SLOTS, State


def over(
    replica: Any, collectives: Sequence[Collective], training: Training, *, gathering: PartsCollective
) -> OptimizerShardedTrainer:
    """The replica with its optimizers sharded over `collectives`, one per team; collective.

    States are gathered over `gathering`. Raises UsageError for an optimizer that is not elementwise.
    """
    check_by_element([objective.optimizer for objective in replica.objectives])
    exchanges, threads = exchanges_over(replica, collectives, training, kind=PartedBucket)
    return OptimizerShardedTrainer(replica, exchanges, threads, gathering)


def check_by_element(optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """Returns if each updates every element by its own gradient alone. Raises UsageError."""
    for optimizer in optimizers:
        if obstacle := obstacle_to_parts(optimizer):
            raise UsageError(f"{obstacle}; take an elementwise optimizer such as adam or sgd, or shard=none")


class PartedBucket(Bucket):
    """A bucket whose gradients are reduced to parts, with the weights in an array of their own beside it."""

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        number: int,
        threads: CommunicationThreads[Any],
        staging: Staging,
    ) -> None:
        collective = threads.collective(number)
        self._size: int = collective.size
        super().__init__(parameters, number, threads, staging)
        length = self.array.size // collective.size
        self.own = slice(collective.rank * length, (collective.rank + 1) * length)
        self.gradients = torch.from_numpy(self.array)
        self.weights = self._staging.memory(self.array.size, parameters[0].dtype, collective)
        for parameter, view in zip(self.parameters, self.views, strict=True):
            place = self.weights.as_strided(view.size(), view.stride(), view.storage_offset())
            parameter.data = place.copy_(parameter.detach())

    def place(self, index: int) -> slice:
        """Where parameter `index` lies in the arrays."""
        begin = int(self.views[index].storage_offset())
        return slice(begin, begin + self.views[index].numel())

    def gather(self) -> None:
        """Begin to let the weights be those that all ranks have updated; collective."""
        whole = self.weights.numpy()

        def exchange(collective: PartsCollective) -> None:
            collective.allgather(whole[self.own], whole)

        self._under_way = self._threads.submit(self._number, exchange)  # type: ignore[arg-type]

    def give(self) -> None:
        """Nothing: the pieces' gradients are what was reduced."""

    def _length(self, count: int) -> int:
        return -(-count // self._size) * self._size

    def _exchange(self, collective: Collective) -> None:
        parts: Any = collective
        parts.reduce_scatter(self.array, self.array[self.own], "average")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What this rank has of a parameter, the `place`-th of its optimizer: a slice of it, and what is updated."""

    place: int
    inside: slice
    updated: nn.Parameter


class PartUpdate(Update):
    """An objective's optimizer, working on this rank's pieces of the parameters."""

    def __init__(self, objective: Any, buckets: Sequence[PartedBucket]) -> None:
        self._optimizer = objective.optimizer
        self.buckets = tuple(buckets)
        self.places = {  # parameter -> its bucket, and where in it
            parameter: (bucket, bucket.place(index))
            for bucket in buckets
            for index, parameter in enumerate(bucket.parameters)
        }
        self.parameters = [p for group in self._optimizer.param_groups for p in group["params"]]
        order = {parameter: place for place, parameter in enumerate(self.parameters)}
        self.pieces: list[Piece] = []
        for group in self._optimizer.param_groups:
            own = [self._piece(parameter, order[parameter]) for parameter in group["params"]]
            group["params"] = [piece.updated for piece in own if piece]
            self.pieces += [piece for piece in own if piece]
        self._optimizer.state.clear()

    def apply(self) -> None:
        """One step of the optimizer with the means that are there."""
        self._optimizer.step()

    def kept(self) -> dict[str, NDArray[Any] | None]:
        """What the optimizer keeps of each parameter, by name: None of a tensor like it, else a number.

        Empty before its first step, and on a rank without a piece.
        """
        kept = self._optimizer.state.get(self.pieces[0].updated, {}) if self.pieces else {}
        return {key: None if _has_elements(value) else np.asarray(value) for key, value in kept.items()}

    def gathered(self, key: str, collective: PartsCollective) -> list[NDArray[Any]]:
        """What all ranks keep of each parameter under that name, in the order of its memory; collective."""
        whole = {bucket: np.zeros(bucket.array.size, bucket.array.dtype) for bucket in self.buckets}
        for piece in self.pieces:
            bucket, place = self.places[self.parameters[piece.place]]
            begin = place.start + piece.inside.start
            kept: torch.Tensor | None = self._optimizer.state[piece.updated].get(key)
            if kept is not None:  # else this rank has not updated it, as the others have: for audits to see
                whole[bucket][begin : begin + kept.numel()] = kept.numpy()
        for bucket, array in whole.items():
            collective.allgather(array[bucket.own].copy(), array)
        places = [(parameter, *self.places[parameter]) for parameter in self.parameters]
        return [whole[bucket][place].reshape(() if p.dim() == 0 else -1) for p, bucket, place in places]

    def resume(self, slots: Mapping[int, State]) -> None:
        """Keep this rank's pieces of `slots`, {place of a parameter: what is kept of it}."""
        cut = {key for kept in slots.values() for key, value in kept.items() if value.ndim}
        self._optimizer.state.clear()
        for piece in self.pieces:
            for key, value in slots.get(piece.place, {}).items():
                own = value.reshape(-1)[piece.inside] if key in cut else value
                self._optimizer.state[piece.updated][key] = restored_slot(own, piece.updated)

    def slot_bytes(self) -> int:
        """Bytes that the optimizer keeps here."""
        values = (value for kept in self._optimizer.state.values() for value in kept.values())
        return sum(value.nbytes for value in values if isinstance(value, torch.Tensor))

    def _piece(self, parameter: nn.Parameter, place: int) -> Piece | None:
        bucket, whole = self.places[parameter]
        begin, end = max(whole.start, bucket.own.start), min(whole.stop, bucket.own.stop)
        if begin >= end:
            return None
        updated = nn.Parameter(bucket.weights[begin:end])
        updated.grad = bucket.gradients[begin:end]
        return Piece(place=place, inside=slice(begin - whole.start, end - whole.start), updated=updated)


def _has_elements(value: Any) -> bool:
    """Whether it is kept element by element: pieces are flat, numbers of a whole tensor are not."""
    return isinstance(value, torch.Tensor) and value.dim() == 1


class OptimizerShardedTrainer(TorchTrainer):
    """A replica whose weights are updated in parts, one per rank (`Trainer`)."""

    def __init__(
        self,
        replica: Any,
        exchanges: Sequence[BucketExchange],
        threads: CommunicationThreads[Any],
        gathering: PartsCollective,
    ) -> None:
        buckets = [cast("list[PartedBucket]", exchange.buckets()) for exchange in exchanges]
        self._parts = [PartUpdate(*pair) for pair in zip(replica.objectives, buckets, strict=True)]
        super().__init__(replica, exchanges, updates=self._parts, close=threads.close)
        self._buckets = [bucket for own in buckets for bucket in own]
        self._gathering = gathering

    def settings(self) -> dict[str, Setting]:
        """The exchanges' decisions, and the bytes of each gather."""
        sizes = ",".join(str(bucket.array.nbytes) for bucket in self._buckets)
        return {**super().settings(), GATHER_SIZES: sizes}

    def state_bytes(self) -> StateBytes:
        """All weights, all gradients, and this rank's part of what optimizers keep."""
        return StateBytes(
            parameters=storage_bytes(bucket.weights for bucket in self._buckets),
            gradients=storage_bytes(bucket.gradients for bucket in self._buckets),
            optimizer=sum(part.slot_bytes() for part in self._parts),
        )

    def state(self) -> State:
        """The replica's, with what optimizers keep gathered from all ranks; collective."""
        state: State = self._replica.state()
        own = {name: value for name, value in state.items() if not name.startswith(SLOTS)}
        return own | self._gathered()

    def held(self, *, slots: bool = True) -> State:
        """Likewise; collective if `slots` are asked for."""
        held: State = self._replica.held(slots=False)
        return held | (self._gathered() if slots else {})

    def restore(self, state: State) -> None:
        """Resume from `state`, with this rank's part of the slots in it. Raises UsageError."""
        slots = {name: value for name, value in state.items() if name.startswith(SLOTS)}
        self._replica.restore({name: value for name, value in state.items() if name not in slots})
        for index, part in enumerate(self._parts):
            part.resume(slots_of(slots, index, [parameter.numel() for parameter in part.parameters]))

    def _update(self) -> None:
        super()._update()
        for bucket in self._buckets:
            bucket.gather()
        for bucket in self._buckets:
            bucket.wait()

    def _gathered(self) -> State:
        found: State = {}
        for index, part in enumerate(self._parts):
            for key, number in shared_from_first(part.kept(), self._gathering).items():
                everyone = part.gathered(key, self._gathering) if number is None else repeat(number)
                found |= {
                    f"{SLOTS}{index}.{place}.{key}": value
                    for place, value in zip(range(len(part.parameters)), everyone, strict=False)
                }
        return found


def shared_from_first(
    kept: Mapping[str, NDArray[Any] | None], collective: Collective
) -> dict[str, NDArray[Any] | None]:
    """What rank 0, which has the first piece of all, says that optimizers keep; collective."""
    facts = {key: None if value is None else [str(value.dtype), value.item()] for key, value in kept.items()}
    text = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    length = np.array([text.size], np.int64)
    collective.broadcast(length, 0)
    letters = np.zeros(int(length[0]), np.int32)
    if collective.rank == 0:
        letters[:] = text
    collective.broadcast(letters, 0)
    known: dict[str, Any] = json.loads(bytes(letters.astype(np.uint8)))
    return {key: None if fact is None else np.array(fact[1], fact[0]) for key, fact in known.items()}
