"""Gradient exchange by Horovod's DistributedGradientTape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import horovod.tensorflow as hvd

from dlscale.collectives.backend import Setting
from dlscale.collectives.training._tensorflow import NoExchange, TensorFlowTrainer


def over(replica: Any, *, settings: Mapping[str, Setting]) -> TensorFlowTrainer:
    """The replica over Horovod, with the weights of rank 0; collective.

    Where XLA compiles the network, which cannot hold Horovod's operations, they follow it.
    """
    variables = [variable for objective in replica.objectives for variable in objective.parameters]
    hvd.broadcast_variables(variables, root_rank=0)
    exchange = HorovodExchange(settings, compiled=replica.compiled)
    if replica.compiled:
        return TensorFlowTrainer(replica, exchange)
    return TensorFlowTrainer(replica, exchange, tape=hvd.DistributedGradientTape)


class HorovodExchange(NoExchange):
    """Gradients that the tape has averaged already, or are averaged one by one (`Exchange`)."""

    def __init__(self, settings: Mapping[str, Setting], *, compiled: bool) -> None:
        self._settings, self._compiled = settings, compiled

    def average(self, gradients: Sequence[Any]) -> list[Any]:
        if not self._compiled:
            return list(gradients)
        return [hvd.allreduce(gradient, op=hvd.Average) for gradient in gradients]

    def settings(self) -> Mapping[str, Setting]:
        return self._settings
