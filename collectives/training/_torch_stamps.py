"""Steps of torch with stamps: hooks tell when a gradient was accumulated, the exchanges' places when a pass ended.

Hooks are there during stamped steps alone, and are made and removed outside of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from dlscale.collectives.training._torch import NoExchange, TorchTrainer
from dlscale.collectives.training.stamps import StepStamps


class _StampedLoss(nn.Module):
    """A loss, and when it was computed last."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self._loss = loss
        self.end = 0.0

    def forward(self, *batch: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = self._loss(*batch)
        self.end = time.perf_counter()
        return loss


class _Stamps(NoExchange):
    """Exchanges nothing, and keeps when an objective's part of a step came where (`_torch.Exchange`)."""

    def __init__(self, objective: Any) -> None:
        super().__init__(objective)
        self._stamped_loss = self.loss = _StampedLoss(objective.loss)
        self.begin_at = self.backward_end = 0.0
        self.ready = [0.0] * len(self._parameters)

    @property
    def forward_end(self) -> float:
        return self._stamped_loss.end

    def begin(self) -> None:
        """The batch is there, or the objective before is done."""
        self.begin_at = time.perf_counter()
        super().begin()

    def flush(self) -> None:
        self.backward_end = time.perf_counter()

    def hook(self) -> list[Any]:
        """Stamp gradients from now on; what is returned removes the hooks."""
        return [
            parameter.register_post_accumulate_grad_hook(self._stamp(index))
            for index, parameter in enumerate(self._parameters)
        ]

    def _stamp(self, index: int) -> Callable[[torch.Tensor], None]:
        ready, now = self.ready, time.perf_counter

        def stamp(_: torch.Tensor) -> None:
            ready[index] = now()

        return stamp


class TorchStampedTrainer(TorchTrainer):
    """A replica alone (`stamps.StampedTrainer`). On a GPU the host's stamps would say when work was handed out."""

    settling_steps = 0

    def __init__(self, replica: Any) -> None:
        super().__init__(replica, [NoExchange(objective) for objective in replica.objectives])
        self._stamps = tuple(_Stamps(objective) for objective in replica.objectives)

    def stamped_step(self) -> StepStamps:
        plain, stamps = self.exchanges, self._stamps
        hooks = [hook for objective in stamps for hook in objective.hook()]
        self.exchanges = stamps
        try:
            begin = time.perf_counter()
            self.step()
            end = time.perf_counter()
        finally:
            self.exchanges = plain
            for hook in hooks:
                hook.remove()
        return StepStamps(
            fetched=stamps[0].begin_at - begin,
            forward=[objective.forward_end - begin for objective in stamps],
            backward=[objective.backward_end - begin for objective in stamps],
            ready=[moment - begin for objective in stamps for moment in objective.ready],
            end=end - begin,
        )


def stamped(replica: Any) -> TorchStampedTrainer:
    """The replica as it is, with steps that can be stamped."""
    return TorchStampedTrainer(replica)
