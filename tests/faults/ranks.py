"""What the ranks of the fault tests do: python ranks.py <folder> <scenario> [settings as JSON].

A rank tells of itself in <folder>/<rank>.jsonl, a line per event, and ends without MPI's blessing: after a
fault MPI_Finalize may wait for ever.
"""

import ctypes
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

import numpy as np
from mpi4py import MPI

from dlscale.benchmarks.rank.gates import update_gates
from dlscale.collectives import ring
from dlscale.collectives.job import split
from dlscale.collectives.registry import connect, serve
from dlscale.models.workload import NUM_DRAWN, Shard, counted

WORLD = MPI.COMM_WORLD
# Elements; and what a path needs of the settings.
SIZES = {
    "inline": 4,
    "one_shot": 3_000,
    "staged": 500_000,
    "single_copy": 500_000,
    "push": 500_000,
    "network": 100_000,
    "nodes": 200_000,
}
NEEDS = {"staged": {"single_copy": False}, "network": {"ranks_per_node": 1}, "nodes": {"ranks_per_node": 2}}


RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK")


class Diary:
    def __init__(self, folder):
        rank = next(os.environ[name] for name in RANK_VARIABLES if name in os.environ)
        self._file = (Path(folder) / f"{rank}.jsonl").open("w")

    def __call__(self, event, **more):
        self._file.write(json.dumps({"event": event, "time": time.monotonic(), **more}) + "\n")
        self._file.flush()


def reduce_for_ever(say, path, **settings):
    """Allreduces of one kind until something goes wrong; `ready` after the first few, then a beat now and then."""
    ranks = ring.join(WORLD, ring.Settings(**NEEDS.get(path, {}), **settings))
    try:
        _reduce(say, ranks, path)
    except Exception:
        ranks.close()  # waits for nobody
        raise


def _reduce(say, ranks, path):
    count = SIZES[path]
    buffer = ranks.empty(count) if path == "push" else np.empty(count, np.float32)
    num_done, next_beat = 0, 0.0
    while True:
        buffer[:] = ranks.rank + num_done % 100
        ranks.allreduce(buffer)
        expected = sum(range(ranks.size)) + ranks.size * (num_done % 100)
        if not (buffer == expected).all():
            raise AssertionError(f"wrong sum in operation {num_done}")
        num_done += 1
        if num_done == 20:
            say("ready")
        if num_done > 20 and time.monotonic() > next_beat:
            say("beat", num_done=num_done)
            next_beat = time.monotonic() + 0.05


def leave_early(say, how, **settings):
    """The last rank goes away after a while, in a normal way."""
    ranks = ring.join(WORLD, ring.Settings(**settings))
    buffer = np.ones(10_000, np.float32)
    for _ in range(20):
        ranks.allreduce(buffer)
    say("ready")
    if ranks.rank == ranks.size - 1:
        if how == "exit":
            os._exit(0)
        try:
            ranks.allreduce(buffer[::2])  # refused by this rank alone, which goes on living
        except ValueError:
            say("refused")
        time.sleep(3600)
    ranks.allreduce(buffer)
    say("went on")


def join_alone(say):
    _refusal(say, lambda: ring.join(WORLD))


def _refusal(say, call):
    """Tell what `call` raised; it must raise."""
    try:
        call()
    except Exception as error:
        say("refused", kind=type(error).__name__, text=str(error))
    else:
        raise AssertionError("nothing was refused")


def too_much(say):
    ranks = ring.join(WORLD)
    _refusal(say, lambda: ranks.empty(2**44))
    ranks.barrier()


def closed_to_others(say):
    """Ranks that may not look into each other's /proc: of a user without rights, and not dumpable."""
    if os.geteuid() == 0:
        os.setresuid(65534, 65534, 65534)
    PR_SET_DUMPABLE = 4  # noqa: N806
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    _refusal(say, lambda: ring.join(WORLD))


class _Replica:
    """Weights whose gradients are half of themselves and the rank's own number."""

    framework = "torch"  # asked for, but not needed by servers

    def __init__(self, index):
        self._weights, self._index = [np.ones(500_000, np.float32)], index

    def weights(self):
        return [weight.copy() for weight in self._weights]

    def gradients(self):
        return [weight / 2 + self._index for weight in self._weights]

    def load(self, weights):
        self._weights = [weight.copy() for weight in weights]

    def losses(self):
        return [0.0]

    def state(self):
        return {NUM_DRAWN: counted(0)}

    def restore(self, state):
        """Weights are the servers'."""


def train_over_server(say, masters=0):
    """By Downpour SGD, for ever; the last ranks serve. With masters, gates and one worker's steps come before."""
    job = split(WORLD, num_servers=1 + masters)
    axis = {"algorithm": "downpour", "algorithm_options": {"learning_rate": 1e-6, "masters": masters}}
    if job.is_server:
        say("ready")
        serve("mpi_ps", job=job, framework="torch", **axis)
        return
    backend = connect("mpi_ps", control=job.workers, job=job, framework="torch", **axis)
    shard = Shard(index=job.index, count=job.num_workers)

    def factory(**_):
        return _Replica(job.index)

    if masters:
        gates = update_gates(backend, factory, control=job.workers, shard=shard, seed=0, precision="fp32")
        say("gates", passed=[gate.passed for gate in gates])
    trainer = backend.distribute(factory, shard=shard, seed=0)
    if masters:
        say("compared", equal=_equals_plain_sgd(trainer, job))
    next_beat = 0.0
    while True:
        trainer.step()
        if time.monotonic() > next_beat:
            say("beat")
            next_beat = time.monotonic() + 0.05


def _equals_plain_sgd(trainer, job):
    """Whether the first worker's steps, while the others wait, change the weights as in a process alone."""
    expected = _Replica(0)
    if job.index == 0:
        for _ in range(3):
            trainer.step()
            (weight,), (gradient,) = expected.weights(), expected.gradients()
            expected.load([weight - np.float32(1e-6) * gradient])
    job.workers.Barrier()
    equal = job.index > 0 or np.array_equal(trainer.weights()[0], expected.weights()[0])
    job.workers.Barrier()
    return bool(equal)


SCENARIOS = {
    name: value for name, value in list(globals().items()) if callable(value) and not name.startswith("_")
}


def main():
    folder, scenario, *rest = sys.argv[1:]
    say = Diary(folder)
    say("hello", pid=os.getpid())
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # MPICH's launcher sends it to the mates of a dead rank
    try:
        SCENARIOS[scenario](say, **json.loads(rest[0]) if rest else {})
        say("end")
    except BaseException as error:
        say("error", kind=type(error).__name__, text=str(error), trace=traceback.format_exc())
    os._exit(0)


if __name__ == "__main__":
    main()
