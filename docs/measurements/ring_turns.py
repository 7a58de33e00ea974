"""Times allreduces of the ring in two builds by turns: the ratio new / old per message size.

    python docs/measurements/ring_turns.py OLD/.venv/bin/python NEW/.venv/bin/python --launches 25

A turn is one launch of 2 ranks of each build, which change places from turn to turn. Each size is called until the
tuner has chosen, then timed: the median over calls of the slower rank. `near`: two ranks of one node, each bound to a
CPU; `far`: the same ranks as two nodes, over MPI. Printed are medians over turns, and the smallest and largest ratio of
a turn. A virtual machine's CPUs move: the time of a barrier tells how far apart they were in a turn.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SIZES = [4**power * 1024 for power in range(2, 10)]  # 16 KiB to 256 MiB
TIMED_SECONDS = 0.6  # per size and launch


def measure(where: str) -> None:
    """On a rank: print the seconds of an allreduce by size, and of a barrier, as JSON on rank 0."""
    import numpy as np
    from mpi4py import MPI

    from dlscale.collectives import ring

    world = MPI.COMM_WORLD
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpus[world.rank % len(cpus)]})
    ranks = ring.join(world, ring.Settings(ranks_per_node=1 if where == "far" else 0))

    def seconds_of(call, num_calls):
        taken = np.empty(num_calls)
        for index in range(num_calls):
            ranks.barrier()
            begin = time.perf_counter()
            call()
            taken[index] = time.perf_counter() - begin
        world.Allreduce(MPI.IN_PLACE, taken, MPI.MAX)
        return taken

    found = {}
    for size in SIZES:
        buffer = np.full(size // 4, 1e-3, np.float32)
        average = lambda buffer=buffer: ranks.allreduce(buffer, "average")  # noqa: E731
        about = float(np.mean(seconds_of(average, 5)))
        for _ in range(min(64, max(24, int(TIMED_SECONDS / 2 / about)))):  # trials of all variants
            average()
        found[size] = float(np.median(seconds_of(average, min(1500, max(15, int(TIMED_SECONDS / about))))))
    barrier = float(np.percentile(seconds_of(ranks.barrier, 2000), 20))
    ranks.close()
    if world.rank == 0:
        print("RESULT", json.dumps([found, barrier]))


def launched(python: Path, where: str) -> tuple[dict[str, float], float]:
    """What a launch of that build's ranks prints."""
    command = [python.parent / "mpiexec", "-n", "2", python, Path(__file__).absolute(), "--measure", where]
    with tempfile.TemporaryDirectory() as folder:  # no checkout's modules are found by accident
        said = subprocess.run(
            [*map(str, command)], stdout=subprocess.PIPE, text=True, check=True, cwd=folder,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        ).stdout  # fmt: skip
    return json.loads(next(line for line in said.splitlines() if line.startswith("RESULT"))[7:])


def main() -> None:
    """Print a table for near and one for far."""
    if sys.argv[1:2] == ["--measure"]:
        return measure(sys.argv[2])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path, help="python of the old build's environment")
    parser.add_argument("new", type=Path, help="python of the new build's environment")
    parser.add_argument("--launches", type=int, default=9, help="turns")
    asked = parser.parse_args()
    pythons = (asked.old.absolute(), asked.new.absolute())  # not resolved: a link names its environment
    for where in ("near", "far"):
        turns = []
        for turn in range(asked.launches):
            order = (0, 1) if turn % 2 == 0 else (1, 0)
            results = {build: launched(pythons[build], where) for build in order}
            turns.append((results[0], results[1]))
        barriers = "  ".join(f"{1e9 * old[1]:.0f}/{1e9 * new[1]:.0f}" for old, new in turns)
        print(f"\n{where}, {asked.launches} turns; barriers of old/new in ns: {barriers}")
        print(f"{'KiB':>8}{'old us':>12}{'new us':>12}{'new/old':>10}{'least':>8}{'most':>8}")
        for size in map(str, SIZES):
            old, new = ([turn[build][0][size] for turn in turns] for build in (0, 1))
            ratios = [b / a for a, b in zip(old, new, strict=True)]
            print(
                f"{int(size) // 1024:8}{1e6 * statistics.median(old):12.1f}{1e6 * statistics.median(new):12.1f}"
                f"{statistics.median(ratios):10.3f}{min(ratios):8.2f}{max(ratios):8.2f}"
            )
    return None


if __name__ == "__main__":
    main()
