"""Steps of the networks on one core, and exchanges of two ranks."""

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

WORKLOADS, FRAMEWORKS = ("hep_cnn", "cosmogan", "resnet50", "gpt"), ("torch", "tensorflow")
EXCHANGES = ("ring", "mpi", "gloo")
VARIABLES = {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "-1"}


class Network:
    """A training step of preset `small` on resident tensors, one thread, no exchange."""

    params = tuple("-".join(case) for case in product(WORKLOADS, FRAMEWORKS))
    param_names = ("network",)
    number, repeat, warmup_time = 1, 20, 2.0

    def setup(self, network: str) -> None:
        os.environ.update(VARIABLES)
        from dlscale.collectives.registry import connect
        from dlscale.models import load_workload
        from dlscale.models.frameworks import framework_module
        from dlscale.models.workload import Input, Shard

        workload, framework = network.split("-")
        framework_module(framework).prepare(1)
        facts = load_workload(workload)
        preset = facts.preset("small")
        factory = facts.factory(
            framework=framework, preset=preset.name, local_batch=preset.local_batch, source=Input()
        )
        backend = connect("none", control=None, framework=framework)
        self.trainer = backend.distribute(factory, shard=Shard(), seed=1)

    def time_step(self, network: str) -> None:  # noqa: ARG002
        self.trainer.step()
        self.trainer.synchronize()


class Exchange:
    """An allreduce of 25 MiB on 2 ranks, a core each: the median over 40 calls of the slowest rank."""

    params = EXCHANGES
    param_names = ("backend",)

    def track_allreduce_milliseconds(self, backend: str) -> float:
        words = (Path(sys.prefix) / "bin" / "mpiexec", "-n", "2", sys.executable, __file__, backend)
        done = subprocess.run(
            [str(word) for word in words],
            env=os.environ | VARIABLES,
            check=True,
            capture_output=True,
            text=True,
        )
        return float(json.loads(done.stdout))

    track_allreduce_milliseconds.unit = "ms"


def main() -> None:
    """One rank of `Exchange`."""
    import numpy as np
    from mpi4py import MPI

    from dlscale.collectives.registry import connect

    world = MPI.COMM_WORLD
    backend = connect(sys.argv[1], control=world)
    communicator, buffer, seconds = backend.collective(), np.zeros(25 * 2**18, dtype=np.float32), []
    for _ in range(50):
        world.Barrier()
        begin = MPI.Wtime()
        communicator.allreduce(buffer)
        seconds.append(world.allreduce(MPI.Wtime() - begin, MPI.MAX))
    if world.Get_rank() == 0:
        print(json.dumps(1e3 * float(np.median(seconds[10:]))))
    backend.close()


if __name__ == "__main__":
    main()
