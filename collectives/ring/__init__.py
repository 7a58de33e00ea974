"""Backend `ring`, and a library of its own: our native allreduce for any MPI training program.

    from mpi4py import MPI
    from dlscale.collectives import ring

    ranks = ring.join(MPI.COMM_WORLD)
    ranks.allreduce(gradients, "average")

src/         the engine and its binding, the extension module `_engine`
engine.py    its Python face, `Ring`
settings.py  what a user may set
vendor.py    refuses an MPI other than the one that the engine was compiled with
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dlscale.collectives.options import read_options
from dlscale.collectives.over_collective import CollectiveBackend
from dlscale.collectives.ring.settings import Settings

if TYPE_CHECKING:
    from dlscale.collectives.ring.engine import Ring


def join(control: Any, settings: Settings | None = None) -> Ring:
    """The ring over all ranks of `control`, an mpi4py communicator; collective.

    Raises UsageError if the engine was not built for this MPI.
    """
    from dlscale.collectives.ring.engine import Ring

    return Ring(control, settings)


def connect(*, control: Any, options: dict[str, Any]) -> CollectiveBackend:
    """Join the ranks of `control` as a backend; collective. Raises UsageError as `join`."""
    chosen = read_options(Settings, options, backend="ring")
    return CollectiveBackend("ring", lambda: join(control, chosen))
