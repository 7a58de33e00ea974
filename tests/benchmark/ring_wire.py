"""What bfloat16 on the wire costs or saves against float32, in one process, by turns; not a test.

    mpiexec -n 2 python tests/benchmark/ring_wire.py                       one node, shared memory
    mpiexec -n 2 python tests/benchmark/ring_wire.py --ranks-per-node 1    messages of the MPI
    python tests/network/hosts.py --hosts 4 python tests/benchmark/ring_wire.py     four hosts with 1 Gbit/s links

Seconds are the most over ranks; printed are the least and the median over rounds, and the ratio of the least to
float32's.
"""

from __future__ import annotations

import argparse
import statistics

import numpy as np
from mpi4py import MPI

from dlscale.base.quantities import format_size, parse_sizes
from dlscale.collectives import ring

WAYS = {
    "float32": {},
    "bfloat16": {"wire": "bfloat16", "error_feedback": False},
    "bfloat16 with error feedback": {"wire": "bfloat16"},
}


def main() -> None:
    """Every way in every round; the first round is not counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="1MiB,25MiB")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--ranks-per-node", type=int, default=0)
    arguments = parser.parse_args()
    world = MPI.COMM_WORLD
    rings = {
        name: ring.join(world, ring.Settings(ranks_per_node=arguments.ranks_per_node, **settings))
        for name, settings in WAYS.items()
    }
    for size in parse_sizes(arguments.sizes):
        buffer = np.zeros(size // 4, dtype=np.float32)
        seconds: dict[str, list[float]] = {name: [] for name in rings}
        for number in range(arguments.rounds + 1):
            for name, joined in rings.items():
                buffer[:] = 1.0
                world.Barrier()
                begin = MPI.Wtime()
                joined.allreduce(buffer, "average", bucket=0)
                slowest = world.allreduce(MPI.Wtime() - begin, MPI.MAX)
                if number:
                    seconds[name].append(slowest)
        if world.Get_rank() == 0:
            for name, found in seconds.items():
                least, median = min(found) * 1e3, statistics.median(found) * 1e3
                ratio = min(found) / min(seconds["float32"])
                print(
                    f"{format_size(size):>8}  {name:30} {least:9.3f} ms {median:9.3f} ms  x{ratio:.2f}",
                    flush=True,
                )
    for joined in rings.values():
        joined.close()


if __name__ == "__main__":
    main()
