"""torch.distributed's backend "dlscale": a process group in Python whose operations the ring does.

How ranks form one is in `_torch_default_group`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from dlscale.collectives.ring._torch import (
    allreduce,
    array_of,
    bytes_of,
    fill,
    reduce,
    reduce_scatter,
    words_of,
)
from dlscale.collectives.ring._torch_works import MessageWork, RingWork, Unwaited
from dlscale.collectives.ring.engine import Ring
from dlscale.collectives.ring.messages import Parts
from dlscale.collectives.training.communication import Teams, want_threads

NAME = "dlscale"

_OPERATIONS = {
    dist.ReduceOp.SUM: "sum",
    dist.ReduceOp.AVG: "average",
    dist.ReduceOp.MIN: "min",
    dist.ReduceOp.MAX: "max",
}
Tensors = list[torch.Tensor]


class RingGroup(dist.ProcessGroup):
    """Collective operations of torch.distributed over a ring.

    With a communication thread an operation is under way when the call returns, and its Work is waited for; else it
    is done. Tensors must be dense, contiguous and on the CPU. What only moves data takes any dtype.
    """

    def __init__(self, ring: Ring, *, threads: bool | None) -> None:
        super().__init__(ring.rank, ring.size)  # type: ignore[call-arg]  # as a subclass is made
        self._unwaited = Unwaited()
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
        """Like `allreduce`, for several tensors."""
        return self.allreduce(tensors, opts)

    def broadcast(self, tensors: Tensors, opts: Any = None) -> RingWork:  # type: ignore[override]
        root = opts.rootRank if opts else 0
        return self._each(lambda ring, tensor: _broadcast(ring, tensor, root), tensors, results=tensors)

    def allgather(  # type: ignore[override]
        self,
        output_tensors: list[Tensors],
        input_tensors: Tensors,
        opts: Any = None,  # noqa: ARG002
    ) -> RingWork:
        ((outputs,), (given,)) = output_tensors, input_tensors
        _check_pieces(outputs, given, size=self.size())
        return self._each(_allgather, [(outputs, given)], results=[outputs])

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> RingWork:  # noqa: A002
        """Every rank's tensor, one after the other in one tensor."""
        return self.all_gather_single_coalesced([output], [input], opts)

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> RingWork:  # noqa: ARG002
        """Like `all_gather_single`, for several tensors."""
        pairs = list(zip(outputs, inputs, strict=True))
        for whole, piece in pairs:
            _check_whole(whole, piece, size=self.size())
        return self._each(_allgather_single, pairs, results=outputs)

    def allgather_coalesced(
        self,
        output_lists: list[Tensors],
        inputs: Tensors,
        opts: Any = None,  # noqa: ARG002
    ) -> RingWork:
        """Like `allgather`, for several tensors: a list of them for each rank."""
        pairs = []
        for index, given in enumerate(inputs):
            outputs = [of_rank[index] for of_rank in output_lists]
            _check_pieces(outputs, given, size=self.size())
            pairs.append((outputs, given))
        return self._each(_allgather, pairs, results=output_lists)

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
        """Like `reduce_scatter_single`, for several tensors."""
        op = _operation(opts)
        pairs = list(zip(outputs, inputs, strict=True))
        for piece, whole in pairs:
            _check_whole(whole, piece, size=self.size())
        return self._each(
            lambda ring, pair: reduce_scatter(ring, pair[1], pair[0], op), pairs, results=outputs
        )

    # The names that these operations had before torch 2.13.
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single  # type: ignore[assignment]
    allgather_into_tensor_coalesced = all_gather_single_coalesced  # type: ignore[assignment]
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced  # type: ignore[assignment]

    def barrier(self, opts: Any = None) -> RingWork:  # noqa: ARG002
        return self._each(lambda ring, _: ring.barrier(), [None], results=[])

    def reduce(self, tensors: Tensors, opts: Any = None) -> RingWork:  # type: ignore[override]
        """Sum, average, min or max over ranks in the root's tensors; the others' are of no meaning afterwards."""
        op, root = _operation(opts), opts.rootRank if opts else 0
        for tensor in tensors:
            array_of(tensor)
        return self._each(lambda ring, tensor: reduce(ring, tensor, op, root), tensors, results=tensors)

    def gather(self, output_tensors: list[Tensors], input_tensors: Tensors, opts: Any = None) -> RingWork:  # type: ignore[override]
        """Every rank's tensor, into the root's list of tensors."""
        (given,) = input_tensors
        root, outputs = _root_list(output_tensors, opts)
        if outputs:
            _check_pieces(outputs, given, size=self.size())
        return self._exchange(
            "gather", [(root, given)], list(enumerate(outputs)), results=[outputs], root=root
        )

    def scatter(self, output_tensors: Tensors, input_tensors: list[Tensors], opts: Any = None) -> RingWork:  # type: ignore[override]
        """This rank's tensor of the root's list."""
        (output,) = output_tensors
        root, inputs = _root_list(input_tensors, opts)
        if inputs:
            _check_pieces(inputs, output, size=self.size())
        return self._exchange(
            "scatter", list(enumerate(inputs)), [(root, output)], results=[output], root=root
        )

    def alltoall(self, output_tensors: Tensors, input_tensors: Tensors, opts: Any = None) -> RingWork:  # noqa: ARG002
        """One tensor to each rank, and one from each; of any lengths that agree."""
        for tensors in (output_tensors, input_tensors):
            if len(tensors) != self.size():
                raise ValueError(
                    f"there are {len(tensors)} tensors for {self.size()} ranks; give one per rank"
                )
        sends, receives = list(enumerate(input_tensors)), list(enumerate(output_tensors))
        return self._exchange("all_to_all", sends, receives, results=output_tensors)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,  # noqa: A002
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        opts: Any = None,
    ) -> RingWork:
        """Like `alltoall`, of tensors cut along their first dimension: equally where no sizes are given."""
        outputs = _split(output, output_split_sizes, size=self.size())
        return self.alltoall(outputs, _split(input, input_split_sizes, size=self.size()), opts)

    alltoall_base = all_to_all_single  # type: ignore[assignment]

    def send(self, tensors: Tensors, dstRank: int, tag: int = 0) -> MessageWork:  # noqa: N803
        """Send one tensor to a rank; of any dtype, also to this rank itself."""
        (tensor,) = tensors
        return MessageWork(self._ring().isend(bytes_of(tensor), dstRank, tag=tag), tensors, self._unwaited)

    def recv(self, tensors: Tensors, srcRank: int, tag: int = 0) -> MessageWork:  # noqa: N803
        """Receive one tensor, of the length that the rank sends."""
        (tensor,) = tensors
        return MessageWork(self._ring().irecv(bytes_of(tensor), srcRank, tag=tag), tensors, self._unwaited)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> MessageWork:
        """Receive one tensor from whichever rank sends one with that tag."""
        (tensor,) = tensors
        return MessageWork(self._ring().irecv(bytes_of(tensor), tag=tag), tensors, self._unwaited)

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

    def _ring(self) -> Ring:
        return self._open().collective(0)

    def _exchange(
        self,
        name: str,
        sends: list[tuple[int, torch.Tensor]],
        receives: list[tuple[int, torch.Tensor]],
        *,
        results: Any,
        root: int = 0,
    ) -> RingWork:
        going: Parts = [(rank, bytes_of(tensor)) for rank, tensor in sends]
        coming: Parts = [(rank, bytes_of(tensor)) for rank, tensor in receives]
        return self._each(lambda ring, _: ring.exchange(name, going, coming, root), [None], results=results)

    def _each(
        self, operation: Callable[[Ring, Any], None], items: Sequence[Any], *, results: Any
    ) -> RingWork:
        def operate(ring: Ring) -> None:
            for item in items:
                operation(ring, item)

        return RingWork(self._open().submit(0, operate), results, self._unwaited)


