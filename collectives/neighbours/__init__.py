"""Who carries rows between the ranks of a sample (`models.parallel.Neighbours`): halos, sums and gathers.

A *replica* is the `split` ranks that train on the same samples: rank r is in replica r // split, and has its rows
number r % split, 0 at the top. Each replica has a communicator of its own, so that halos and gradients never wait for
each other. Gradients stay with the backend, whatever carries the halos.

    ring   the native ring's exchanges, over a ring of the replica's own
    mpi    mpi4py's Isend and Irecv, MPI_Allreduce
    gloo   a Gloo group of the replica's own
    nccl   NCCL between GPUs, on tensors that lie there, where gradients go over it, too; nobody has run it
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from dlscale.base.errors import UsageError
from dlscale.collectives.capabilities import TABLE, capabilities, with_capability
from dlscale.collectives.neighbours.carried import CarriedNeighbours

NAMES = with_capability("neighbours")
"""The backends that are carriers."""

BESIDE = "mpi"  # carries for backends that are no carriers themselves, and whose ranks are those of an MPI


def carrier_of(backend: str, *, framework: str, halo: str | None = None) -> str:
    """The carrier of a backend's halos: the one asked for as `halo`, else the backend itself, else MPI beside it.

    Raises UsageError where there is none.
    """
    row = capabilities(backend)
    able = [
        name
        for name in NAMES
        if framework in TABLE[name].neighbours and (name == backend or not TABLE[name].between_gpus)
    ]
    if halo is not None and halo not in able:
        raise UsageError(
            f"halo={halo} carries no halos in {framework}; choose from: {', '.join(able) or 'none'}"
        )
    own = backend if backend in able else BESIDE if row.needs_mpi or not row.exchanges else None
    if halo is None and own not in able:
        raise UsageError(
            f"backend {backend} carries no halos in {framework}, which split needs; name a carrier with --set "
            f"halo=..., of: {', '.join(able) or 'none'}"
        )
    return halo or str(own)


def connect_neighbours(
    carrier: str, *, control: Any, split: int, options: Mapping[str, Any] | None = None
) -> CarriedNeighbours:
    """Join each `split` ranks of `control`, a `Communicator`, to a replica; collective.

    `options` are those of the backend that the carrier is named after, where gradients go over it, too. Raises
    UsageError if the carrier is not installed, or may not open its sockets.
    """
    if control.Get_size() % split:
        raise ValueError(f"{control.Get_size()} ranks are no whole number of replicas of {split}")
    module = importlib.import_module(f"dlscale.collectives.neighbours._{carrier}")
    return CarriedNeighbours(
        module.connect(control=control, split=split, options=dict(options or {})), split=split
    )
