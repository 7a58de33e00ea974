"""The ways in which torch's gradients can travel over the ring, beside Gloo, MPI and no exchange at all.

MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=-1 mpiexec -n 2 python tests/benchmark/torch_ways.py resnet50 --batch 1

Every rank has one core and one thread. All ways run in one process, a few steps of each per round, in an order drawn by
lot. A round's time is the slowest rank's; a way's cost is the median over rounds of its time minus that of `none`.
"""

import argparse
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch.distributed as dist
from mpi4py import MPI
from torch.distributed import FileStore  # type: ignore[attr-defined]
from torch.nn.parallel import DistributedDataParallel

from dlscale.collectives import ring
from dlscale.collectives.buffers import aligned_zeros
from dlscale.collectives.mpi.collective import MpiCollective
from dlscale.collectives.torch_distributed._torch import DdpExchange
from dlscale.collectives.training import _torch_buckets
from dlscale.collectives.training._torch import TorchTrainer, alone
from dlscale.collectives.training.communication import Training
from dlscale.models import load_workload
from dlscale.models.frameworks import framework_module
from dlscale.models.workload import Input, Shard

WORLD = MPI.COMM_WORLD


class OrdinaryMemory:
    """A ring whose buckets lie in memory that is not shared."""

    def __init__(self) -> None:
        self._ring = ring.join(WORLD)
        self.rank, self.size = self._ring.rank, self._ring.size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ring, name)

    def empty(self, count: int, dtype: str = "float32") -> Any:
        return aligned_zeros(count, dtype)


class BarrierOnly(OrdinaryMemory):
    """Copies into the buckets and waiting for the others are what is left."""

    def allreduce(self, _buffer: Any, _op: str = "sum") -> None:
        self._ring.barrier()


def over_buckets(replica: Any, collective: Any, **options: Any) -> TorchTrainer:
    return _torch_buckets.over(replica, [collective], Training(**options))


def over_ddp(replica: Any, group: Any, hook: Any = None) -> TorchTrainer:
    exchanges = [
        DdpExchange(objective, bucket_cap_mb=25, process_group=group) for objective in replica.objectives
    ]
    for exchange in exchanges:
        if hook and isinstance(exchange.loss, DistributedDataParallel):
            exchange.loss.register_comm_hook(None, hook)  # type: ignore[no-untyped-call]
    return TorchTrainer(replica, exchanges)


WAYS: dict[str, Callable[[Any], TorchTrainer]] = {
    "none": alone,
    "buckets": lambda replica: over_buckets(replica, ring.join(WORLD)),
    "buckets-ordinary": lambda replica: over_buckets(replica, OrdinaryMemory()),
    "buckets-barrier": lambda replica: over_buckets(replica, BarrierOnly()),
    "buckets-pipelined": lambda replica: over_buckets(replica, ring.join(WORLD), pipelined=True),
    "hook": lambda replica: over_ddp(replica, dist.group.WORLD, ring.torch_hook(ring.join(WORLD))),
    "dlscale": lambda replica: over_ddp(replica, dist.new_group(backend="dlscale")),
    "gloo": lambda replica: over_ddp(replica, dist.group.WORLD),
    "mpi": lambda replica: over_buckets(replica, MpiCollective(WORLD)),
}


def main() -> None:
    arguments = read_arguments()
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[WORLD.rank % len(cores)]})
    framework_module("torch").prepare(1)
    folder = form_groups()
    factory = load_workload(arguments.workload).factory(
        framework="torch", preset=arguments.preset, local_batch=arguments.batch, source=Input()
    )
    shard = Shard(index=WORLD.rank, count=WORLD.size)
    trainers = {way: WAYS[way](factory(shard=shard, seed=1)) for way in arguments.ways.split(",")}
    seconds = measure(trainers, num_rounds=arguments.rounds, num_steps=arguments.steps)
    if WORLD.rank == 0:
        name = f"{arguments.workload} {arguments.preset}, {arguments.batch} samples, {WORLD.size} ranks"
        print(f"{name}: ms per step")
        for way, found in seconds.items():
            cost = np.median(found - seconds["none"]) if "none" in seconds else float("nan")
            print(
                f"  {way:18} least {found.min():8.2f}  median {np.median(found):8.2f}  minus none {cost:+8.2f}"
            )
    dist.destroy_process_group()
    WORLD.Barrier()
    if WORLD.rank == 0:
        shutil.rmtree(folder)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("workload")
    parser.add_argument("--preset", default="small")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--ways", default="none,buckets,hook,dlscale,gloo,mpi")
    return parser.parse_args()


def form_groups() -> str:
    """The group of all over Gloo, on this machine; backend "dlscale" beside it. Returns the folder of its store."""
    ring.register_torch_backend()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    folder: str = WORLD.bcast(tempfile.mkdtemp() if WORLD.rank == 0 else None)
    store = FileStore(f"{folder}/store", WORLD.size)
    dist.init_process_group("gloo", store=store, rank=WORLD.rank, world_size=WORLD.size)
    return folder


def measure(trainers: dict[str, TorchTrainer], *, num_rounds: int, num_steps: int) -> dict[str, Any]:
    """Milliseconds per step of the slowest rank, (num_rounds,) per way."""
    for trainer in trainers.values():
        for _ in range(4):  # DistributedDataParallel forms its buckets in the second
            trainer.step()
    seconds: dict[str, list[float]] = {way: [] for way in trainers}
    lot = random.Random(5)  # noqa: S311  # the same on all ranks
    for _ in range(num_rounds):
        for way in lot.sample(list(trainers), len(trainers)):
            WORLD.Barrier()
            begin = time.perf_counter()
            for _ in range(num_steps):
                trainers[way].step()
            trainers[way].synchronize()
            seconds[way].append((time.perf_counter() - begin) / num_steps)
    return {way: 1e3 * np.max(WORLD.allgather(found), axis=0) for way, found in seconds.items()}


if __name__ == "__main__":
    main()
