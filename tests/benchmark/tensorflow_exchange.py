"""What the exchange of gradients costs a TensorFlow step, by each way there is: docs/decisions/0009.

mpiexec -n 2 python tests/benchmark/tensorflow_exchange.py [WORKLOAD] [--preset paper] [--step]

Without --step, gradients are made by one multiplication and used by one subtraction, so that nothing but memory and
the exchange takes time. With --step they come from training on one sample. One core per rank; the ways take turns in
random order, the same on all ranks; a time is that of the slowest rank.
"""

import argparse
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from mpi4py import MPI

from dlscale.benchmarks.rank import affinity
from dlscale.collectives import ring
from dlscale.collectives.mpi.collective import MpiCollective
from dlscale.collectives.training import _tensorflow_native as native
from dlscale.collectives.training._tensorflow import NoExchange, TensorFlowTrainer
from dlscale.collectives.training._tensorflow_buckets import NumpyExchange
from dlscale.models import load_workload
from dlscale.models.frameworks import framework_module
from dlscale.models.workload import Input, Shard


def exchanges(replica, collectives):
    """Way -> the exchange; `operation/512` is the operation with 512 KiB of staging."""
    found = {"none": NoExchange()}
    for name, collective in collectives.items():
        found[f"{name} numpy_function"] = NumpyExchange(replica, collective)
        for kib in (128, 512, 2048, 25600):
            native._staging_bytes = lambda _, kib=kib: kib << 10
            found[f"{name} operation/{kib}"] = native.NativeExchange([collective], threads=False)
    return found


def only_memory(replica, exchange):
    """A step that makes gradients by a multiplication and uses them by a subtraction."""
    variables = [variable for objective in replica.objectives for variable in objective.parameters]

    @tf.function
    def step():
        means = exchange.average([variable * 1e-3 for variable in variables])
        for variable, mean in zip(variables, means, strict=True):
            variable.assign_sub(mean)

    return step


def race(steps, world, *, seconds):
    """Seconds of each way, of the slowest rank."""
    for step in steps.values():
        for _ in range(3):
            step()
    found = {name: [] for name in steps}
    chance = np.random.default_rng(1)
    end = time.perf_counter() + seconds
    while world.bcast(time.perf_counter() < end):
        for name in chance.permutation(list(steps)):
            steps[name]()  # the step before left the caches to another way
            world.Barrier()
            begin = time.perf_counter()
            steps[name]()
            found[name].append(world.allreduce(time.perf_counter() - begin, op=MPI.MAX))
    return {name: np.array(times) for name, times in found.items()}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workload", nargs="?", default="cosmogan")
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--step", action="store_true", help="Train, instead of only moving memory.")
    arguments = parser.parse_args()
    world = MPI.COMM_WORLD
    affinity.bind(1)  # before TensorFlow has started a thread
    framework_module("tensorflow").prepare(1)
    factory = load_workload(arguments.workload).factory(
        framework="tensorflow", preset=arguments.preset, local_batch=1, source=Input()
    )
    replica = factory(shard=Shard(), seed=1)
    collectives = {"ring": ring.join(world), "mpi": MpiCollective(world)}
    ways = exchanges(replica, collectives)
    make = (lambda r, e: TensorFlowTrainer(r, e).step) if arguments.step else only_memory
    times = race({name: make(replica, way) for name, way in ways.items()}, world, seconds=arguments.seconds)
    if world.Get_rank() == 0:
        num_bytes = sum(weight.nbytes for weight in replica.weights())
        print(f"{arguments.workload} {arguments.preset}: {num_bytes / 1e6:.1f} MB, {world.Get_size()} ranks")
        print(f"{'way':24} {'best':>8} {'median':>8}   ms; median of what it takes beyond none")
        for name, found in times.items():
            beyond = np.median(found - times["none"])
            print(f"{name:24} {found.min() * 1e3:8.2f} {np.median(found) * 1e3:8.2f}   {beyond * 1e3:8.2f}")
    for way in ways.values():
        way.close()
    for collective in collectives.values():
        collective.close()


if __name__ == "__main__":
    main()
