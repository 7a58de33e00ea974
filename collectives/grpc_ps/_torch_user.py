"""Parameter servers for anybody's torch script: an optimizer whose steps the servers take."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from dlscale.collectives.grpc_ps._torch_worker import connect, served
from dlscale.collectives.grpc_ps.options import Options
from dlscale.collectives.job import Job


class ServedOptimizer:
    """In the place of a torch optimizer, which says what the servers do with the gradients.

    Gradients leave while `backward` computes further ones. `zero_grad` begins a step, and `step` returns when the
    parameters hold the new weights.
    """

    def __init__(self, job: Job, optimizer: torch.optim.Optimizer, options: Options) -> None:
        parameters = tuple(parameter for group in optimizer.param_groups for parameter in group["params"])
        objective = SimpleNamespace(parameters=parameters, optimizer=optimizer, loss=torch.nn.Identity())
        self._backend = connect(control=job.workers, options=options, job=job)
        self._trainer = served(
            SimpleNamespace(objectives=(objective,)),
            self._backend.channels,
            worker=job.index,
            num_workers=job.num_workers,
            options=options,
            number=0,
        )
        (self._exchange,) = self._trainer.exchanges

    def zero_grad(self) -> None:
        """Clear the gradients: a step begins."""
        self._exchange.begin()

    def step(self) -> None:
        """Return when the parameters hold the servers' new weights. Raises what went wrong."""
        self._exchange.flush()
        self._exchange.finish()

    def close(self) -> None:
        """Let the servers go, once all workers are here; collective over the workers."""
        self._trainer.close()
        self._backend.close()
