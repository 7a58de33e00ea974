"""Horovod in torch: the loop of its own synthetic benchmark (examples/pytorch/pytorch_synthetic_benchmark.py).

Horovod takes no tensor that is not contiguous, and with channels last gradients of convolutions are not. A script
keeps channels last by a compression that hands out flat views, or has channels first and Horovod as it comes.
"""

from __future__ import annotations

from typing import Any

import horovod.torch as hvd
import torch

from dlscale.collectives.training._torch import Update
from plain.bench import Bench, Loop


class FlatViews:
    """What Horovod calls a compression: channels last, a gradient's memory in its own order."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(what travels, the gradient); they share memory."""
        if tensor.is_contiguous():
            return tensor, tensor
        return tensor.permute(0, 2, 3, 1).view(-1), tensor

    @staticmethod
    def decompress(travelled: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
        """The gradient, in whose memory the mean is."""
        return gradient


def scripts(bench: Bench) -> dict[str, Loop]:
    """Over Horovod, which the backend has started."""
    return {
        "plain": distributed(bench, "plain", compression=FlatViews),
        "plain, flat updates": distributed(bench, "flat", compression=FlatViews, flat=True),
        "plain, channels first": distributed(bench, "first", memory_format="channels_first"),
    }


def distributed(
    bench: Bench, name: str, *, compression: Any = hvd.Compression.none, flat: bool = False, **execution: Any
) -> Loop:
    """`name` keeps its gradients apart from those of the other loops of this process."""
    replica = bench.replica(**execution)
    (objective,) = replica.objectives
    model = objective.loss
    named = [(f"{name}.{place}", parameter) for place, parameter in model.named_parameters()]
    optimizer = hvd.DistributedOptimizer(
        objective.optimizer, named_parameters=named, compression=compression, op=hvd.Average
    )
    update = Update(objective).apply if flat else None

    def step() -> None:
        model.zero_grad()
        loss = model(*replica.next_batch())
        loss.backward()
        if update:
            optimizer.synchronize()
            update()
        else:
            optimizer.step()

    return Loop(replica=replica, step=step)
