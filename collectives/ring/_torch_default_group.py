"""Torch's default group over a ring: how ranks find each other, with MPI in the place of a rendezvous over TCP.

`init_process_group` with the method "mpi://" finds everything in an mpi4py communicator. A group of some of the ranks
is formed by its members alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist
from mpi4py import MPI
from torch.distributed import Store, register_rendezvous_handler  # type: ignore[attr-defined]

from dlscale.base.errors import UsageError
from dlscale.collectives.ring._torch_process_group import NAME, RingGroup
from dlscale.collectives.ring.engine import Ring


class NoStore(Store):
    """Refuses to be used: what ranks have to tell each other goes through the ring.

    A store of one process would do for backend "dlscale" too, but a group of another backend would wait in it for ever.
    """

    def _refuse(self, *_arguments: Any, **_options: Any) -> Any:
        raise UsageError(
            'the method "mpi://" has no store, which only backend "dlscale" can do without; for groups of another '
            "backend give init_process_group a store (FileStore, TCPStore), rank and world_size"
        )

    set = get = add = wait = check = compare_set = delete_key = num_keys = _refuse


SCHEME = "mpi"


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """The ranks of a default group, and how the ring of a communicator is made and used."""

    control: MPI.Intracomm
    join: Callable[[MPI.Intracomm], Ring]
    threads: bool | None
    store: NoStore = field(
        default_factory=NoStore
    )  # kept: torch's C++ holds the half of it that is not Python

    def group(self, options: Any) -> RingGroup:
        """The group of all ranks, or of some. Raises UsageError for ranks that MPI numbers in another way."""
        members = list(options.global_ranks_in_group)  # none for the group of all
        _check_ranks(options.group_rank, options.group_size, members, control=self.control)
        ring = _ring(self.control, members, self.join, name=str(options.group_id))
        return RingGroup(ring, threads=self.threads)


def register(joining: Joining) -> None:
    """Make backend "dlscale" and init method "mpi://" known to torch.

    Raises UsageError if torch knows them already.
    """
    if _is_known():
        raise UsageError(f"torch knows backend {NAME!r} already; register it once per process")
    _make_known(joining)


def form_default_group(joining: Joining) -> Any:
    """Torch's default group over all ranks, whoever made the backend known to torch; collective."""
    if not _is_known():
        _make_known(joining)
    control = joining.control
    dist.init_process_group(
        NAME, store=joining.store, rank=control.Get_rank(), world_size=control.Get_size(), pg_options=joining
    )
    return dist.group.WORLD


def _is_known() -> bool:
    return NAME.upper() in dist.Backend._plugins


def _make_known(joining: Joining) -> None:
    """`joining` is that of groups that are not told another one."""

    def create(options: Any, told: Joining | None) -> RingGroup:
        return (told or joining).group(options)

    def rendezvous(_url: str, **_options: object) -> Iterator[tuple[NoStore, int, int]]:
        yield joining.store, joining.control.Get_rank(), joining.control.Get_size()

    dist.Backend.register_backend(NAME, create, extended_api=True, devices=["cpu"])
    register_rendezvous_handler(SCHEME, rendezvous)  # type: ignore[no-untyped-call]


def _check_ranks(rank: int, size: int, members: Sequence[int], *, control: MPI.Intracomm) -> None:
    expected = (control.Get_rank(), control.Get_size())
    if not members and (rank, size) != expected:
        raise UsageError(
            f"init_process_group got rank {rank} of {size}, but MPI says {expected[0]} of {expected[1]}; "
            f'leave both out and give init_method="{SCHEME}://"'
        )


def _ring(
    control: MPI.Intracomm, members: Sequence[int], join: Callable[[MPI.Intracomm], Ring], *, name: str
) -> Ring:
    """The ring of all ranks, or of `members`, which alone take part in forming it."""
    if not members:
        return join(control)
    everyone = control.Get_group()
    group = everyone.Incl(list(members))
    # Groups may be formed at the same time by ranks that share several: the tag keeps them apart.
    some = control.Create_group(group, tag=zlib.crc32(name.encode()) & 0x7FFF)
    try:
        return join(some)
    finally:
        some.Free()
        group.Free()
        everyone.Free()
