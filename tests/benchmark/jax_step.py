"""Steps of HEP-CNN in JAX against torch over the ring, in turns: other programs on the machine slow both alike.

mpiexec -n 2 .venv/bin/python tests/benchmark/jax_step.py small 8     preset, and steps of each turn
"""

import statistics
import sys
import time

from mpi4py import MPI

from dlscale.collectives.registry import connect
from dlscale.models import load_workload
from dlscale.models.frameworks import framework_module
from dlscale.models.workload import Input, Shard

FRAMEWORKS = ("torch", "jax")
NUM_TURNS = 8


def trainer_of(framework, preset, world):
    """A trainer over the ring after its first steps; 2 samples per rank."""
    framework_module(framework).prepare(1)
    factory = load_workload("hep_cnn").factory(
        framework=framework, preset=preset, local_batch=2, source=Input()
    )
    backend = connect("ring", control=world, framework=framework)
    trainer = backend.distribute(factory, shard=Shard(index=world.Get_rank(), count=world.Get_size()), seed=1)
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
    trainers = [trainer_of(framework, preset, world) for framework in FRAMEWORKS]
    turns = [[take(trainer, num_steps, world) for trainer in trainers] for _ in range(NUM_TURNS)]
    if world.Get_rank() == 0:
        torch, jax = map(statistics.median, zip(*turns, strict=True))
        ratio = statistics.median(jax / torch for torch, jax in turns)
        print(
            f"{preset}, {world.Get_size()} ranks: torch {torch:.2f} ms, jax {jax:.2f} ms, ratio {ratio:.2f}"
        )


if __name__ == "__main__":
    main()
