"""The ring's Python face: `Ring`, the collective operations of one communicator over the C++ engine."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from dlscale.collectives.buffers import check_buffer, check_root
from dlscale.collectives.ring.settings import Settings
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


class Ring:
    """Collective operations over the ranks of `control`, on a communicator of their own (`Collective`).

    Every method but the properties is collective and blocking: all ranks call the same ones in the same
    order, with buffers equal in dtype and length.
    """

    def __init__(self, control: MPI.Intracomm, settings: Settings | None = None) -> None:
        self._settings = settings or Settings()
        self._engine = _engine.Engine(control.py2f(), self._settings.segment_bytes)
        self.rank: int = self._engine.rank
        self.size: int = self._engine.size

    def settings(self) -> dict[str, str | int | float | bool]:
        """The largest message, and whether ranks outnumber CPUs, so that waiting gives the CPU away at once."""
        return {"segment_bytes": self._settings.segment_bytes, "crowded": self._engine.crowded}

    def allreduce(self, buffer: NDArray[Any], op: str = "sum") -> None:
        """Sum, average, min or max over ranks, in place."""
        check_buffer(buffer)
        self._engine.allreduce(buffer)
        if op == "average" and self.size > 1:
            np.divide(buffer, self.size, out=buffer)

    def empty(self, count: int, dtype: str = "float32") -> NDArray[Any]:
        """An array of `count` elements in memory that the ranks of a node share; collective."""
        return np.empty(count, dtype)

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
