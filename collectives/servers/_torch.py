"""A torch script's optimizer over parameter servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from dlscale.base.errors import UsageError
from dlscale.collectives.servers.backend import Servers
from dlscale.models.workload import Weights


class ServedOptimizer:
    """In the place of a torch optimizer: what it steps by are means over all workers' gradients.

    Where workers do not wait for each other, its step changes the servers' weights, which it begins with.
    """

    def __init__(self, backend: Servers, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer, self._backend = optimizer, backend
        self._trainer = backend.train(_Script(optimizer))

    def zero_grad(self) -> None:
        self._optimizer.zero_grad()

    def step(self) -> None:
        """Return when the parameters hold the new weights. Raises what went wrong."""
        self._trainer.step()

    def close(self) -> None:
        """Let the servers go; collective over the workers."""
        self._trainer.close()
        self._backend.close()


class _Script:
    """The part of `Replica` that trainers over servers need, of gradients that somebody else computes."""

    framework = "torch"

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._parameters = [given for group in optimizer.param_groups for given in group["params"]]
        self.device = "cpu" if all(given.device.type == "cpu" for given in self._parameters) else "gpu"
        if kinds := {str(given.dtype) for given in self._parameters} - {"torch.float32"}:
            raise UsageError(
                f"parameter servers hold weights of torch.float32, not {', '.join(sorted(kinds))}; "
                "choose another backend"
            )

    def weights(self) -> Weights:
        return [given.detach().cpu().numpy().copy() for given in self._parameters]

    def load(self, weights: Weights) -> None:
        _copy(weights, [given.data for given in self._parameters])

    def gradients(self) -> Weights:
        """Those that are there; a parameter that the step did not use has zeros."""
        return [
            np.zeros(given.shape, np.float32) if given.grad is None else given.grad.cpu().numpy()
            for given in self._parameters
        ]

    def losses(self) -> list[float]:
        return []

    def apply(self, gradients: Weights) -> None:
        for given in self._parameters:
            given.grad = torch.empty_like(given) if given.grad is None else given.grad
        _copy(gradients, [given.grad for given in self._parameters])
        self._optimizer.step()


def _copy(arrays: Weights, tensors: Sequence[Any]) -> None:
    with torch.no_grad():
        for tensor, array in zip(tensors, arrays, strict=True):
            tensor.copy_(torch.from_numpy(array))
