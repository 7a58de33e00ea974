"""The backend of workers and the servers that they train over, whatever carries their messages."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np

from dlscale.collectives.algorithms import downpour, easgd
from dlscale.collectives.backend import Backend, Setup, Trainer
from dlscale.collectives.job import ServerSplit
from dlscale.collectives.servers.links import Links
from dlscale.collectives.servers.messages import FlatLayout, Ranks, Rules, Transport
from dlscale.collectives.servers.server import leave
from dlscale.collectives.servers.trainers import (
    AsynchronousTrainer,
    DownpourTrainer,
    ElasticTrainer,
    SynchronousTrainer,
)
from dlscale.models.workload import Replica, ReplicaFactory, Shard


class Servers(Backend):
    """Workers of `job` and its parameter servers (`Backend`).

    `algorithm` are the options of the one to run. By synchronous SGD workers wait for each other, unless
    `asynchronous`: then each one's changes are taken up as they come.
    """

    def __init__(
        self,
        name: str,
        job: ServerSplit,
        ranks: Ranks,
        transport: Transport,
        *,
        algorithm: Any = None,
        asynchronous: bool = False,
    ) -> None:
        self.name = name
        self._job, self._servers, self._transport = job, ranks.parents(job.index), transport
        self._algorithm = algorithm if isinstance(algorithm, downpour.Options | easgd.Options) else None
        self._asynchronous = asynchronous or self._algorithm is not None
        self._numbers = count()  # of sessions, the same on all workers

    @property
    def asynchronous(self) -> bool:
        return self._asynchronous

    @property
    def served(self) -> Any:
        return self._algorithm

    def distribute(self, factory: ReplicaFactory, *, shard: Shard, seed: int, gate: bool = False) -> Trainer:
        """A replica with the weights of worker 0, in a session of its own."""
        return self.train(factory(shard=shard, seed=seed, gate=gate), gate=gate)

    def train(self, replica: Any, *, gate: bool = False) -> Trainer:
        """A `Replica` in a session of its own; collective over the workers."""
        weights = replica.weights()
        layout = FlatLayout(weights)
        first = np.empty(layout.num_elements, np.float32)
        layout.pack(weights, first)
        links = Links(
            self._transport, self._servers, number=next(self._numbers), num_elements=layout.num_elements
        )
        options = self._algorithm.for_gate() if gate and self._algorithm else self._algorithm
        rules = self._rules(options, replica, layout.num_elements)
        links.open(rules, first if self._job.index == 0 else None)
        if isinstance(options, downpour.Options):
            return DownpourTrainer(self.name, replica, layout, links, options=options, rate=rules.rate)
        if isinstance(options, easgd.Options):
            return ElasticTrainer(
                self.name, replica, layout, links, interval=options.interval, share=rules.share
            )
        kind = AsynchronousTrainer if self._asynchronous else SynchronousTrainer
        return kind(self.name, replica, layout, links)

    def _rules(self, options: Any, replica: Replica, num_elements: int) -> Rules:
        """What servers are told."""
        if isinstance(options, downpour.Options):
            return Rules(
                algorithm="downpour",
                num_elements=num_elements,
                optimizer=options.optimizer,
                rate=options.learning_rate or replica.learning_rate(),
                momentum=options.momentum,
            )
        if isinstance(options, easgd.Options):
            share = options.moving_rate / self._job.num_workers
            return Rules(algorithm="easgd", num_elements=num_elements, share=share)
        return Rules(algorithm="asynchronous" if self._asynchronous else "sync", num_elements=num_elements)

    def close(self) -> None:
        leave(self._transport, self._servers)
        self._transport.close()


def ranks_of(job: ServerSplit, algorithm: Any = None, *, framework: str = "torch") -> Ranks:
    """Who sends to whom. Raises UsageError where there are not the servers that masters need."""
    masters = 0
    if isinstance(algorithm, downpour.Options):
        algorithm.check_setup(
            Setup(framework=framework, num_ranks=job.num_workers, num_servers=job.num_servers)
        )
        masters = algorithm.masters
    return Ranks(num_workers=job.num_workers, num_servers=job.num_servers, num_masters=masters)
