"""The ring's Python front: a `Collective` over the C++ engine."""

from __future__ import annotations

from typing import Any

from mpi4py import MPI
from numpy.typing import NDArray

from dlscale.collectives.buffers import check_buffer, check_root
from dlscale.collectives.ring.vendor import REINSTALL, require_same_library, require_same_mpi
from dlscale.models.errors import UsageError

try:
    import dlscale.collectives.ring._engine as _engine
except ModuleNotFoundError as error:
    raise UsageError(
        "backend ring was not built: the installation found no C++ compiler or no MPI (mpicxx), or was told "
        f"not to; {REINSTALL} -Ccmake.define.DLSCALE_WITH_MPI=ON builds it or says what is missing"
    ) from error
except ImportError as error:
    raise UsageError(
        f"backend ring cannot be loaded: {error}; reinstall dlscale in this environment: {REINSTALL}"
    ) from error

require_same_mpi(compiled=_engine.MPI_VENDOR, loaded=MPI.get_vendor()[0])
require_same_library(called=_engine.library_version(), loaded=MPI.Get_library_version())

SEGMENT_BYTES = 256 * 1024


class RingCollective:
    """Ring allreduce, broadcast and barrier on a communicator of their own (`Collective`).

    Messages carry at most `segment_bytes`; while one is added, others travel.
    """

    def __init__(self, control: MPI.Intracomm, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._engine = _engine.Engine(control.py2f(), segment_bytes)
        self._segment_bytes = segment_bytes
        self.rank: int = self._engine.rank
        self.size: int = self._engine.size

    def settings(self) -> dict[str, str | int | float | bool]:
        """The largest message, and whether ranks outnumber CPUs, so that waiting gives the CPU away at once."""
        return {"segment_bytes": self._segment_bytes, "crowded": self._engine.crowded}

    def allreduce(self, buffer: NDArray[Any]) -> None:
        """Sum over ranks, in place."""
        check_buffer(buffer)
        self._engine.allreduce(buffer)

    def broadcast(self, buffer: NDArray[Any], root: int = 0) -> None:
        """Copy of root's buffer, in place."""
        check_buffer(buffer)
        check_root(root, size=self.size)
        self._engine.broadcast(buffer, root)

    def barrier(self) -> None:
        """Wait for all ranks."""
        self._engine.barrier()

    def close(self) -> None:
        """Free the communicator."""
        self._engine.close()
