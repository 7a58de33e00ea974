"""Training steps of one workload over several backends and shards, in turns in one launch.

    mpiexec -n 2 python -m tests.benchmark.in_turns gpt:small torch ring:none ring:optimizer

Every rank has a trainer for each BACKEND:SHARD and a core of its own. A turn is a few steps, from a barrier to the end
of the slowest rank; who comes next is drawn by lot. Printed are medians, and of the ratios to the first one of
the same round their median with a 95 % interval, which is two of the ratios.
"""

from __future__ import annotations

import argparse
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from mpi4py import MPI
from scipy import stats

from dlscale.collectives.registry import connect
from dlscale.models import load_workload
from dlscale.models.frameworks import framework_module
from dlscale.models.workload import Input, Shard

WARM_UP_STEPS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("workload", help="WORKLOAD:PRESET")
    parser.add_argument("framework")
    parser.add_argument("compared", nargs="+", metavar="BACKEND:SHARD")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=4, help="of a turn")
    asked = parser.parse_args()
    world = MPI.COMM_WORLD
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[world.rank % len(cores)]})
    framework_module(asked.framework).prepare(1)
    name, _, preset = asked.workload.partition(":")
    workload = load_workload(name)
    facts = workload.preset(preset or None)
    factory = workload.factory(
        framework=asked.framework, preset=facts.name, local_batch=facts.local_batch, source=Input()
    )
    shard = Shard(index=world.rank, count=world.size)
    trainers = {}
    for each in asked.compared:
        backend, _, sharded = each.partition(":")
        connected = connect(backend, control=world, framework=asked.framework, shard=sharded or "none")
        trainers[each] = connected.distribute(factory, shard=shard, seed=1)
        for _ in range(WARM_UP_STEPS):
            trainers[each].step()
    seconds: dict[str, list[float]] = {each: [] for each in trainers}
    lot = np.random.default_rng(1)  # the same on all ranks
    for _ in range(asked.rounds):
        for each in lot.permutation(list(trainers)):
            world.Barrier()
            begin = time.perf_counter()
            for _ in range(asked.steps):
                trainers[each].step()
            trainers[each].synchronize()
            taken = (time.perf_counter() - begin) / asked.steps
            seconds[each].append(world.allreduce(taken, op=MPI.MAX))
    if world.rank:
        return
    first, low = asked.compared[0], int(stats.binom.ppf(0.025, asked.rounds, 0.5))
    for each, found in seconds.items():
        ratios = np.sort(np.divide(found, seconds[first]))
        print(
            f"{each}: {1e3 * np.median(found):.2f} ms; to {first} {np.median(ratios):.3f} "
            f"[{ratios[low - 1]:.3f}, {ratios[-low]:.3f}]"
        )


if __name__ == "__main__":
    main()
