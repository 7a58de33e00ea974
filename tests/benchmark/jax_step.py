"""Steps of HEP-CNN in JAX against torch over the ring, in turns: other programs on the machine slow all alike.

JAX trains as dlscale has it, by two programs with the exchange between them. With the word `callback` it does so once
more by one program that calls back for the exchange; of `small` on 2 ranks that stood still (JAX 0.10.2).

mpiexec -n 2 .venv/bin/python tests/benchmark/jax_step.py small 8             preset, and steps of each turn
mpiexec -n 2 .venv/bin/python tests/benchmark/jax_step.py tiny 20 callback
"""

import statistics
import sys
import time

import jax
import numpy as np
from jax.experimental import io_callback
from mpi4py import MPI

from dlscale.collectives.registry import connect
from dlscale.collectives.training._jax_buckets import BucketTrainer
from dlscale.models import load_workload
from dlscale.models.frameworks import framework_module
from dlscale.models.workload import Input, Shard

PROGRAMS = ("torch", "jax")
CALLBACK = "jax by callback"
NUM_TURNS = 8


class CallbackTrainer(BucketTrainer):
    """One program per step, which calls back with its gradients and goes on with their averages."""

    def __init__(self, trainer):
        super().__init__(trainer._replica, trainer._collective)
        functions = self._replica._functions

        def stepped(weights, slots, remembered, rate, *batch):
            loss, gradients, after = functions._gradients_of(weights, remembered, *batch)
            shapes = [jax.ShapeDtypeStruct(gradient.shape, gradient.dtype) for gradient in gradients]
            averages = io_callback(self._exchange, shapes, gradients, ordered=True)
            return loss, *functions._updated(weights, slots, rate, averages), after

        self._stepped = jax.jit(stepped, donate_argnums=(0, 1, 2))

    def _exchange(self, gradients):
        for piece, gradient in zip(self._pieces, gradients, strict=True):
            piece[:] = np.asarray(gradient).reshape(-1)
        self._collective.allreduce(self._bucket, "average")
        return [
            piece.reshape(gradient.shape) for piece, gradient in zip(self._pieces, gradients, strict=True)
        ]

    def step(self):
        """Train on one local batch."""
        own = self._replica
        loss, own._weights, own._slots, own._remembered = self._stepped(
            own._weights, own._slots, own._remembered, own._rate, *own.next_batch()
        )
        self._losses = [loss]


def trainer_of(program, preset, world):
    """A trainer over the ring after its first steps; 2 samples per rank."""
    framework = program.split()[0]
    framework_module(framework).prepare(1)
    factory = load_workload("hep_cnn").factory(
        framework=framework, preset=preset, local_batch=2, source=Input()
    )
    backend = connect("ring", control=world, framework=framework)
    trainer = backend.distribute(factory, shard=Shard(index=world.Get_rank(), count=world.Get_size()), seed=1)
    if program == CALLBACK:
        trainer = CallbackTrainer(trainer)
    take(trainer, 5, world)
    return trainer


def take(trainer, num_steps, world):
    """Milliseconds per step, of the slowest rank."""
    world.Barrier()
    begin = time.perf_counter()
    for _ in range(num_steps):
        trainer.step()
    trainer.synchronize()
    return world.allreduce(1e3 * (time.perf_counter() - begin) / num_steps, MPI.MAX)


def main():
    """Medians of the turns, and that of their ratios."""
    world, preset, num_steps = MPI.COMM_WORLD, sys.argv[1], int(sys.argv[2])
    programs = [*PROGRAMS, *([CALLBACK] if sys.argv[3:] == ["callback"] else [])]
    trainers = [trainer_of(program, preset, world) for program in programs]
    turns = [[take(trainer, num_steps, world) for trainer in trainers] for _ in range(NUM_TURNS)]
    if world.Get_rank() == 0:
        for place, program in enumerate(programs):
            ratio = statistics.median(turn[place] / turn[0] for turn in turns)
            milliseconds = statistics.median(turn[place] for turn in turns)
            print(f"{preset}, {world.Get_size()} ranks: {program} {milliseconds:.2f} ms, {ratio:.2f} x torch")


if __name__ == "__main__":
    main()
