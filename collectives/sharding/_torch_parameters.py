"""Torch trainers whose ranks each have a part of the weights, gradients and slots: `fully_shard`, as its users run it.

Geometry: a weight is cut along its first axis into P equal *chunks* of whole rows, one per rank. The last ones may be
short, or empty; torch pads them to the length of the others. `own` is this rank's chunk without padding, a flat view of
torch's memory, where it stays. Optimizers work on such views: torch's own operations on a sharded weight would take
longer on a CPU than the arithmetic.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from dlscale.base.errors import UsageError
from dlscale.collectives.backend import BUCKET_SIZES, GATHER_SIZES, Setting, StateBytes
from dlscale.collectives.sharding._torch_optimizer import check_by_element
from dlscale.collectives.sharding._torch_units import Place, shard
from dlscale.collectives.training._torch import (
    NoExchange,
    TorchTrainer,
    Update,
    flat_in_memory,
    storage_bytes,
)
from dlscale.models.frameworks._torch_state import (
    canonical,
    restored_slot,
    slots_of,
    state_tensors,
    stored_slot,
)
from dlscale.models.workload import NUM_DRAWN, SLOTS, WEIGHT, State, Weights, check_names


def over(replica: Any, group: dist.ProcessGroup) -> ParameterShardedTrainer:
    """The replica, sharded over the ranks of `group`, with the weights of its first one; collective.

    Raises UsageError for a program that `fully_shard` cannot train, and for an optimizer that is not elementwise.
    """
    check_by_element([objective.optimizer for objective in replica.objectives])
    for network in replica.program.networks:
        for parameter in network.parameters():
            dist.broadcast(flat_in_memory(parameter.detach()), 0, group=group)
    log = Log()
    modules, places = shard(replica, DeviceMesh.from_group(group, parameter.device.type))
    for module in cast("list[Any]", modules):
        module.set_custom_all_gather(Gather(log))
        module.set_custom_reduce_scatter(ReduceScatter(log))
    pieces = {
        parameter: Piece.of(place, rank=group.rank(), size=group.size())
        for parameter, place in places.items()
    }
    updates = [PieceUpdate(objective, pieces) for objective in replica.objectives]
    replica.objectives = [
        replace(o, parameters=tuple(pieces[p].parameter for p in o.parameters)) for o in replica.objectives
    ]
    return ParameterShardedTrainer(
        replica, updates, list(pieces.values()), group=group, log=log, num_units=len(modules)
    )


@dataclass(slots=True)
class Log:
    """Bytes of the operations of a step so far, in order: of what is gathered, and of what is reduced.

    `gather_seconds` are those of all steps; None on GPUs, which gather while they compute.
    """

    gathered: list[int] = field(default_factory=list)
    reduced: list[int] = field(default_factory=list)
    gather_seconds: float | None = 0.0


class _Communication:
    """What `fully_shard` hands its tensors to, here as it does itself, with a line in the log."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class Gather(_Communication):
    """Gathers a unit's weights (torch's protocol `AllGather`)."""

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> dist.Work | None:
        """All ranks' chunks in `output_tensor`, one after the other."""
        self._log.gathered.append(output_tensor.nbytes)
        begin = time.perf_counter()
        work: dist.Work | None = all_gather(output_tensor, input_tensor, group=group, async_op=async_op)
        if output_tensor.device.type != "cpu":
            self._log.gather_seconds = None
        elif self._log.gather_seconds is not None:
            if work is not None:  # as torch does next on a CPU
                work.wait()
            self._log.gather_seconds += time.perf_counter() - begin
        return work


class ReduceScatter(_Communication):
    """Reduces a unit's gradients to this rank's chunks (torch's protocol `ReduceScatter`)."""

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> dist.Work | None:
        """This rank's chunks of the mean in `output_tensor`."""
        self._log.reduced.append(input_tensor.nbytes)
        work: dist.Work | None = reduce_scatter(
            output_tensor, input_tensor, group=group, op=op, async_op=async_op
        )
        return work


