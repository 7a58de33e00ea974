"""The pieces that a node may be cut into: NUMA domains, sockets, or every so many ranks.

Ranks of a piece share memory; pieces exchange as nodes do, by messages. So between two domains two messages' worth
crosses in all, and not two for each rank of a domain. Domains are those of /sys, and ranks must be bound to them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from dlscale.base.errors import UsageError

SYSTEM = Path("/sys/devices/system")
DOMAINS = ("", "numa", "socket")


def piece_here(
    control: Any, *, ranks_per_node: int = 0, domains: str = "", system: Path = SYSTEM
) -> tuple[int, int]:
    """This rank's machine, known by its first rank, and the number of its piece there; collective.

    Raises UsageError on all ranks if `domains` are asked for and a rank is not bound to one.
    """
    from mpi4py import MPI

    machine = control.Split_type(MPI.COMM_TYPE_SHARED, key=control.Get_rank())
    try:
        first, local_rank = machine.bcast(control.Get_rank()), machine.Get_rank()
    finally:
        machine.Free()
    if ranks_per_node:
        return first, local_rank // ranks_per_node
    if not domains:
        return first, 0
    everyones = control.allgather(domain_of(os.sched_getaffinity(0), domains, system))
    if None in everyones:
        raise UsageError(
            f"option domains is {domains!r}, but rank {everyones.index(None)} may run on CPUs of several; bind each "
            "rank to the CPUs of one (srun --cpu-bind=ldoms, mpiexec -bind-to numa), or leave the option out"
        )
    return first, everyones[control.Get_rank()]


def domain_of(cpus: set[int], kind: str, system: Path = SYSTEM) -> int | None:
    """The number of the domain that has all of `cpus`; None if they are of several."""
    numbers = (
        {_socket_of(cpu, system) for cpu in cpus} if kind == "socket" else _numa_domains_of(cpus, system)
    )
    return numbers.pop() if len(numbers) == 1 else None


def num_numa_domains(system: Path = SYSTEM) -> int:
    """NUMA domains of this machine that have CPUs; 1 where the kernel knows none."""
    return max(sum(bool(cpus) for cpus in _numa_domains(system).values()), 1)


def _socket_of(cpu: int, system: Path) -> int:
    return int(
        (system / "cpu" / f"cpu{cpu}" / "topology" / "physical_package_id").read_text(encoding="utf-8")
    )


def _numa_domains_of(cpus: set[int], system: Path) -> set[int]:
    domains = _numa_domains(system)
    return {number for number, own in domains.items() if own & cpus} if domains else {0}


def _numa_domains(system: Path) -> dict[int, set[int]]:
    lists = {int(path.name[len("node") :]): path / "cpulist" for path in system.glob("node/node[0-9]*")}
    return {number: _read_list(path.read_text(encoding="utf-8")) for number, path in lists.items()}


def _read_list(text: str) -> set[int]:
    """CPUs as the kernel lists them: 0-3,8."""
    spans = [span.split("-") for span in text.strip().split(",") if span]
    return {cpu for span in spans for cpu in range(int(span[0]), int(span[-1]) + 1)}
