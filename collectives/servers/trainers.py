"""What trains a replica over servers, one class per algorithm; the replica may be of any framework."""

from __future__ import annotations

import importlib
from collections import Counter
from typing import ClassVar

import numpy as np

from dlscale.collectives.algorithms import downpour
from dlscale.collectives.backend import (
    BUCKET_SIZES,
    SERVED,
    SERVED_COUNTS,
    KeptByServers,
    ReplicaTrainer,
    Setting,
    Trainer,
)
from dlscale.collectives.servers.links import Links
from dlscale.collectives.servers.messages import FlatLayout
from dlscale.collectives.servers.sessions import elastic_force
from dlscale.models.workload import Replica, State, Weights


class ServedTrainer(KeptByServers, ReplicaTrainer):
    """What all have in common (`CountingTrainer`). It begins with the servers' weights."""

    asynchronous: ClassVar[bool] = False
    _num_steps = 0

    def __init__(self, backend: str, replica: Replica, layout: FlatLayout, links: Links) -> None:
        super().__init__(replica)
        self.backend = backend
        self._layout, self._links = layout, links
        self._flat = np.empty(layout.num_elements, np.float32)
        links.fetch(self._flat)
        replica.load(layout.unpack(self._flat))

    def num_applied(self) -> int:
        """Local batches, of all workers, that server 0 has taken up."""
        return int(self._links.counts()[0]["applied"])

    def served_weights(self) -> Weights:
        """The servers' weights, which all workers have where they step together."""
        return self.weights()

    def settings(self) -> dict[str, Setting]:
        """How the weights are cut, and that nothing travels while gradients are computed."""
        sizes = self._links.shard_bytes()
        return {
            "overlap": False,
            "num_servers": len(sizes),
            "asynchronous": self.asynchronous,
            BUCKET_SIZES: ",".join(map(str, sizes)),
        }

    def close(self) -> None:
        self._links.end()


class SynchronousTrainer(ServedTrainer):
    """Updates its own weights by the mean of all workers' gradients, which servers form."""

    def step(self) -> None:
        self._layout.pack(self._replica.gradients(), self._flat)
        self._losses = self._replica.losses()
        self._links.push(self._flat, count=1)
        self._links.collect(self._flat)
        self._replica.apply(self._layout.unpack(self._flat))

    def synchronize(self) -> None:
        """A step is done when it returns; on a GPU when the weights can be read."""
        if self._replica.device == "gpu":
            self._replica.weights()


class StaleTrainer(ServedTrainer):
    """One whose workers do not wait for each other, and whose weights are the servers' (`backend.StaleTrainer`)."""

    asynchronous = True

    def synchronize(self) -> None:
        """Return when the servers have taken up all that was pushed."""
        self._links.counts()

    def weights(self) -> Weights:
        return self._layout.unpack(self._links.kept()[0][0])

    def served_state(self) -> State:
        """The replica's state, and what the servers hold."""
        state: State = self._replica.state()
        arrays, num_updates = self._links.kept()
        kept = {
            f"{SERVED}{number}.{place}": part
            for number, array in enumerate(arrays)
            for place, part in enumerate(self._layout.unpack(array))
        }
        return state | kept | {SERVED_COUNTS: np.array([num_updates, self._num_steps])}

    def staleness(self) -> dict[int, int]:
        """{updates: pushes}: how many pushes had which staleness, over all servers and workers so far."""
        total: Counter[int] = Counter()
        for counts in self._links.counts():
            total.update({int(steps): pushes for steps, pushes in counts["staleness"].items()})
        return dict(sorted(total.items()))


