"""The ring under DistributedDataParallel: a second interface of ours, beside the trainer's own buckets."""

from __future__ import annotations

import torch.distributed as dist

from dlscale.collectives import ring
from plain.bench import Bench, Loop
from plain.torch_gloo import ddp


def scripts(bench: Bench) -> dict[str, Loop]:
    """By the hook, and by the process group alone."""
    ring.register_torch_backend(bench.world)
    dist.init_process_group("dlscale", init_method="mpi://")
    return {
        "DDP, torch_hook": ddp(bench, hook=ring.torch_hook(ring.join(bench.world))),
        "DDP, backend dlscale": ddp(bench),
        "DDP, backend dlscale, flat updates": ddp(bench, flat=True),
    }
