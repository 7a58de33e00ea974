"""Messages over MPI: a communicator that no one else uses, and a look at the processes of this machine.

MPI itself neither waits without keeping a core busy nor says that a rank has died. Ranks of other machines cannot be
looked at; there the launcher is the one to end what is left.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Collection
from typing import Any

import numpy as np
import psutil

from dlscale.collectives.job import ServerSplit, rest
from dlscale.collectives.servers.messages import LostPeerError, Message, Ranks

TAG = 1
NUM_YIELDS = 200  # looks that only let others have the core, before the first sleep
POLL_SECONDS = 0.0002
LOOK_SECONDS = 1.0  # between two looks at all processes


class OverMpi:
    """The messages of this rank (`Transport`); made by all ranks of `job` together."""

    def __init__(self, job: ServerSplit, ranks: Ranks) -> None:
        from mpi4py import MPI

        self._mpi: Any = MPI
        self._ranks = ranks
        self._communicator, request = job.everyone.Idup()
        rest(request, poll_seconds=0.001)
        texts = [text.partition(" ") for text in job.tell(f"{os.getpid()} {platform.node()}")]
        here = {rank: int(pid) for rank, (pid, _, host) in enumerate(texts) if host == platform.node()}
        self._processes = {rank: pid for rank, pid in here.items() if not has_ended(pid)}
        self._gone: dict[int, str] = {}
        self._next_look = 0.0
        self._sending: list[tuple[Any, Message, int]] = []
        self._num_looks = 0  # in vain, since something moved

    def send(self, message: Message, to: int) -> None:
        request = self._communicator.Isend([message.memory, self._mpi.BYTE], to, TAG)
        self._sending.append((request, message, to))

    def flush(self, ranks: Collection[int]) -> None:
        """MPI moves large messages only while both sides call it: who went away meanwhile would hold up the other."""
        for request, _, rank in self._sending:
            if rank in ranks:
                self._wait(request, rank)
        self._sending = [sending for sending in self._sending if sending[2] not in ranks]

    def receive(self, source: int) -> Message:
        while (found := self._poll(source)) is None:
            self._check_alive(source)
            self._rest()
        return found[1]

    def next(self) -> tuple[int, Message] | None:
        self._sending = [sending for sending in self._sending if not self._has_left(sending)]
        try:
            found = self._poll(self._mpi.ANY_SOURCE)
        except LostPeerError:  # in the middle of its message
            return None
        if not found:
            self._rest()
        return found

    def gone(self) -> dict[int, str]:
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK_SECONDS
            for rank, pid in self._processes.items():
                if rank not in self._gone and has_ended(pid):
                    self._gone[rank] = f"mpi_ps: {self._ranks.name(rank)} (process {pid}) died"
        return self._gone

    def close(self, failure: str = "") -> None:
        """After a failure the launcher ends the others."""
        if not failure:
            self._communicator.Free()

    def _poll(self, source: int) -> tuple[int, Message] | None:
        status = self._mpi.Status()
        matched = self._communicator.Improbe(source=source, tag=TAG, status=status)
        if matched is None:
            return None
        rank, memory = status.Get_source(), np.empty(status.Get_count(self._mpi.BYTE), np.uint8)
        try:
            request = matched.Irecv([memory, self._mpi.BYTE])
        except self._mpi.Exception:
            self._check_alive(rank, patience_seconds=2 * LOOK_SECONDS)
            raise
        self._wait(request, rank)
        return rank, Message(memory)

    def _wait(self, request: Any, rank: int) -> None:
        while not self._is_moved(request, rank):
            self._rest()
        self._num_looks = 0

    def _has_left(self, sending: tuple[Any, Message, int]) -> bool:
        """Whether a message has arrived, or will not."""
        try:
            return self._is_moved(sending[0], sending[2])
        except LostPeerError:
            return True

    def _is_moved(self, request: Any, rank: int) -> bool:
        """Whether a message between this rank and another has been moved. Raises LostPeerError where it cannot be.

        MPI fails, with an error of its own, where it was reading the memory of a process that has ended.
        """
        try:
            done = bool(request.Test())
        except self._mpi.Exception:
            self._check_alive(rank, patience_seconds=2 * LOOK_SECONDS)
            raise
        if not done:
            self._check_alive(rank)
        return done

    def _check_alive(self, rank: int, *, patience_seconds: float = 0.0) -> None:
        """Raises LostPeerError if its process has ended, or is seen to have before long."""
        end = time.monotonic() + patience_seconds
        while rank not in self.gone():
            if time.monotonic() >= end:
                return
            time.sleep(POLL_SECONDS)
        raise LostPeerError(rank, self._gone[rank])

    def _rest(self) -> None:
        """A little longer each time: at first only another process has the core."""
        self._num_looks += 1
        if self._num_looks < NUM_YIELDS:
            os.sched_yield()
        else:
            time.sleep(POLL_SECONDS)


def has_ended(pid: int) -> bool:
    """Whether there is no such process, or only what is left of it until its parent has looked."""
    try:
        return bool(psutil.Process(pid).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD))
    except psutil.NoSuchProcess:
        return True
