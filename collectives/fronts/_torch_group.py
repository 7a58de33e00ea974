"""torch.distributed's backend "dlscale": a process group in Python whose operations the ring does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from dlscale.collectives.fronts._torch_memory import allreduce, array_of, fill, reduce_scatter, words_of
from dlscale.collectives.fronts._torch_work import RingWork
from dlscale.collectives.fronts.teams import Teams, want_threads
from dlscale.collectives.ring.engine import Ring

NAME = "dlscale"

_OPERATIONS = {
    dist.ReduceOp.SUM: "sum",
    dist.ReduceOp.AVG: "average",
    dist.ReduceOp.MIN: "min",
    dist.ReduceOp.MAX: "max",
}
_MISSING = (
    "allgather_coalesced",
    "alltoall",
    "alltoall_base",
    "all_to_all_single",
    "gather",
    "recv",
    "recv_anysource",
    "reduce",
    "scatter",
    "send",
)

Tensors = list[torch.Tensor]


class RingGroup(dist.ProcessGroup):
    """Collective operations of torch.distributed over a ring.

    With a communication thread an operation is under way when the call returns, and its Work is waited for; else it
    is done. Tensors must be dense, contiguous and on the CPU. What only moves data takes any dtype.
    """

    def __init__(self, ring: Ring, *, threads: bool | None) -> None:
        super().__init__(ring.rank, ring.size)  # type: ignore[call-arg]  # as a subclass is made
        self._teams: Teams[Ring] | None = Teams(
            [ring], threads=want_threads(ring, threads, num_threads=torch.get_num_threads())
        )

    def getBackendName(self) -> str:  # noqa: N802  # torch's name
        """The name that it is registered under."""
        return NAME

    def _set_group_name(self, name: Any) -> None:
        self._name = name  # torch would keep it in a C++ backend, which there is none of

    @property
    def group_name(self) -> Any:
        """The name by which torch knows the group."""
        return self._name

    def settings(self) -> dict[str, str | int | float | bool]:
        """For a record: whether operations go on in a thread, and the ring's own."""
        teams = self._open()
        return {"overlap": teams.num_threads > 0, **teams.collective(0).settings()}

    def allreduce(self, tensors: Tensors, opts: Any = None) -> RingWork:  # type: ignore[override]
        """Sum, average, min or max over ranks, in place."""
        op = _operation(opts)
        for tensor in tensors:
            array_of(tensor)
        return self._each(lambda ring, tensor: allreduce(ring, tensor, op), tensors, results=tensors)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> RingWork:
        """As `allreduce`, of several tensors."""
        return self.allreduce(tensors, opts)

    def broadcast(self, tensors: Tensors, opts: Any = None) -> RingWork:  # type: ignore[override]
        """The root's tensors, in place."""
        root = opts.rootRank if opts else 0
        return self._each(lambda ring, tensor: _broadcast(ring, tensor, root), tensors, results=tensors)

    def allgather(  # type: ignore[override]
        self,
        output_tensors: list[Tensors],
        input_tensors: Tensors,
        opts: Any = None,  # noqa: ARG002
    ) -> RingWork:
        """Every rank's tensor, into a list of tensors."""
        ((outputs,), (given,)) = output_tensors, input_tensors
        _check_pieces(outputs, given, size=self.size())
        return self._each(_allgather, [(outputs, given)], results=[outputs])

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> RingWork:  # noqa: A002
        """Every rank's tensor, one after the other in one tensor."""
        return self.all_gather_single_coalesced([output], [input], opts)

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> RingWork:  # noqa: ARG002
        """As `all_gather_single`, of several tensors."""
        pairs = [
            (_pieces(whole, piece, size=self.size()), piece)
            for whole, piece in zip(outputs, inputs, strict=True)
        ]
        return self._each(_allgather, pairs, results=outputs)

    def reduce_scatter(  # type: ignore[override]
        self, output_tensors: Tensors, input_tensors: list[Tensors], opts: Any = None
    ) -> RingWork:
        """This rank's piece of the sum, average, min or max over ranks of a list of tensors."""
        ((output,), (inputs,)) = output_tensors, input_tensors
        _check_pieces(inputs, output, size=self.size())
        whole = torch.stack([piece.reshape(-1) for piece in inputs])
        return self.reduce_scatter_single(output, whole, opts)

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> RingWork:  # noqa: A002
        """This rank's piece of the sum, average, min or max over ranks of one tensor."""
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    def reduce_scatter_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> RingWork:
        """As `reduce_scatter_single`, of several tensors."""
        op = _operation(opts)
        pairs = list(zip(outputs, inputs, strict=True))
        for piece, whole in pairs:
            _pieces(whole, piece, size=self.size())
        return self._each(
            lambda ring, pair: reduce_scatter(ring, pair[1], pair[0], op), pairs, results=outputs
        )

    # The names that these operations had before torch 2.13.
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single  # type: ignore[assignment]
    allgather_into_tensor_coalesced = all_gather_single_coalesced  # type: ignore[assignment]
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced  # type: ignore[assignment]

    def barrier(self, opts: Any = None) -> RingWork:  # noqa: ARG002
        """Wait for all ranks."""
        return self._each(lambda ring, _: ring.barrier(), [None], results=[])

    def shutdown(self) -> None:
        """Finish what is under way and free the ring; collective. Torch may keep the group itself for ever."""
        if self._teams:
            self._teams.close()
            self._teams.collective(0).close()
            self._teams = None

    def _open(self) -> Teams[Ring]:
        if self._teams is None:
            raise RuntimeError("this process group is closed")
        return self._teams

    def _each(
        self, operation: Callable[[Ring, Any], None], items: Sequence[Any], *, results: Any
    ) -> RingWork:
        def operate(ring: Ring) -> None:
            for item in items:
                operation(ring, item)

        return RingWork(self._open().submit(0, operate), results)


