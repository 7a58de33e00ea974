"""The torch trainer that all backends share, and how an objective's gradients can be exchanged.

A backend says how by an `Exchange` per objective: not at all, by torch's own DistributedDataParallel, or,
for any `Collective`, by the buckets of `_torch_buckets`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import nn

from dlscale.models.workload import Weights

Setting = str | int | float | bool


class Exchange(Protocol):
    """Averages one objective's gradients over ranks, ideally while later ones are still computed."""

    loss: nn.Module  # what to call for the loss: the objective's own module, or a wrapped one

    def begin(self) -> None:
        """Clear the gradients: a step begins."""
        ...

    def finish(self) -> None:
        """Return when every gradient holds the mean over ranks."""
        ...

    def settings(self) -> Mapping[str, Setting]:
        """What it decided by itself, for the record."""
        ...

    def close(self) -> None:
        """Undo its hooks."""
        ...


class NoExchange:
    """Every rank keeps its own gradients."""

    def __init__(self, objective: Any) -> None:
        self.loss: nn.Module = objective.loss
        self._optimizer = objective.optimizer

    def begin(self) -> None:
        """Clear the gradients, in place: freed and allocated anew they cost a page fault per 4 KiB.

        With torch's default, set_to_none, a HEP-CNN step of 61 ms took 82 (4 events of 64x64, 1 core, glibc).
        """
        self._optimizer.zero_grad(set_to_none=False)

    def finish(self) -> None:
        """Nothing travels."""

    def settings(self) -> dict[str, Setting]:
        """Nothing to decide."""
        return {}

    def close(self) -> None:
        """Nothing to undo."""


class TorchTrainer:
    """A replica's objectives, each differentiated and exchanged, and only then all updated (`Trainer`)."""

    def __init__(self, replica: Any, make_exchange: Callable[[Any], Exchange]) -> None:
        self._replica = replica
        self._exchanges = [make_exchange(objective) for objective in replica.objectives]
        self._losses: Sequence[torch.Tensor] = ()

    def step(self) -> None:
        """Train on one local batch."""
        batch = self._replica.next_batch()
        losses = []
        for objective, exchange in zip(self._replica.objectives, self._exchanges, strict=True):
            exchange.begin()
            loss = exchange.loss(*batch)
            # Only this objective's own parameters: a generator's loss must not reach the discriminator's.
            loss.backward(inputs=list(objective.parameters), retain_graph=objective.keeps_graph)
            losses.append(loss.detach())
        for exchange in self._exchanges:
            exchange.finish()
        for objective in self._replica.objectives:
            objective.optimizer.step()
        self._losses = losses

    def synchronize(self) -> None:
        """On a CPU a step is done when it returns; a GPU has to be waited for."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    def losses(self) -> list[float]:
        """This rank's losses of the last step, one per objective; none before the first."""
        return [float(loss) for loss in self._losses]

    def loss(self) -> float:
        """This rank's loss of the last step, summed over objectives."""
        return sum(self.losses()) if self._losses else float("nan")

    def weights(self) -> Weights:
        """Copies of the trainable weights."""
        weights: Weights = self._replica.weights()
        return weights

    def settings(self) -> dict[str, Setting]:
        """What the exchanges decided by themselves, of the last one where they differ."""
        found: dict[str, Setting] = {}
        for exchange in self._exchanges:
            found.update(exchange.settings())
        return found

    def close(self) -> None:
        """Undo the exchanges' hooks."""
        for exchange in self._exchanges:
            exchange.close()


def alone(replica: Any) -> TorchTrainer:
    """The replica as it is."""
    return TorchTrainer(replica, NoExchange)
