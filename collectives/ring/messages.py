"""Messages between two ranks of a ring, and the operations that are made of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray

from dlscale.collectives.buffers import check_array, check_layout, check_overlap, check_root

if TYPE_CHECKING:
    from dlscale.collectives.ring import _engine

MOST_MESSAGES = 64  # that are kept when they may be done

# By these the engine refuses, in few words, what the checks of `buffers` refuse in better ones. Asked first, those
# would take longer than a small sum or message.
REFUSALS = (BufferError, TypeError, ValueError)

# Ranks, and the arrays that go to them or come from them.
Parts = list[tuple[int, NDArray[Any]]]


class Messages:
    """The part of `Ring` that moves arrays of any dtype from rank to rank without computing with them."""

    def __init__(self, engine: _engine.Engine) -> None:
        self._engine = engine
        self.rank: int = engine.rank
        self.size: int = engine.size
        self._messages: list[_engine.Message] = []  # whose memory must stay, though nobody may wait for them

    def send(self, buffer: NDArray[Any], to: int, *, tag: int = 0) -> None:
        """Send an array of any dtype to another rank, which receives one of the same length in bytes; not collective.

        Messages are matched by source and tag, in the order in which they are sent. Up to 8 KiB (less from 16 ranks of
        a node on) wait with the receiver; of longer ones it returns when the receiver has taken them.
        """
        try:
            self._engine.send(buffer if type(buffer) is ndarray else _other_array(buffer), to, tag)
        except REFUSALS:
            self._check_message(buffer, to, waits=True)
            raise

    def recv(self, buffer: NDArray[Any], source: int | None = None, *, tag: int = 0) -> int:
        """Receive into an array the next message with that tag, of `source` or of any rank; its source."""
        try:
            return self._engine.recv(buffer if type(buffer) is ndarray else _other_array(buffer), source, tag)
        except REFUSALS:
            self._check_message(buffer, source, waits=True, written=True)
            raise

    def isend(self, buffer: NDArray[Any], to: int, *, tag: int = 0) -> _engine.Message:
        """Begin to send; the array must not change before the message is done. To this rank itself, too."""
        try:
            return self._keep(
                self._engine.isend(buffer if type(buffer) is ndarray else _other_array(buffer), to, tag)
            )
        except REFUSALS:
            self._check_message(buffer, to)
            raise

    def irecv(self, buffer: NDArray[Any], source: int | None = None, *, tag: int = 0) -> _engine.Message:
        """Begin to receive; the array must not be used before the message is done."""
        try:
            return self._keep(
                self._engine.irecv(buffer if type(buffer) is ndarray else _other_array(buffer), source, tag)
            )
        except REFUSALS:
            self._check_message(buffer, source, written=True)
            raise

    def _keep(self, message: _engine.Message) -> _engine.Message:
        if len(self._messages) >= MOST_MESSAGES:
            self._messages = [other for other in self._messages if other.under_way]
        self._messages.append(message)
        return message

    def _check_message(
        self, buffer: NDArray[Any], peer: int | None, *, waits: bool = False, written: bool = False
    ) -> None:
        check_array(buffer)
        check_layout(buffer, written=written)
        if buffer.dtype.hasobject:
            raise TypeError("the array holds Python objects, which cannot travel; give numbers")
        if peer is None:
            return
        check_root(peer, size=self.size, name="rank")
        if waits and peer == self.rank:
            raise ValueError(
                f"rank {peer} would wait for itself; begin with isend or irecv, and wait for the message"
            )

    # ---- collective ----

    def all_to_all(
        self,
        buffer: NDArray[Any],
        output: NDArray[Any],
        counts: Sequence[int] | None = None,
        output_counts: Sequence[int] | None = None,
    ) -> None:
        """Send each rank its part of `buffer`, and fill `output` with everybody's part for this rank, by rank.

        Parts are equal, or have as many elements as `counts` and `output_counts` say, by rank.
        """
        self._check_message(buffer, None)
        self._check_message(output, None, written=True)
        if buffer.dtype != output.dtype:
            raise TypeError(f"buffer and output are of {buffer.dtype} and {output.dtype}; give one dtype")
        if np.may_share_memory(buffer, output):
            raise ValueError("buffer and output overlap; give memory that does not")
        self.exchange(
            "all_to_all",
            _parts(buffer, counts, size=self.size),
            _parts(output, output_counts, size=self.size),
        )

    def gather(self, piece: NDArray[Any], output: NDArray[Any] | None = None, root: int = 0) -> None:
        """Fill root's `output` with the pieces of all ranks, equal in length, one after the other in order of rank.

        Root's piece may be its part of `output`.
        """
        self._check_message(piece, root)
        self._check_root_array(output, piece, root, written=True)
        receives = [] if output is None else _parts(output, None, size=self.size)
        self.exchange("gather", [(root, piece)], receives, root)

    def scatter(self, buffer: NDArray[Any] | None, piece: NDArray[Any], root: int = 0) -> None:
        """Fill `piece` with this rank's part of root's `buffer`: the rank-th of `size` equal ones.

        Root's piece may be its part of `buffer`.
        """
        self._check_message(piece, root, written=True)
        self._check_root_array(buffer, piece, root)
        sends = [] if buffer is None else _parts(buffer, None, size=self.size)
        self.exchange("scatter", sends, [(root, piece)], root)

    def exchange(self, name: str, sends: Parts, receives: Parts, root: int = 0) -> None:
        """Send parts to ranks and receive parts from ranks, equal in bytes; an operation by that name of all ranks."""
        self._engine.exchange(name, sends, receives, root)

    def _check_root_array(
        self, whole: NDArray[Any] | None, piece: NDArray[Any], root: int, *, written: bool = False
    ) -> None:
        """Return if root, and nobody else, gives an array for the pieces of all ranks."""
        if (whole is None) == (self.rank == root):
            raise ValueError(f"root is rank {root}; it gives an array for all pieces, the other ranks None")
        if whole is None:
            return
        self._check_message(whole, None, written=written)
        if (whole.dtype, whole.size) != (piece.dtype, self.size * piece.size):
            raise ValueError(
                f"{whole.size} elements of {whole.dtype} do not hold {self.size} pieces of {piece.size} {piece.dtype}"
            )
        check_overlap(whole, piece, place=root)


def _parts(whole: NDArray[Any], counts: Sequence[int] | None, *, size: int) -> Parts:
    """One part of `whole` for each rank: equal ones, or of so many elements."""
    flat = whole.reshape(-1)
    if counts is None:
        if flat.size % size:
            raise ValueError(f"{flat.size} elements have no {size} equal parts; give counts")
        return list(enumerate(flat.reshape(size, -1)))
    if len(counts) != size or min(counts) < 0 or sum(counts) != flat.size:
        raise ValueError(
            f"counts are {', '.join(map(str, counts))}; give one per rank, {size} in all, that add up to {flat.size}"
        )
    ends = list(accumulate(counts))
    return [
        (rank, flat[end - count : end]) for rank, (count, end) in enumerate(zip(counts, ends, strict=True))
    ]


def _other_array(buffer: NDArray[Any]) -> NDArray[Any]:
    """An array of another class, itself. Raises TypeError if it is none, or its memory is not all of it."""
    check_array(buffer)
    return buffer
