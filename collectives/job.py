"""The ranks of a launch that has servers: workers first, servers last, and the messages between them.

A rank that waits for orders or messages polls and sleeps: inside MPI it would keep a core busy, and servers share cores
with workers.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from dlscale.base.errors import UsageError

POLL_SECONDS = 0.005
ORDER_TAG = 41


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSplit:
    """One rank's view of workers and servers. `index` counts among its own kind."""

    everyone: Any  # mpi4py's communicator of all ranks
    workers: Any  # mpi4py's communicator of the workers; None on servers
    num_workers: int
    num_servers: int
    index: int

    @property
    def is_server(self) -> bool:
        """Whether this rank serves instead of training."""
        return self.workers is None

    def tell(self, text: str) -> list[str]:
        """The texts of all ranks, workers first; collective over all."""
        texts: list[str] = self.everyone.allgather(text)
        return texts

    def order(self, **what: Any) -> None:
        """Worker 0 tells all servers what to do; nothing is done by other workers."""
        if self.workers is not None and self.index == 0:
            for server in range(self.num_servers):
                rest(self.everyone.isend(what, self.num_workers + server, ORDER_TAG))

    def next_order(self) -> dict[str, Any]:
        """On a server: return when worker 0 says what to do next."""
        while not self.everyone.iprobe(source=0, tag=ORDER_TAG):
            time.sleep(POLL_SECONDS)
        order: dict[str, Any] = self.everyone.recv(source=0, tag=ORDER_TAG)
        return order


def agree(job: ServerSplit, address: str, problem: str) -> list[str]:
    """All ranks' addresses; collective over `job`. Raises UsageError on all of them if one has a problem."""
    told = [text.partition("\n") for text in job.tell(f"{' '.join(problem.split())}\n{address}")]
    for found, _, _ in told:
        if found:
            raise UsageError(found)
    return [own for _, _, own in told]


def split(everyone: Any, *, num_servers: int) -> ServerSplit:
    """Workers and servers of `everyone`, an mpi4py communicator; collective. The last ranks serve.

    Raises UsageError unless there is at least one server and no fewer workers than servers.
    """
    num_workers = everyone.Get_size() - num_servers
    if not 1 <= num_servers <= num_workers:
        raise UsageError(
            f"{num_servers} servers for {num_workers} workers; give at least 1 and at most as many as workers"
        )
    rank = everyone.Get_rank()
    is_server = rank >= num_workers
    own_kind = everyone.Split(color=int(is_server), key=rank)
    return ServerSplit(
        everyone=everyone,
        workers=None if is_server else own_kind,
        num_workers=num_workers,
        num_servers=num_servers,
        index=own_kind.Get_rank(),
    )


def rest(request: Any, *, poll_seconds: float = POLL_SECONDS) -> None:
    """Return when a request of mpi4py is done, asleep between looks."""
    while not request.Test():
        time.sleep(poll_seconds)