# By the names that they had before torch 2.13, where it does not know the new ones.
all_gather: Callable[..., Any] = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter: Callable[..., Any] = (
    getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What this rank has of a weight: `own`, `inside` of the whole one, of chunks of `chunk` elements."""

    place: Place
    parameter: nn.Parameter  # as FSDP has it
    own: torch.Tensor
    inside: slice
    chunk: int

    @classmethod
    def of(cls, place: Place, *, rank: int, size: int) -> Piece:
        """That of rank number `rank` of `size`."""
        parameter = place.registered
        own = _local(parameter).view(-1)
        count, length = place.size.numel(), place.size[0]
        chunk = -(-length // size) * (count // max(length, 1))
        begin = min(rank * chunk, count)
        return cls(
            place=place, parameter=parameter, own=own, inside=slice(begin, begin + own.numel()), chunk=chunk
        )

    def laid_out(self, flat: torch.Tensor) -> torch.Tensor:
        """The whole weight from its elements as they lie in memory."""
        return flat.as_strided(self.place.size, self.place.stride)


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a sharded tensor, which it shares memory with."""
    with torch.no_grad():
        local: torch.Tensor = cast(DTensor, tensor).to_local()
    return local


class PieceUpdate(Update):
    """An objective's optimizer, working on this rank's pieces of the parameters, each in the place of its weight."""

    def __init__(self, objective: Any, pieces: Mapping[nn.Parameter, Piece]) -> None:
        self._optimizer = objective.optimizer
        self._optimizer.state.clear()
        self.pieces: list[Piece] = []
        self._updated: list[nn.Parameter] = []
        for group in self._optimizer.param_groups:
            own = [pieces[parameter] for parameter in group["params"]]
            group["params"] = [nn.Parameter(piece.own, piece.parameter.requires_grad) for piece in own]
            self.pieces += own
            self._updated += group["params"]

    def apply(self) -> None:
        """One step of the optimizer with this rank's means, which lie in the order of its chunks."""
        for piece, updated in zip(self.pieces, self._updated, strict=True):
            gradient = piece.parameter.grad
            updated.grad = None if gradient is None else _local(gradient).view(-1)
        self._optimizer.step()

    def kept(self) -> list[tuple[Piece, dict[str, Any]]]:
        """What the optimizer keeps of each piece, in order."""
        state = self._optimizer.state
        return [
            (
                piece,
                {
                    k: v
                    for k, v in state.get(updated, {}).items()
                    if isinstance(v, torch.Tensor | int | float)
                },
            )
            for piece, updated in zip(self.pieces, self._updated, strict=True)
        ]

    def resume(self, state: State, index: int) -> None:
        """Keep what optimizer number `index` has in `state`, as far as it is of this rank's pieces."""
        sizes = [piece.place.size.numel() for piece in self.pieces]
        own = {
            place: {
                key: restored_slot(value[piece.inside] if value.ndim else value, piece.own)
                for key, value in kept.items()
            }
            for place, kept in slots_of(state, index, sizes).items()
            for piece in [self.pieces[place]]
        }
        self._optimizer.load_state_dict({**self._optimizer.state_dict(), "state": own})

    def slot_bytes(self) -> int:
        return storage_bytes(
            value for _, kept in self.kept() for value in kept.values() if isinstance(value, torch.Tensor)
        )


class ParameterShardedTrainer(TorchTrainer):
    """A replica whose weights are gathered unit by unit, when a pass needs them (`Trainer`).

    `pieces` are this rank's of all weights, in the order of a state.
    """

    def __init__(
        self,
        replica: Any,
        updates: Sequence[PieceUpdate],
        pieces: Sequence[Piece],
        *,
        group: dist.ProcessGroup,
        log: Log,
        num_units: int,
    ) -> None:
        exchanges = [NoExchange(objective) for objective in replica.objectives]
        super().__init__(replica, exchanges, updates=updates)
        self._parts, self._pieces, self._group = updates, pieces, group
        self.log, self._num_units = log, num_units
        by_parameter = {piece.parameter: piece for piece in pieces}
        self._trained = [by_parameter[p] for o in replica.objectives for p in o.parameters]
        self._piece_of = by_parameter

    def step(self) -> None:
        """Train on one local batch. Raises UsageError for weights that are used outside of their layers."""
        self.log.gathered.clear()
        self.log.reduced.clear()
        try:
            super().step()
        except RuntimeError as error:
            if "DTensor" not in str(error):
                raise
            raise UsageError(
                "shard=parameters: the network uses a layer's weights while that layer does not compute, when its rank "
                "has a part of them alone; take shard=optimizer, or let the layer itself compute with them"
            ) from error

    def _backward(self, objective: Any, loss: torch.Tensor) -> None:
        if len(self._replica.objectives) == 1:
            loss.backward()  # type: ignore[no-untyped-call]
            return
        # Networks that stand alone are whole from their forward to their backward pass.
        own = [self._piece_of[parameter].place.registered for parameter in objective.parameters]
        loss.backward(inputs=own, retain_graph=objective.keeps_graph)  # type: ignore[no-untyped-call]

    def settings(self) -> dict[str, Setting]:
        """The units, the bytes of each operation of the last step in order, and the group's own decisions."""
        sizes = {GATHER_SIZES: self.log.gathered, BUCKET_SIZES: self.log.reduced}
        settings: Any = getattr(self._group, "settings", dict)
        return {
            "units": self._num_units,
            **{name: ",".join(map(str, found)) for name, found in sizes.items() if found},
            **settings(),
            "overlap": bool(self._gpus),  # on a CPU torch waits for each of its operations
        }

    def state_bytes(self) -> StateBytes:
        """This rank's pieces with their padding, and whole weights where any are left from a pass."""
        whole = [piece.place.registered for piece in self._pieces]
        left = [parameter for parameter in whole if not isinstance(parameter, DTensor)]
        gradients = [piece.parameter.grad for piece in self._trained]
        return StateBytes(
            parameters=storage_bytes([*(piece.own for piece in self._pieces), *left]),
            gradients=storage_bytes(_local(gradient) for gradient in gradients if gradient is not None),
            optimizer=sum(part.slot_bytes() for part in self._parts),
        )

    def weights(self) -> Weights:
        """Copies of the trainable weights, gathered; collective."""
        whole = self._gathered([(piece, piece.own) for piece in self._trained])
        return [canonical(piece.laid_out(flat)) for piece, flat in zip(self._trained, whole, strict=True)]

    def state(self) -> State:
        """The state of the replica without sharding, gathered; collective."""
        whole = self._gathered([(piece, piece.own) for piece in self._pieces])
        weights = {
            piece.place.name: piece.laid_out(flat).numpy().copy()
            for piece, flat in zip(self._pieces, whole, strict=True)
        }
        counted: State = self._replica.counted()
        buffers = {name: buffer.cpu().numpy().copy() for name, buffer in self._buffers().items()}
        return counted | weights | buffers | self._slots()

    def held(self, *, slots: bool = True) -> State:
        """What a step changes, gathered; collective."""
        whole = self._gathered([(piece, piece.own) for piece in self._trained])
        weights = {f"{WEIGHT}.{place}": flat.numpy() for place, flat in enumerate(whole)}
        counted: State = self._replica.counted()
        return counted | weights | (self._slots() if slots else {})

    def restore(self, state: State) -> None:
        """Resume from `state`, with this rank's pieces of it. Raises UsageError."""
        kept = {name: value for name, value in state.items() if name.startswith(SLOTS)}
        whole = {name: value for name, value in state.items() if name not in kept and name != NUM_DRAWN}
        sizes = {piece.place.name: piece.place.size for piece in self._pieces}
        check_names(whole, sizes | {name: buffer.shape for name, buffer in self._buffers().items()})
        with torch.no_grad():
            for piece in self._pieces:
                laid_out = torch.empty_strided(piece.place.size, piece.place.stride, dtype=piece.own.dtype)
                laid_out.copy_(torch.from_numpy(whole[piece.place.name]))
                piece.own.copy_(flat_in_memory(laid_out)[piece.inside])
            for name, buffer in self._buffers().items():
                buffer.copy_(torch.from_numpy(whole[name]))
        for index, part in enumerate(self._parts):
            part.resume(kept, index)
        self._replica.resume_batches(state)

    def _buffers(self) -> dict[str, torch.Tensor]:
        tensors = state_tensors(self._replica.program.networks)
        return {name: tensor for name, tensor in tensors if not isinstance(tensor, nn.Parameter)}

    def _slots(self) -> State:
        found: State = {}
        for index, part in enumerate(self._parts):
            cut = {}
            for place, (piece, values) in enumerate(part.kept()):
                for key, value in values.items():
                    name = f"{SLOTS}{index}.{place}.{key}"
                    found[name] = stored_slot(value).copy()
                    if isinstance(value, torch.Tensor) and value.dim():
                        cut[name] = piece, value
            whole = self._gathered(list(cut.values()))
            found |= {name: flat.numpy() for name, flat in zip(cut, whole, strict=True)}
        return found

    def _gathered(self, parts: Sequence[tuple[Piece, torch.Tensor]]) -> list[torch.Tensor]:
        """From this rank's parts, each like its piece, the whole tensors flat on the host; collective."""
        found: dict[int, torch.Tensor] = {}
        for dtype in dict.fromkeys(part.dtype for _, part in parts):
            alike = [index for index, (_, part) in enumerate(parts) if part.dtype == dtype]
            chunks = [parts[index][0].chunk for index in alike]
            sent = parts[alike[0]][1].new_zeros(sum(chunks))
            for index, room in zip(alike, torch.split(sent, chunks), strict=True):
                room[: parts[index][1].numel()] = parts[index][1]
            received = sent.new_empty(self._group.size() * sent.numel())
            all_gather(received, sent, group=self._group)
            columns = torch.split(received.view(self._group.size(), -1).cpu(), chunks, dim=1)
            for index, column in zip(alike, columns, strict=True):
                found[index] = column.contiguous().view(-1)[: parts[index][0].place.size.numel()]
        return [found[index] for index in range(len(parts))]