class AsynchronousTrainer(StaleTrainer):
    """Takes a step from the servers' weights, pushes what it changed, and gets the weights of all workers' changes."""

    def __init__(self, backend: str, replica: Replica, layout: FlatLayout, links: Links) -> None:
        super().__init__(backend, replica, layout, links)
        self._changed = np.empty_like(self._flat)

    def step(self) -> None:
        self._num_steps += 1
        self._replica.apply(self._replica.gradients())
        self._losses = self._replica.losses()
        self._layout.pack(self._replica.weights(), self._changed)
        self._changed -= self._flat
        self._links.push(self._changed, count=1)
        self._links.collect(self._flat)
        self._replica.load(self._layout.unpack(self._flat))

    def served_state(self) -> State:
        """The servers' weights of now, which the next step begins with, and what the own optimizer keeps."""
        self._links.fetch(self._flat)
        self._replica.load(self._layout.unpack(self._flat))
        state: State = self._replica.state()
        return state


class ElasticTrainer(StaleTrainer):
    """Trains alone by the replica's own optimizer, tied to the servers' centre (`algorithms.easgd`)."""

    def __init__(
        self,
        backend: str,
        replica: Replica,
        layout: FlatLayout,
        links: Links,
        *,
        interval: int,
        share: float,
    ) -> None:
        super().__init__(backend, replica, layout, links)
        module = importlib.import_module(f"dlscale.collectives.training._{replica.framework}")
        self._alone: Trainer = module.alone(replica)
        self._own = np.empty_like(self._flat)
        self._interval, self._share = interval, np.float32(share)

    def step(self) -> None:
        exchanges = self._num_steps > 0 and self._num_steps % self._interval == 0
        self._num_steps += 1
        if not exchanges:
            self._alone.step()
            return
        own, centre = self._own, self._flat
        self._layout.pack(self._replica.weights(), own)
        self._links.push(own, count=self._interval)
        self._links.collect(centre)
        self._alone.step()
        elastic_force(own, centre, self._share)
        self._layout.pack(self._replica.weights(), centre)
        centre -= own
        self._replica.load(self._layout.unpack(centre))

    def losses(self) -> list[float]:
        """This rank's losses of the last step, at its own weights."""
        return self._alone.losses()

    def loss(self) -> float:
        return self._alone.loss()

    def synchronize(self) -> None:
        self._alone.synchronize()
        super().synchronize()

    def own_weights(self) -> Weights:
        """This rank's own."""
        weights: Weights = self._replica.weights()
        return weights

    def settings(self) -> dict[str, Setting]:
        """The part a of the distance that an exchange moves worker and centre by, too."""
        return {**super().settings(), "elastic_share": float(self._share)}


class DownpourTrainer(StaleTrainer):
    """Fetches weights, accrues gradients and pushes them (`algorithms.downpour`)."""

    def __init__(
        self,
        backend: str,
        replica: Replica,
        layout: FlatLayout,
        links: Links,
        *,
        options: downpour.Options,
        rate: float,
    ) -> None:
        super().__init__(backend, replica, layout, links)
        self._options, self._rate = options, np.float32(rate)
        self._accrued = np.zeros(layout.num_elements, np.float32)
        self._gradient = np.empty(layout.num_elements, np.float32)

    def step(self) -> None:
        fetch_every, push_every = self._options.fetch_every, self._options.push_every
        if self._num_steps % fetch_every == 0:
            self._links.fetch(self._flat)
            self._replica.load(self._layout.unpack(self._flat))
        self._layout.pack(self._replica.gradients(), self._gradient)
        self._losses = self._replica.losses()
        self._num_steps += 1
        if push_every > 1:
            self._accrued += self._gradient
        if self._num_steps % push_every == 0:
            self._links.push(self._accrued if push_every > 1 else self._gradient, count=push_every)
            self._accrued[:] = 0
        if self._num_steps % fetch_every:
            self._gradient *= self._rate
            self._flat -= self._gradient
            self._replica.load(self._layout.unpack(self._flat))

    def settings(self) -> dict[str, Setting]:
        """The learning rate too, which the options may leave to the network."""
        masters = {"num_masters": self._options.masters} if self._options.masters else {}
        return {**super().settings(), "learning_rate": float(self._rate), **masters}
