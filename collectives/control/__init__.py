"""The control plane: how the ranks of a launch talk about the measurement, beside the backend that is measured.

It gathers, compares and waits, in gates, audits and between windows, never inside what is timed. MPI carries it where
MPI started the ranks; under torchrun, which starts ranks without MPI, a Gloo group of its own does.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, Protocol

from numpy.typing import NDArray

from dlscale.base.launchers import BY_TORCHRUN


class Communicator(Protocol):
    """What ranks say to each other, by mpi4py's names: mpi4py's communicators have all of it. All are collective.

    Small letters are for objects of plain types and arrays; capitals are for arrays, in place.
    """

    def Get_rank(self) -> int:  # noqa: N802
        """This rank."""

    def Get_size(self) -> int:  # noqa: N802
        """The number of ranks."""

    def Barrier(self) -> None:  # noqa: N802
        """Return when all ranks are here."""

    def Ibarrier(self) -> Any:  # noqa: N802
        """A request, whose `Test` says whether all ranks are here."""

    def bcast(self, value: Any) -> Any:
        """Rank 0's."""

    def gather(self, value: Any) -> list[Any] | None:
        """Those of all ranks, on rank 0; None on others."""

    def allgather(self, value: Any) -> list[Any]:
        """Those of all ranks, in order."""

    def allreduce(self, value: Any, op: Callable[[Any, Any], Any] = operator.add) -> Any:
        """All ranks' in one by `op`, from rank 0 on."""

    def Allreduce(self, sendbuf: None, recvbuf: NDArray[Any]) -> None:  # noqa: N802
        """The sum, in place; None is what MPI calls IN_PLACE."""

    def Bcast(self, buf: NDArray[Any], root: int = 0) -> None:  # noqa: N802
        """Root's array, in place."""


class ControlPlane(Protocol):
    """A launch's control plane, as one rank has it before the ranks have met."""

    @property
    def rank(self) -> int:
        """This process's rank."""

    def meet(self, asked: int) -> Any:
        """The `Communicator` of all ranks, `asked` of them; collective. Raises UsageError for another number."""

    def leave(self) -> None:
        """All is said."""

    def abort(self) -> NoReturn:
        """End the ranks of the launch, which may wait for this one."""


def control_plane(folder: Path) -> ControlPlane:
    """That of the launcher which started this process; ranks may meet in the launch's `folder`."""
    if BY_TORCHRUN in os.environ:
        from dlscale.collectives.control.by_torch import TorchPlane

        return TorchPlane(folder)
    from dlscale.collectives.control.by_mpi import MpiPlane

    return MpiPlane()
