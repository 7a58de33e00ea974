"""What every rank of a launch runs: our trainer and the plain scripts in one process, windows taking turns.

mpiexec -n P python rank.py '{"workload": ..., ...}'; rank 0 writes what it found to the file `out`.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from dlscale.benchmarks.rank import affinity
from dlscale.benchmarks.rank.measure import MpiBarrierControl, time_window
from dlscale.collectives.job import split
from dlscale.collectives.registry import connect, preload, serve
from dlscale.models.frameworks import framework_module
from plain.bench import SEED, Bench

NUM_RANKS = 2  # that train; one core and one thread each
WARM_UP_STEPS = 8
TIMED_STEPS = 3  # that tell how many make a window
# Of the change of the weights by one step, which both sides take from the same weights, batches and masks.
MAX_DIFFERENCE = 0.02


def main() -> None:
    """Measure what the command line says; any error ends the launch."""
    orders = json.loads(sys.argv[1])
    affinity.bind(1, num_workers=NUM_RANKS)  # before anything starts a thread
    from mpi4py import MPI

    try:
        run(orders, MPI.COMM_WORLD)
        sys.stdout.flush()
        MPI.Finalize()
    except BaseException:
        traceback.print_exc()
        time.sleep(1)  # another rank's error may be the cause of this one
        MPI.COMM_WORLD.Abort(1)
    os._exit(0)  # TensorFlow's servers never end


def run(orders: dict[str, Any], everyone: Any) -> None:
    """Connect, check, warm up and measure; collective over all ranks."""
    framework, name = orders["framework"], orders["backend"]
    num_servers = everyone.Get_size() - NUM_RANKS
    job = split(everyone, num_servers=num_servers) if num_servers else None
    framework_module(framework).prepare(1)
    preload(name, framework)
    if job and job.is_server:
        serve(name, job=job, framework=framework)
        return
    world = job.workers if job else everyone
    backend = connect(name, control=world, framework=framework, job=job)
    bench = Bench(
        workload=orders["workload"],
        framework=framework,
        preset=orders["preset"],
        backend=backend,
        world=world,
        control=MpiBarrierControl(world, patient=orders["oversubscribed"]),
        job=job,
    )
    ours = backend.distribute(bench.factory(), shard=bench.shard, seed=SEED)
    first = ours.weights()
    scripts = importlib.import_module(f"plain.{framework}_{name}").scripts(bench)
    chosen = dict(list(scripts.items())[: None if orders["explain"] else 1])
    sides: dict[str, Any] = {"ours": ours, **chosen}
    for side in sides.values():
        side.step()
    differences = {key: difference(first, ours.weights(), side.weights()) for key, side in chosen.items()}
    found = measure(sides, bench.control, orders)
    seconds = {key: np.max(world.allgather(own), axis=0).tolist() for key, own in found["seconds"].items()}
    if world.Get_rank() == 0:
        found |= {"seconds": seconds, "differences": differences, "settings": dict(ours.settings())}
        Path(orders["out"]).write_text(json.dumps(found), encoding="utf-8")
    if wrong := {key: value for key, value in differences.items() if not value <= MAX_DIFFERENCE}:
        raise RuntimeError(f"a script and our trainer do not do the same: after one step {wrong}")
    for side in sides.values():
        side.close()
    bench.control.barrier()
    backend.close()


def difference(first: list[Any], ours: list[Any], theirs: list[Any]) -> float:
    """How far two sides are apart after a step from `first`, relative to the step."""

    def norm(some: list[Any], others: list[Any]) -> float:
        return math.sqrt(sum(float(np.sum((a - b) ** 2)) for a, b in zip(some, others, strict=True)))

    return norm(ours, theirs) / norm(ours, first)


def measure(sides: dict[str, Any], control: MpiBarrierControl, orders: dict[str, Any]) -> dict[str, Any]:
    """Rounds of one window of every side, each round in the opposite order of the one before: ABBA."""
    least = math.inf
    for side in sides.values():
        time_window(side, control, phase="warmup", num_steps=WARM_UP_STEPS)
        taken = time_window(side, control, phase="warmup", num_steps=TIMED_STEPS).seconds
        least = min(least, control.maximum(taken) / TIMED_STEPS)
    num_steps = max(1, math.ceil(orders["window_seconds"] / least))
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for pair in range(orders["pairs"]):
        for name in list(sides)[:: -1 if pair % 2 else 1]:
            sides[name].step()  # the caches are another side's
            window = time_window(sides[name], control, phase="steady", num_steps=num_steps)
            seconds[name].append(window.seconds / num_steps)
    return {"steps_per_window": num_steps, "seconds": seconds}


if __name__ == "__main__":
    main()