def _broadcast(ring: Ring, tensor: torch.Tensor, root: int) -> None:
    words = words_of(tensor)
    ring.broadcast(words, root)
    fill(tensor, words)


def _allgather(ring: Ring, pair: tuple[Tensors, torch.Tensor]) -> None:
    outputs, given = pair
    piece = words_of(given)
    everything = np.empty(ring.size * piece.size, dtype=piece.dtype)
    ring.allgather(piece, everything)
    for output, words in zip(outputs, everything.reshape(ring.size, -1), strict=True):
        fill(output, words)


def _refusal(name: str) -> Callable[..., Any]:
    def refuse(*_arguments: Any, **_options: Any) -> Any:
        raise NotImplementedError(
            f"backend {NAME!r} has no {name}; it has all_reduce, broadcast, all_gather, reduce_scatter and barrier. "
            "For the rest form a gloo group"
        )

    return refuse


for _name in _MISSING:
    setattr(RingGroup, _name, _refusal(_name))


def _operation(opts: Any) -> str:
    if opts is None:
        return "sum"
    for known, name in _OPERATIONS.items():
        if opts.reduceOp == known:
            return name
    raise NotImplementedError(
        f"backend {NAME!r} cannot reduce by {opts.reduceOp.op.name}; choose SUM, AVG, MIN or MAX"
    )


def _pieces(whole: torch.Tensor, piece: torch.Tensor, *, size: int) -> Tensors:
    """`whole` cut into one piece per rank."""
    array_of(whole)
    if whole.numel() != size * piece.numel():
        raise ValueError(
            f"{whole.numel()} elements cannot hold {size} pieces of {piece.numel()}; give one piece per rank"
        )
    pieces = list(whole.view(-1).view(size, -1))
    _check_pieces(pieces, piece, size=size)
    return pieces


def _check_pieces(pieces: Sequence[torch.Tensor], piece: torch.Tensor, *, size: int) -> None:
    """One piece per rank, all alike."""
    array_of(piece)
    if len(pieces) != size:
        raise ValueError(f"there are {len(pieces)} tensors for {size} ranks; give one per rank")
    for other in pieces:
        array_of(other)
        if (other.numel(), other.dtype) != (piece.numel(), piece.dtype):
            raise ValueError(
                f"a piece has {other.numel()} elements of {other.dtype}, this rank's {piece.numel()} of "
                f"{piece.dtype}; all must be alike"
            )
