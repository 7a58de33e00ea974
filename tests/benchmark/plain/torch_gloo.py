"""torch.distributed over Gloo: DistributedDataParallel around the model."""

from __future__ import annotations

from typing import Any

from torch.nn.parallel import DistributedDataParallel

from dlscale.collectives.training._torch import Update
from plain.bench import Bench, Loop

# What torch recommends to save a copy, and what every backend has here: batch norm's statistics stay local.
RECOMMENDED = {"gradient_as_bucket_view": True, "forward_sync_buffers": False}


def scripts(bench: Bench) -> dict[str, Loop]:
    """Over torch's default process group, which the backend has formed."""
    return {
        "plain": ddp(bench),
        "plain, flat updates": ddp(bench, flat=True),
        "plain, defaults": ddp(bench, options={}),
    }


def ddp(bench: Bench, *, flat: bool = False, hook: Any = None, options: dict[str, Any] | None = None) -> Loop:
    """With `flat` the optimizer sees what ours sees (decision 0008); `hook` carries the buckets."""
    replica = bench.replica()
    (objective,) = replica.objectives
    model = DistributedDataParallel(objective.loss, **(RECOMMENDED if options is None else options))
    if hook:
        model.register_comm_hook(None, hook)
    update = Update(objective).apply if flat else objective.optimizer.step

    def step() -> None:
        model.zero_grad()
        loss = model(*replica.next_batch())
        loss.backward()
        update()

    return Loop(replica=replica, step=step)
