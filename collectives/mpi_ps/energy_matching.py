"""The trainer of gradient energy matching (`algorithms.gem`), whose servers add up what workers have scaled."""

from __future__ import annotations

import numpy as np

from dlscale.collectives.algorithms import gem
from dlscale.collectives.mpi_ps.links import ServerLinks
from dlscale.collectives.mpi_ps.messages import FlatLayout
from dlscale.collectives.mpi_ps.trainers import AsynchronousTrainer, Setting
from dlscale.models.workload import Replica, Weights

# Servers apply pushes as they come, and take them off as they are.
SERVER_RULES = {
    "algorithm": "downpour",
    "optimizer": "sgd",
    "rate": 1.0,
    "momentum": 0.0,
    "divide_by_staleness": False,
    "num_collected": 1,
}


class MatchingTrainer(AsynchronousTrainer):
    """Pushes gradients whose energy is matched; the session has begun, and the replica holds its first weights."""

    def __init__(
        self,
        replica: Replica,
        layout: FlatLayout,
        links: ServerLinks,
        options: gem.Options,
    ) -> None:
        super().__init__(replica, layout, links)
        self._rate = options.learning_rate or replica.learning_rate()
        self._matching = gem.Matching(options, layout.num_elements, rate=self._rate)
        self._start, self._gradient = np.empty_like(self._flat), np.empty_like(self._flat)
        layout.pack(replica.weights(), self._start)

    def step(self) -> None:
        """Train on one local batch."""
        self._layout.pack(self._replica.gradients(), self._gradient)
        self._losses = self._replica.losses()
        begin = self._links.steps  # of the weights that the gradient is of
        self._links.steps = list(begin)
        self._links.fetch(self._flat)
        fetched, self._links.steps = self._links.steps, begin
        self._matching.scale(self._gradient, start=self._start, fetched=self._flat)
        self._links.push(self._gradient, count=1)
        self._links.steps = fetched
        self._start, self._flat = self._flat, self._start
        self._replica.load(self._layout.unpack(self._start))

    def own_weights(self) -> Weights:
        """Where this rank's next gradient is taken."""
        weights: Weights = self._replica.weights()
        return weights

    def settings(self) -> dict[str, Setting]:
        """The learning rate too, which the options may leave to the network."""
        return {**super().settings(), "learning_rate": float(self._rate)}
