"""Backend `ring`, and a library: our native allreduce for any MPI training program.

    from mpi4py import MPI
    from dlscale.collectives import ring

    ranks = ring.join(MPI.COMM_WORLD)
    ranks.allreduce(gradients, "average")

src/          the engine and its binding, the extension module `_engine`
engine.py     the engine in Python, `Ring`
settings.py   the user's settings
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dlscale.base.errors import UsageError
from dlscale.collectives.backend import Setup
from dlscale.collectives.buffers import check_buffers_match
from dlscale.collectives.ring.settings import Settings
from dlscale.collectives.training.collective_backend import (
    TRAINING_KINDS,
    CollectiveBackend,
    check_operations,
    read_training,
)

if TYPE_CHECKING:
    from dlscale.collectives.ring.engine import Ring
    from dlscale.collectives.training._torch_buckets import DdpHook


__all__ = [
    "Settings",
    "check_buffers_match",
    "connect",
    "join",
    "keras_callbacks",
    "keras_optimizer",
    "torch_hook",
]

OPTION_KINDS = (Settings, *TRAINING_KINDS)


def join(control: Any, settings: Settings | None = None) -> Ring:
    """The ring over all ranks of `control`, an mpi4py communicator; collective.

    Raises UsageError for what is no communicator, for settings of another kind, and if the engine was not built for
    this MPI.
    """
    from dlscale.collectives.ring.engine import Ring

    if settings is not None and not isinstance(settings, Settings):
        raise UsageError(f"a ring's settings are {settings!r}; give ring.Settings(...), or leave them out")
    return Ring(control, settings)


def torch_hook(rings: Ring | Sequence[Ring], *, threads: bool | None = None) -> DdpHook:
    """A hook that lets DistributedDataParallel average its gradients over the ring; collective.

        model = DistributedDataParallel(model)
        model.register_comm_hook(None, ring.torch_hook(ring.join(MPI.COMM_WORLD)))

    `threads`: whether buckets travel by communication threads, one per ring, while backpropagation goes on; None
    takes them where every rank has a core to spare. Several rings make several teams, among which the buckets go round.
    """
    from dlscale.collectives.training._torch_buckets import DdpHook

    return DdpHook(_several(rings), threads=threads)


def keras_optimizer(optimizer: Any, rings: Ring | Sequence[Ring], *, threads: bool | None = None) -> Any:
    """The Keras 3 optimizer itself, which from now on averages gradients before it applies them; collective.

        model.compile(optimizer=ring.keras_optimizer(keras.optimizers.Adam(1e-3), ranks), loss=...)
        model.fit(..., callbacks=ring.keras_callbacks(ranks))

    In a loop of one's own call its `apply(gradients, variables)`, eagerly or inside `tf.function`: None stays None, and
    sparse gradients come back dense. All ranks build the same graphs in the same order. A LossScaleOptimizer is wrapped
    as a whole. A saved model holds the plain optimizer; after `load_model` give `model.optimizer` to this function and
    compile again. `threads` as for `torch_hook`.
    """
    from dlscale.collectives.ring._keras import averaging_optimizer

    return averaging_optimizer(optimizer, _several(rings), threads=threads)


def keras_callbacks(ranks: Ring) -> list[Any]:
    """The callbacks that `model.fit` needs besides the optimizer; they come first in its list.

    Training begins with the variables and the optimizer's slots of rank 0, and stops with a clear error where ranks
    would wait for each other or train alone. At the end of each epoch metrics are averaged, and weights compared.
    Checkpoints are one rank's business: `[*ring.keras_callbacks(ranks), *([checkpoint] if ranks.rank == 0 else [])]`.
    """
    from dlscale.collectives.ring._keras import SeveralRanks

    return [SeveralRanks(ranks)]


def _several(rings: Ring | Sequence[Ring]) -> Sequence[Ring]:
    return rings if isinstance(rings, Sequence) else [rings]


def check(framework: str) -> None:
    """Returns if the engine was built for the MPI that is here. Raises UsageError."""
    importlib.import_module("dlscale.collectives.ring.engine")
    check_operations(framework)


def check_setup(options: dict[str, Any], setup: Setup) -> None:
    """Returns if the options fit each other. Raises UsageError."""
    read_training(options, setup.framework, backend="ring", others=(Settings,))


def connect(*, control: Any, framework: str, options: dict[str, Any]) -> CollectiveBackend:
    """Join the ranks of `control` as a backend, a ring per team; collective. Raises UsageError as `join`.

    The options are those of `Settings`, `Training` and `Compression`.
    """
    training, compression, settings = read_training(options, framework, backend="ring", others=(Settings,))
    return CollectiveBackend("ring", lambda: join(control, settings), training, compression)
