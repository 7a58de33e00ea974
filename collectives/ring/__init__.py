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

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dlscale.collectives.matching import check_buffers_match
from dlscale.collectives.options import read_two
from dlscale.collectives.over_collective import CollectiveBackend
from dlscale.collectives.ring.settings import Settings
from dlscale.collectives.training import Training

if TYPE_CHECKING:
    from dlscale.collectives.fronts._torch_hook import DdpHook
    from dlscale.collectives.ring.engine import Ring

__all__ = ["Settings", "check_buffers_match", "connect", "join", "register_torch_backend", "torch_hook"]


def join(control: Any, settings: Settings | None = None) -> Ring:
    """The ring over all ranks of `control`, an mpi4py communicator; collective.

    Raises UsageError if the engine was not built for this MPI.
    """
    from dlscale.collectives.ring.engine import Ring

    return Ring(control, settings)


def torch_hook(rings: Ring | Sequence[Ring], *, threads: bool | None = None) -> DdpHook:
    """A hook that lets DistributedDataParallel average its gradients over the ring; collective.

        model = DistributedDataParallel(model)
        model.register_comm_hook(None, ring.torch_hook(ring.join(MPI.COMM_WORLD)))

    `threads`: whether buckets travel by communication threads, one per ring, while backpropagation goes on; None
    takes them where a core is to spare. Several rings make several teams, among which the buckets go round.
    """
    from dlscale.collectives.fronts._torch_hook import DdpHook

    return DdpHook(rings if isinstance(rings, Sequence) else [rings], threads=threads)


def register_torch_backend(
    control: Any = None, settings: Settings | None = None, *, threads: bool | None = None
) -> None:
    """Make backend "dlscale" known to torch.distributed, over the ranks of `control` (default: all).

        ring.register_torch_backend()
        torch.distributed.init_process_group("dlscale", init_method="mpi://")

    `threads`: as for `torch_hook`. Raises UsageError as `join`, and when it is done twice.
    """
    from mpi4py import MPI

    from dlscale.collectives.fronts import _torch_register

    _torch_register.register(control or MPI.COMM_WORLD, settings, threads=threads)


def connect(*, control: Any, options: dict[str, Any]) -> CollectiveBackend:
    """Join the ranks of `control` as a backend; collective. Raises UsageError as `join`.

    The options are those of `Settings` and of `Training`.
    """
    chosen, training = read_two(Settings, Training, options, backend="ring")
    return CollectiveBackend("ring", lambda: join(control, chosen), training)
