"""Makes backend "dlscale" known to torch.distributed, with MPI in the place of a rendezvous over TCP.

Ranks and sizes come from an mpi4py communicator: `init_process_group` with the method "mpi://" finds everything in it.
A group of some of the ranks is formed by its members alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch.distributed as dist
from mpi4py import MPI
from torch.distributed import register_rendezvous_handler  # type: ignore[attr-defined]

from dlscale.collectives.fronts._torch_group import NAME, RingGroup
from dlscale.collectives.fronts._torch_store import NoStore
from dlscale.collectives.ring import Settings, join
from dlscale.collectives.ring.engine import Ring
from dlscale.models.errors import UsageError

SCHEME = "mpi"


def register(control: MPI.Intracomm, settings: Settings | None, *, threads: bool | None) -> None:
    """Make backend "dlscale" and init method "mpi://" known to torch; raises UsageError if they are already."""
    if NAME.upper() in dist.Backend._plugins:
        raise UsageError(f"torch knows backend {NAME!r} already; register it once per process")

    def create(options: Any, _: object) -> RingGroup:
        members = list(options.global_ranks_in_group)  # none for the group of all
        _check_ranks(options.group_rank, options.group_size, members, control=control)
        return RingGroup(
            _ring(control, members, settings, name=str(options.group_id)),
            threads=threads,
        )

    store = NoStore()  # kept here: torch's C++ holds the half of it that is not Python

    def rendezvous(_url: str, **_options: object) -> Iterator[tuple[NoStore, int, int]]:
        yield store, control.Get_rank(), control.Get_size()

    dist.Backend.register_backend(NAME, create, extended_api=True, devices=["cpu"])
    register_rendezvous_handler(SCHEME, rendezvous)  # type: ignore[no-untyped-call]


def _check_ranks(rank: int, size: int, members: Sequence[int], *, control: MPI.Intracomm) -> None:
    found = (control.Get_rank(), control.Get_size())
    if not members and (rank, size) != found:
        raise UsageError(
            f"init_process_group was told rank {rank} of {size}, but MPI says {found[0]} of {found[1]}; "
            f'leave both out and give init_method="{SCHEME}://"'
        )


def _ring(control: MPI.Intracomm, members: Sequence[int], settings: Settings | None, *, name: str) -> Ring:
    """The ring of all ranks, or of `members`, which alone take part in forming it."""
    if not members:
        return join(control, settings)
    everyone = control.Get_group()
    group = everyone.Incl(list(members))
    # Groups may be formed at the same time by ranks that share several: the tag keeps them apart.
    some = control.Create_group(group, tag=zlib.crc32(name.encode()) & 0x7FFF)
    try:
        return join(some, settings)
    finally:
        some.Free()
        group.Free()
        everyone.Free()
