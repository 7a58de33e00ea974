"""Threads of one process as the ranks of a replica: neighbours that copy arrays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

LIMIT_SECONDS = 60


class Board:
    """What the threads of a replica show each other; those that wait are let go when another one failed."""

    def __init__(self, split: int) -> None:
        self.shown: list[Any] = [None] * split
        self.barrier = threading.Barrier(split, timeout=LIMIT_SECONDS)


class ThreadNeighbours:
    """`parallel.Neighbours` between threads. `calls` are the shapes of what was sent."""

    takes_tensors = False

    def __init__(self, board: Board, index: int) -> None:
        self._board, self.index, self.split = board, index, len(board.shown)
        self.calls: list[tuple[str, Any]] = []

    def exchange(self, up: Any, down: Any, from_up: Any, from_down: Any) -> None:
        """Copy what the neighbours show."""
        assert self.index or (up is None and from_up is None)
        assert self.index < self.split - 1 or (down is None and from_down is None)
        self.calls.append(("exchange", [None if rows is None else rows.shape for rows in (up, down)]))
        shown = self._show((up, down))
        for wanted, rank, which in ((from_up, self.index - 1, 1), (from_down, self.index + 1, 0)):
            sent = shown[rank][which] if 0 <= rank < self.split else None
            assert (sent is None) == (wanted is None), "one rank sends what the other does not expect"
            if wanted is not None:
                assert (sent.shape, sent.dtype) == (wanted.shape, wanted.dtype)
                assert all(rows.flags.c_contiguous for rows in (sent, wanted))
                wanted[...] = sent
        self._board.barrier.wait()

    def sum(self, values: Any) -> None:
        """Add up in the order of the ranks."""
        self.calls.append(("sum", values.shape))
        shown = self._show(values.copy())
        values[...] = sum(shown[1:], start=shown[0])
        self._board.barrier.wait()

    def gather(self, own: Any, whole: Any, counts: Sequence[int]) -> None:
        """All ranks' rows, one behind the other."""
        self.calls.append(("gather", own.shape))
        assert own.flags.c_contiguous
        assert len(own) == counts[self.index]
        np.concatenate(self._show(own), out=whole)
        self._board.barrier.wait()

    def _show(self, what: Any) -> list[Any]:
        self._board.shown[self.index] = what
        self._board.barrier.wait()
        return self._board.shown


def on_ranks(split: int, work: Callable[[ThreadNeighbours], Any]) -> list[Any]:
    """What `work` returns on every rank of a replica, or the first error of one."""
    board = Board(split)

    def of_rank(index: int) -> Any:
        try:
            return work(ThreadNeighbours(board, index))
        except BaseException:
            board.barrier.abort()
            raise

    with ThreadPoolExecutor(split) as pool:
        futures = [pool.submit(of_rank, index) for index in range(split)]
    errors = [future.exception() for future in futures]
    own = [error for error in errors if error and not isinstance(error, threading.BrokenBarrierError)]
    if own or any(errors):
        raise own[0] if own else next(error for error in errors if error)
    return [future.result() for future in futures]
