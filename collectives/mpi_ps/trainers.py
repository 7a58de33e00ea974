"""What trains a replica over servers, one class per algorithm; the replica may be of any framework."""

from __future__ import annotations

import importlib
from collections import Counter

import numpy as np

from dlscale.collectives.algorithms import downpour, easgd
from dlscale.collectives.backend import BUCKET_SIZES, OWN, SERVED, SERVED_COUNTS, Trainer
from dlscale.collectives.mpi_ps.group import Group
from dlscale.collectives.mpi_ps.links import ServerLinks
from dlscale.collectives.mpi_ps.messages import FlatLayout, Floats
from dlscale.collectives.mpi_ps.sessions import elastic_force
from dlscale.collectives.training.replica_trainer import KeptByServers, ReplicaTrainer
from dlscale.models.workload import Replica, State, Weights

Setting = str | int | float | bool


class ServedTrainer(KeptByServers, ReplicaTrainer):
    """What all have in common (`CountingTrainer`)."""

    backend = "mpi_ps"
    asynchronous = False

    def __init__(self, replica: Replica, layout: FlatLayout, links: ServerLinks) -> None:
        super().__init__(replica)
        self._layout, self._links = layout, links
        self._flat = np.empty(layout.num_elements, np.float32)

    def synchronize(self) -> None:
        """A step is done when it returns."""

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


class AsynchronousTrainer(ServedTrainer):
    """One whose workers do not wait for each other, and whose weights are the servers' (`StaleTrainer`)."""

    asynchronous = True
    _num_steps = 0

    def synchronize(self) -> None:
        """Return when the servers have taken up all that was pushed."""
        self._links.counts()

    def weights(self) -> Weights:
        found = np.empty_like(self._flat)
        self._links.look(found)
        return self._layout.unpack(found)

    def served_state(self) -> State:
        return self._own_state() | self._kept()

    def _own_state(self) -> State:
        state: State = self._replica.state()
        return state

    def _kept(self) -> State:
        arrays, num_updates = self._links.kept()
        kept = {
            f"{SERVED}{number}.{place}": part
            for number, array in enumerate(arrays)
            for place, part in enumerate(self._layout.unpack(array))
        }
        return kept | {SERVED_COUNTS: np.array([num_updates, self._num_steps])}

    def staleness(self) -> dict[int, int]:
        """{updates: pushes}: how many pushes had which staleness, over all servers and workers so far."""
        total: Counter[int] = Counter()
        for counts in self._links.counts():
            total.update({int(steps): pushes for steps, pushes in counts["staleness"].items()})
        return dict(sorted(total.items()))


class ElasticTrainer(AsynchronousTrainer):
    """Trains alone by the replica's own optimizer, tied to the servers' centre (`algorithms.easgd`)."""

    def __init__(
        self,
        replica: Replica,
        layout: FlatLayout,
        links: ServerLinks,
        options: easgd.Options,
        *,
        share: float,
    ) -> None:
        super().__init__(replica, layout, links)
        module = importlib.import_module(f"dlscale.collectives.training._{replica.framework}")
        self._alone: Trainer = module.alone(replica)
        self._interval, self._momentum = options.interval, np.float32(options.momentum)
        self._share = np.float32(share)
        self._centre, self._force = np.empty_like(self._flat), np.empty_like(self._flat)
        # x_i, while the replica is at x_i + d v_i, and v_i; both unused without momentum.
        self._own, self._velocity = np.empty_like(self._flat), np.zeros_like(self._flat)
        self._layout.pack(replica.weights(), self._own)

    def step(self) -> None:
        exchanges = self._num_steps > 0 and self._num_steps % self._interval == 0
        self._num_steps += 1
        if exchanges:
            if not self._momentum:
                self._read(self._own)
            self._links.push(self._own, count=self._interval)
            self._links.collect(self._centre)
            np.copyto(self._force, self._own)
            elastic_force(self._force, self._centre, self._share)
        if self._momentum:
            self._replica.load(self._layout.unpack(self._own + self._momentum * self._velocity))
        self._alone.step()
        if not (exchanges or self._momentum):
            return
        self._read(self._flat)
        if self._momentum:
            np.subtract(self._flat, self._own, out=self._velocity)
        if exchanges:
            self._flat -= self._force
        np.copyto(self._own, self._flat)
        self._replica.load(self._layout.unpack(self._flat))

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

    def _own_state(self) -> State:
        velocity = self._layout.unpack(self._velocity.copy()) if self._momentum else []
        return self._alone.state() | {f"{OWN}velocity.{place}": part for place, part in enumerate(velocity)}

    def settings(self) -> dict[str, Setting]:
        """The part a of the distance that an exchange moves worker and centre by, too."""
        return {**super().settings(), "elastic_share": float(self._share)}

    def _read(self, into: Floats) -> None:
        self._layout.pack(self._replica.weights(), into)


class DownpourTrainer(AsynchronousTrainer):
    """Fetches weights, accrues gradients and pushes them (`algorithms.downpour`)."""

    def __init__(
        self,
        replica: Replica,
        layout: FlatLayout,
        links: ServerLinks,
        options: downpour.Options,
        *,
        rate: float,
        group: Group | None = None,
    ) -> None:
        """What a `group` does, all of it do together."""
        super().__init__(replica, layout, links)
        self._fetch_every, self._push_every = options.fetch_every, options.push_every
        self._rate = np.float32(rate)
        self._group, self._num_groups = group, options.groups
        self._talks = group is None or group.leads
        self._num_masters = options.masters
        self._accrued = np.zeros(layout.num_elements, np.float32)
        self._gradient = np.empty(layout.num_elements, np.float32)

    def step(self) -> None:
        if self._num_steps % self._fetch_every == 0:
            if self._talks:
                self._links.fetch(self._flat)
            if self._group:
                self._group.share(self._flat)
            self._replica.load(self._layout.unpack(self._flat))
        self._layout.pack(self._replica.gradients(), self._gradient)
        self._losses = self._replica.losses()
        self._num_steps += 1
        if self._group:
            self._group.mean(self._gradient)
        if self._push_every > 1:
            self._accrued += self._gradient
        if self._num_steps % self._push_every == 0 and self._talks:
            self._links.push(
                self._accrued if self._push_every > 1 else self._gradient,
                count=self._push_every * (self._group.size if self._group else 1),
            )
            self._accrued[:] = 0
        if self._num_steps % self._fetch_every:
            self._gradient *= self._rate
            self._flat -= self._gradient
            self._replica.load(self._layout.unpack(self._flat))

    def agree(self, goes_on: bool) -> bool:
        """What the first worker of the group says: all of it take as many steps (`GroupedTrainer`)."""
        return self._group.agree(goes_on) if self._group else goes_on

    def settings(self) -> dict[str, Setting]:
        """The learning rate too, which the options may leave to the network."""
        found = {**super().settings(), "learning_rate": float(self._rate)}
        if self._num_groups:
            found["num_groups"] = self._num_groups
        if self._num_masters:
            found["num_masters"] = self._num_masters
        return found
