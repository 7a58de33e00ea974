"""Times allreduce between hosts as Python programs call it: Gloo of torch.distributed, and our ring.

    python_ranks.py BYTES ROUNDS WAY ...        as a rank of mpiexec; ways: gloo, ring

Rank 0 prints the same lines of JSON as four_hosts.cpp, the seconds being the maximum over ranks. Sums are checked.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

SIOCGIFADDR = 0x8915

Allreduce = Callable[[NDArray[Any]], None]


def link_address() -> str:
    """The address of this host's link."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        answer = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, struct.pack("256s", b"eth0"))
    return socket.inet_ntoa(answer[20:24])


def gloo(world: MPI.Intracomm) -> Allreduce:
    """All ranks of `world`, joined by Gloo over the hosts' links."""
    import torch
    import torch.distributed as dist

    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    os.environ["MASTER_ADDR"] = world.bcast(link_address())
    os.environ["MASTER_PORT"] = "29500"  # of a host that nobody else is on
    dist.init_process_group("gloo", rank=world.Get_rank(), world_size=world.Get_size())
    return lambda values: dist.all_reduce(torch.from_numpy(values)) and None


def ring(world: MPI.Intracomm) -> Allreduce:
    """The engine that users join."""
    from dlscale.collectives.ring import join

    return join(world).allreduce


WAYS = {"gloo": gloo, "ring": ring}


def check(values: NDArray[Any], expected: NDArray[Any]) -> None:
    """In pieces: memory that is freed between calls is the host's to take back in the midst of the next one."""
    piece = 2**18
    for begin in range(0, len(values), piece):
        np.testing.assert_array_equal(values[begin : begin + piece], expected[begin : begin + piece])


def main() -> int:
    """Every way in every round; the first round is not counted."""
    message_bytes, num_rounds, *ways = sys.argv[1:]
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    calls = {way: WAYS[way](world) for way in ways}
    first = np.arange(int(message_bytes) // 4, dtype=np.float32) % 7
    expected = first * size + size * (size - 1) // 2
    values = np.empty_like(first)
    for round_ in range(-1, int(num_rounds)):
        for way, allreduce in calls.items():
            np.add(first, np.float32(rank), out=values)
            world.Barrier()
            begin = MPI.Wtime()
            allreduce(values)
            seconds = world.allreduce(MPI.Wtime() - begin, MPI.MAX)
            check(values, expected)
            if rank == 0 and round_ >= 0:
                row = {"way": way, "message_bytes": int(message_bytes), "round": round_, "seconds": seconds}
                sys.stdout.write(json.dumps(row) + "\n")
                sys.stdout.flush()
    world.Barrier()
    return 0


if __name__ == "__main__":
    sys.exit(main())
