"""Communication threads, after the teams of the Cray plugin: each has a collective of its own.

Operation i belongs to team i mod T. A team does its operations in the order in which they were handed in, which
must be the same on all ranks; different teams never wait for each other. Without threads the caller does the work
itself, in line, on the first collective.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from dlscale.collectives.backend import Collective
from dlscale.collectives.fronts.spare_cores import has_spare_core
from dlscale.models.errors import UsageError

C = TypeVar("C", bound=Collective)


class Teams(Generic[C]):
    """Does collective operations, by threads if `threads`, else in line.

    What is under way when the interpreter ends is finished first: Python joins the threads of an executor before
    MPI is finalised.
    """

    def __init__(self, collectives: Sequence[C], *, threads: bool) -> None:
        if threads and not threads_may_communicate():
            raise UsageError(
                "communication threads were asked for, but this MPI does not grant MPI_THREAD_MULTIPLE; "
                "initialise it so (mpi4py does unless told otherwise), or give teams=0"
            )
        self._collectives = tuple(collectives)
        self._executors = tuple(
            ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"dlscale-team-{index}")
            for index in range(len(collectives) if threads else 0)
        )

    @property
    def num_threads(self) -> int:
        """Communication threads; 0 where operations are done in line."""
        return len(self._executors)

    def collective(self, index: int) -> C:
        """The collective that operation `index` is done on."""
        return self._collectives[index % max(self.num_threads, 1)]

    def submit(self, index: int, operation: Callable[[C], Any]) -> Future[Any]:
        """Hand in operation `index`. In line it is done on return, and what it raises is raised here."""
        collective = self.collective(index)
        if self._executors:
            return self._executors[index % self.num_threads].submit(operation, collective)
        done: Future[Any] = Future()
        done.set_result(operation(collective))
        return done

    def close(self) -> None:
        """End the threads when all is done; the collectives stay open. A second close does nothing."""
        for executor in self._executors:
            executor.shutdown(wait=True)


def want_threads(collective: Collective, asked: bool | None, *, num_threads: int) -> bool:
    """Whether to take communication threads beside the `num_threads` that compute; collective.

    As `asked`; None means where a core is to spare, since elsewhere they would only take time from the
    computation, and where MPI allows it.
    """
    if asked is not None:
        return asked
    return has_spare_core(collective, num_threads=num_threads) and threads_may_communicate()


def threads_may_communicate() -> bool:
    """Whether MPI allows calls from several threads at once."""
    from mpi4py import MPI

    return bool(MPI.Query_thread() >= MPI.THREAD_MULTIPLE)