def _broadcast(ring: Ring, tensor: torch.Tensor, root: int) -> None:
    words = words_of(tensor)
    ring.broadcast(words, root)
    fill(tensor, words)


def _allgather_single(ring: Ring, pair: tuple[torch.Tensor, torch.Tensor]) -> None:
    output, given = pair
    piece, everything = words_of(given), words_of(output)
    if everything.nbytes != ring.size * piece.nbytes or not np.may_share_memory(everything, array_of(output)):
        _allgather(ring, (list(output.view(-1).view(ring.size, -1)), given))
        return
    if np.may_share_memory(everything, piece) and not _is_own_part(piece, everything, ring):
        piece = piece.copy()
    ring.allgather(piece, everything)


def _is_own_part(piece: NDArray[Any], everything: NDArray[Any], ring: Ring) -> bool:
    return piece.ctypes.data == everything.ctypes.data + ring.rank * piece.nbytes


def _allgather(ring: Ring, pair: tuple[Tensors, torch.Tensor]) -> None:
    outputs, given = pair
    piece = words_of(given)
    everything = np.empty(ring.size * piece.size, dtype=piece.dtype)
    ring.allgather(piece, everything)
    for output, words in zip(outputs, everything.reshape(ring.size, -1), strict=True):
        fill(output, words)


def _operation(opts: Any) -> str:
    if opts is None:
        return "sum"
    for known, name in _OPERATIONS.items():
        if opts.reduceOp == known:
            return name
    raise NotImplementedError(
        f"backend {NAME!r} cannot reduce by {opts.reduceOp.op.name}; choose SUM, AVG, MIN or MAX"
    )


def _root_list(lists: list[Tensors], opts: Any) -> tuple[int, Tensors]:
    """The root, and its list of tensors; none on the other ranks."""
    return opts.rootRank if opts else 0, lists[0] if lists else []


def _split(whole: torch.Tensor, sizes: Sequence[int], *, size: int) -> Tensors:
    """`whole` cut along its first dimension, into one piece per rank."""
    array_of(whole)
    length = whole.shape[0] if whole.dim() else 1
    if not sizes:
        if length % size:
            raise ValueError(f"a first dimension of {length} has no {size} equal parts; give split sizes")
        sizes = [length // size] * size
    if len(sizes) != size or sum(sizes) != length:
        raise ValueError(
            f"split sizes are {', '.join(map(str, sizes))}; give one per rank, {size} in all, that add up to {length}"
        )
    return list(whole.split(list(sizes)))  # type: ignore[no-untyped-call]


def _check_whole(whole: torch.Tensor, piece: torch.Tensor, *, size: int) -> None:
    """One tensor of one piece per rank, all alike."""
    for tensor in (whole, piece):
        array_of(tensor)
    if whole.numel() != size * piece.numel():
        raise ValueError(
            f"{whole.numel()} elements cannot hold {size} pieces of {piece.numel()}; give one piece per rank"
        )
    if whole.dtype != piece.dtype:
        raise ValueError(
            f"the whole has elements of {whole.dtype}, this rank's piece of {piece.dtype}; all must be alike"
        )


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
