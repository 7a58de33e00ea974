"""The MPI server's updates per second against a plain mpi4py master, and what a Downpour worker's step costs.

    mpiexec -n 3 python tests/benchmark/master_rate.py --pairs 8     2 workers, 1 server

Updates: 2 workers push gradients of 10 MB and fetch the weights as fast as they can, once from `mpi_ps` with SGD, once
from a master that receives pickled arrays, subtracts, and sends pickled weights. Required is twice as many. Steps:
HEP-CNN in torch on both workers, Downpour with intervals of 8 steps against training alone. Allowed is 1.05 times as
long. Windows of both ways alternate in one launch, and the ratio is over pairs, with its interval;
on a busy machine that of CPU times is the one to look at.
"""

import argparse
import os
import sys
import time

os.environ.update(OMP_NUM_THREADS="1")

import numpy as np
from mpi4py import MPI

from dlscale.analysis.statistics import block_ratio
from dlscale.collectives.job import split
from dlscale.collectives.mpi_ps.hierarchy import Ranks
from dlscale.collectives.mpi_ps.links import ServerLinks
from dlscale.collectives.mpi_ps.messages import Kind, Mailbox, Message
from dlscale.collectives.mpi_ps.server import Server
from dlscale.collectives.registry import connect, serve
from dlscale.models import load_workload
from dlscale.models.frameworks import framework_module
from dlscale.models.workload import Shard

NUM_ELEMENTS, RATE, UPDATES = 2_621_440, 0.1, 20  # 10 MB; updates of each worker in a window
REQUIRED, ALLOWED = 2.0, 1.05
INTERVAL, STEPS = 8, 16
SGD = {
    "algorithm": "downpour",
    "optimizer": "sgd",
    "rate": RATE,
    "momentum": 0.0,
    "divide_by_staleness": False,
    "num_collected": 1,
}


def ours(job, mailbox, number):
    """Push and fetch over `mpi_ps`."""
    ranks = Ranks(num_workers=job.num_workers, num_servers=job.num_servers)
    if job.is_server:
        Server(mailbox, ranks, rank=job.num_workers + job.index).serve()
        return None
    links = ServerLinks(
        mailbox,
        ranks,
        rank=job.index,
        number=number,
        num_elements=NUM_ELEMENTS,
    )
    weights, gradient = np.zeros(NUM_ELEMENTS, np.float32), np.ones(NUM_ELEMENTS, np.float32)
    links.open(SGD, weights if job.index == 0 else None)
    links.fetch(weights)
    job.workers.Barrier()
    begin = time.perf_counter()
    for _ in range(UPDATES):
        links.push(gradient, count=1)
        links.fetch(weights)
    job.workers.Barrier()
    seconds = time.perf_counter() - begin
    links.end()
    farewell = Message(0).address(Kind.CLOSE, session=-1)
    mailbox.wait(mailbox.send(farewell, job.num_workers), job.num_workers)
    return seconds


def pickled(job):
    """Send and receive arrays as any Python object."""
    weights, gradient = np.zeros(NUM_ELEMENTS, np.float32), np.ones(NUM_ELEMENTS, np.float32)
    everyone = job.everyone
    if job.is_server:
        status = MPI.Status()
        for _ in range(job.num_workers * UPDATES):
            gradient = everyone.recv(source=MPI.ANY_SOURCE, tag=7, status=status)
            weights -= RATE * gradient
            everyone.send(weights, dest=status.Get_source(), tag=7)
        return None
    job.workers.Barrier()
    begin = time.perf_counter()
    for _ in range(UPDATES):
        everyone.send(gradient, dest=job.num_workers, tag=7)
        weights = everyone.recv(source=job.num_workers, tag=7)
    job.workers.Barrier()
    return time.perf_counter() - begin


def rates(job, num_pairs):
    """{pair: updates per second} of both ways."""
    communicator = job.everyone.Dup()
    mailbox = Mailbox(communicator)
    found = ({}, {})
    for pair in range(num_pairs):
        ways = [(0, lambda pair=pair: ours(job, mailbox, pair)), (1, lambda: pickled(job))]
        for place, way in ways if pair % 2 else ways[::-1]:
            seconds = way()
            if seconds:
                found[place][pair] = job.num_workers * UPDATES / seconds
    return found


def steps(job, num_pairs, *, preset, local_batch):
    """{pair: seconds of a step, of the slowest worker} by Downpour and alone, and CPU seconds; none on the server."""
    options = {"fetch_every": INTERVAL, "push_every": INTERVAL, "learning_rate": 1e-4}
    axis = {"algorithm": "downpour", "algorithm_options": options, "framework": "torch"}
    if job.is_server:
        serve("mpi_ps", job=job, **axis)
        return ({}, {}), ({}, {})
    framework_module("torch").prepare(1)
    facts = load_workload("hep_cnn")
    factory = facts.factory(
        framework="torch", preset=preset, local_batch=local_batch, source=facts.input(preset)
    )
    shard = Shard(index=job.index, count=job.num_workers)
    backends = [
        connect("mpi_ps", control=job.workers, job=job, **axis),
        connect("none", control=job.workers, framework="torch"),
    ]
    trainers = [backend.distribute(factory, shard=shard, seed=3) for backend in backends]
    found, spent = ({}, {}), ({}, {})
    for pair in range(-1, num_pairs):  # the first pays for what is made once
        for place in (0, 1) if pair % 2 else (1, 0):
            job.workers.Barrier()
            begin, cpu = time.perf_counter(), time.process_time()
            for _ in range(STEPS):
                trainers[place].step()
            taken = time.perf_counter() - begin, time.process_time() - cpu
            for clock, seconds in zip((found, spent), taken, strict=True):
                slowest = job.workers.allreduce(seconds, op=MPI.MAX) / STEPS
                if pair >= 0:
                    clock[place][pair] = slowest
    for trainer in trainers:
        trainer.close()
    for backend in backends:
        backend.close()
    return found, spent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--batch", type=int, default=16)
    given = parser.parse_args()
    job = split(MPI.COMM_WORLD, num_servers=1)
    updates = rates(job, given.pairs)
    seconds, cpu = steps(job, given.pairs, preset=given.preset, local_batch=given.batch)
    if MPI.COMM_WORLD.Get_rank():
        return 0
    for name, (one, other), unit in (
        ("updates", updates, "updates/s"),
        ("step", seconds, "s"),
        ("CPU of a step", cpu, "s"),
    ):
        ratio = block_ratio(one, other)
        print(
            f"{name}: {np.median([*one.values()]):.4g} and {np.median([*other.values()]):.4g} {unit}, ",
            end="",
        )
        print(f"ratio {ratio.center:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]")
    rate, cost = block_ratio(*updates), block_ratio(*seconds)
    return int(rate.high < REQUIRED or cost.low > ALLOWED)


if __name__ == "__main__":
    sys.exit(main())
