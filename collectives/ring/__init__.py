"""Backend `ring`, and a library of its own: our native allreduce for any MPI training program.

    from mpi4py import MPI
    from dlscale.collectives import ring

    ranks = ring.join(MPI.COMM_WORLD)
    ranks.allreduce(gradients, "average")

src/          the engine and its binding, the extension module `_engine`
engine.py     the engine in Python, `Ring`
messages.py   messages between two of its ranks, and what is made of them
settings.py   the user's settings
bfloat16.py   gradients as bfloat16 on the wire, with error feedback
pieces.py     nodes cut into NUMA domains, or every so many ranks
mpi_match.py  refuses an MPI other than the one that the engine was compiled with
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dlscale.base.errors import UsageError
from dlscale.collectives.backend import Setup
from dlscale.collectives.buffers import check_buffers_match
from dlscale.collectives.compression.options import Compression
from dlscale.collectives.registry import read_kinds
from dlscale.collectives.ring.settings import Settings
from dlscale.collectives.training.collective_backend import CollectiveBackend
from dlscale.collectives.training.communication import Training

if TYPE_CHECKING:
    from dlscale.collectives.ring._torch import DdpHook
    from dlscale.collectives.ring.engine import Ring


__all__ = [
    "Settings",
    "average_gradients",
    "check_buffers_match",
    "connect",
    "join",
    "keras_callbacks",
    "keras_optimizer",
    "register_torch_backend",
    "torch_hook",
]

OPTION_KINDS = (Settings, Training, Compression)


def join(control: Any, settings: Settings | None = None) -> Ring:
    """The ring over all ranks of `control`, an mpi4py communicator; collective.

    With `wire="bfloat16"` in the settings it is a `Bfloat16Ring`. Raises UsageError for what is no communicator, for
    settings of another kind, and if the engine was not built for this MPI.
    """
    from dlscale.collectives.ring.engine import Ring

    if settings is not None and not isinstance(settings, Settings):
        raise UsageError(f"a ring's settings are {settings!r}; give ring.Settings(...), or leave them out")
    if settings and settings.wire == "bfloat16":
        from dlscale.collectives.ring.bfloat16 import Bfloat16Ring

        return Bfloat16Ring(control, settings)
    return Ring(control, settings)


def torch_hook(rings: Ring | Sequence[Ring], *, threads: bool | None = None) -> DdpHook:
    """A hook that lets DistributedDataParallel average its gradients over the ring; collective.

        model = DistributedDataParallel(model)
        model.register_comm_hook(None, ring.torch_hook(ring.join(MPI.COMM_WORLD)))

    `threads`: whether buckets travel by communication threads, one per ring, while backpropagation goes on; None
    takes them where a core is to spare. Several rings make several teams, among which the buckets go round.
    """
    from dlscale.collectives.ring._torch import DdpHook

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

    from dlscale.collectives.ring import _torch_default_group

    _torch_default_group.register(
        _torch_default_group.Joining(
            control=control or MPI.COMM_WORLD, join=lambda ranks: join(ranks, settings), threads=threads
        )
    )


def average_gradients(gradients: Sequence[Any], rings: Ring | Sequence[Ring]) -> list[Any]:
    """The means over ranks of a TensorFlow tape's gradients, inside `tf.function` or eagerly; collective.

        gradients = ring.average_gradients(tape.gradient(loss, variables), ranks)
        optimizer.apply(gradients, variables)

    None stays None. Sparse gradients come back dense. All ranks build the same graphs in the same order.
    """
    from dlscale.collectives.ring._tensorflow import average, exchange_over

    means: list[Any] = average(exchange_over(_several(rings)), gradients)
    return means


def keras_optimizer(optimizer: Any, rings: Ring | Sequence[Ring], *, threads: bool | None = None) -> Any:
    """The Keras 3 optimizer itself, which from now on averages gradients before it applies them; collective.

        model.compile(optimizer=ring.keras_optimizer(keras.optimizers.Adam(1e-3), ranks), loss=...)
        model.fit(..., callbacks=ring.keras_callbacks(ranks))

    A LossScaleOptimizer is wrapped as a whole. A saved model holds the plain optimizer; after `load_model` give
    `model.optimizer` to this function and compile again. `threads` as for `torch_hook`.
    """
    from dlscale.collectives.ring._keras import averaging_optimizer

    return averaging_optimizer(optimizer, _several(rings), threads=threads)


def keras_callbacks(ranks: Ring) -> list[Any]:
    """The callbacks that `model.fit` needs besides the optimizer; they come first in its list.

    Training begins with the variables and the optimizer's slots of rank 0, and stops with a clear error where ranks
    would wait for each other or train alone. At the end of each epoch metrics are averaged, and weights compared.
    Checkpoints are one rank's business: `[*ring.keras_callbacks(ranks), *([checkpoint] if ranks.rank == 0 else [])]`.
    """
    from dlscale.collectives.ring._keras import AverageMetrics, StartEqual

    return [StartEqual(ranks), AverageMetrics(ranks)]


def _several(rings: Ring | Sequence[Ring]) -> Sequence[Ring]:
    return rings if isinstance(rings, Sequence) else [rings]


def check(framework: str) -> None:  # noqa: ARG001
    """Returns if the engine was built for the MPI that is here. Raises UsageError."""
    importlib.import_module("dlscale.collectives.ring.engine")


def check_setup(options: dict[str, Any], setup: Setup) -> None:
    """Returns if the options fit each other. Raises UsageError."""
    _read(options, setup.framework)


def connect(*, control: Any, framework: str, options: dict[str, Any]) -> RingBackend:
    """Join the ranks of `control` as a backend; collective. Raises UsageError as `join`.

    The options are those of `Settings`, `Training` and `Compression`.
    """
    settings, training, compression = _read(options, framework)
    return RingBackend(control, settings, training, compression)


class RingBackend(CollectiveBackend):
    """Trains over rings of its own, one per team, or over torch's default group (`ProcessGroupBackend`)."""

    def __init__(
        self, control: Any, settings: Settings, training: Training, compression: Compression
    ) -> None:
        self._control, self._settings = control, settings
        self._group: Any = None
        super().__init__("ring", lambda: join(control, settings), training, compression)

    def process_group(self) -> Any:
        from dlscale.collectives.ring._torch_default_group import Joining, form_default_group

        if self._group is None:
            # Without a thread: who works with a group waits for most of its operations at once.
            joining = Joining(
                control=self._control, join=lambda ranks: join(ranks, self._settings), threads=False
            )
            self._group = form_default_group(joining)
        return self._group

    def close(self) -> None:
        if self._group is not None:
            import torch.distributed as dist

            self._control.Barrier()
            dist.destroy_process_group()
            self._group = None
        super().close()


def _read(options: dict[str, Any], framework: str) -> tuple[Settings, Training, Compression]:
    """The options by kind. Gradients compressed to bfloat16 are those of the ring's own wire."""
    settings, training, compression = read_kinds(OPTION_KINDS, options, backend="ring")
    if compression.compression == "bf16":
        return replace(settings, wire="bfloat16"), training, Compression()
    if compression.compression != "none" and settings.wire != "float32":
        raise UsageError(
            f"compression={compression.compression} and wire={settings.wire}: gradients are compressed once; leave one "
            "of them out"
        )
    compression.check(training, framework=framework)
    return settings, training, compression
