"""A short training over Horovod with its own timeline on, which nobody times.

    mpiexec -n P python -m dlscale.benchmarks.rank.timeline REQUEST

REQUEST is JSON (`TimelineRequest`). Rank 0's Horovod writes the file.
"""

from __future__ import annotations

import sys

from pydantic import PositiveInt

from dlscale.base.definitions import Frozen
from dlscale.benchmarks.records.record import Setting
from dlscale.collectives.registry import connect
from dlscale.models import load_workload
from dlscale.models.frameworks import framework_module
from dlscale.models.workload import Input, Shard


class TimelineRequest(Frozen):
    """What to train; on resident tensors."""

    workload: str
    framework: str
    preset: str
    num_steps: PositiveInt
    options: dict[str, Setting]  # of the backend, the timeline's file among them


def main() -> None:
    """Train as the command line says; collective."""
    from mpi4py import MPI

    request = TimelineRequest.model_validate_json(sys.argv[1])
    world = MPI.COMM_WORLD
    framework_module(request.framework).prepare(1)
    preset = load_workload(request.workload).preset(request.preset)
    factory = load_workload(request.workload).factory(
        framework=request.framework, preset=preset.name, local_batch=preset.local_batch, source=Input()
    )
    backend = connect("horovod", control=world, framework=request.framework, options=request.options)
    shard = Shard(index=world.Get_rank(), count=world.Get_size())
    trainer = backend.distribute(factory, shard=shard, seed=1)
    for _ in range(request.num_steps):
        trainer.step()
    trainer.synchronize()
    trainer.close()
    backend.close()  # Horovod finishes the file when it ends


if __name__ == "__main__":
    main()
