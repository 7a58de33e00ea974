"""The torch trainers over any `Collective`: gradients travel in buckets (`_torch_exchange`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from dlscale.collectives.backend import Collective
from dlscale.collectives.training._torch import TorchTrainer
from dlscale.collectives.training._torch_exchange import BucketExchange
from dlscale.collectives.training._torch_staging import staging_of
from dlscale.collectives.training.communication import AUTOMATIC, Teams, Training, want_threads
from dlscale.models.workload import Weights


def over(replica: Any, collectives: Sequence[Collective], training: Training) -> TorchTrainer:
    """The replica with its gradients exchanged over `collectives`, one per team; collective.

    With a core to spare a thread exchanges ready buckets while backpropagation goes on; without one it would
    only take time from the computation, and buckets are exchanged without overlap.
    """
    staging = staging_of(
        [parameter for objective in replica.objectives for parameter in objective.parameters]
    )
    asked = None if training.teams == AUTOMATIC else training.teams > 0
    threads = want_threads(collectives[0], asked, num_threads=staging.num_threads())
    teams = Teams(collectives, threads=threads)
    numbers = iter(range(2**31))  # of buckets, over all objectives: they go round the teams in this order
    exchanges = [
        BucketExchange(objective, teams, training, numbers=numbers, staging=staging)
        for objective in replica.objectives
    ]
    return BucketTrainer(replica, exchanges, close=teams.close)


class BucketTrainer(TorchTrainer):
    """A trainer that shows its buckets (`compression.BucketTrainer`)."""

    exchanges: tuple[BucketExchange, ...]

    def buckets(self) -> list[NDArray[Any]]:
        """The buckets of all objectives, in order; not pipelined."""
        return [bucket.array for exchange in self.exchanges for bucket in exchange.buckets()]

    def flat(self, arrays: Weights) -> list[NDArray[Any]]:
        """Arrays in the order and shapes of the weights, each where its parameter's gradient lies in a bucket."""
        parameters = [p for objective in self._replica.objectives for p in objective.parameters]
        of_parameter = dict(zip(map(id, parameters), self._replica.tensors(arrays), strict=True))
        return [
            bucket.flat([of_parameter[id(parameter)] for parameter in bucket.parameters])
            for exchange in self.exchanges
            for bucket in exchange.buckets()
        ]
