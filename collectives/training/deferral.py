"""Deferred updates: a step's gradients still travel while the next step's forward pass has begun.

A layer's weights are updated right before the forward pass needs them, so what is computed is the same as without
deferral. What is gained is time: the exchange has the next forward pass to hide behind, too, if the layers that are
needed first travel first. As in P3 (Jayarajan et al., MLSys 2019) and ByteScheduler (Peng et al., SOSP 2019),
gradients are cut into *parts*, and of those that are there the one that is needed first goes first.

All ranks must exchange in the same order, and gradients become ready at other moments on each. The order is therefore
planned: the first steps are measured, and what came out on all ranks goes through a simulation of the link.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dlscale.base.errors import UsageError
from dlscale.collectives.backend import Collective
from dlscale.collectives.training.communication import AUTOMATIC, Training
from dlscale.collectives.training.replica_trainer import ReplicaTrainer
from dlscale.models.workload import State, Weights

NUM_MEASURED_STEPS = 5  # in backward order, everything applied before the forward pass begins

# A part holds back what has become urgent meanwhile: 4 MiB is 35 ms at 1 Gbit/s and 0.4 ms at 100.
PART_BYTES = 4 << 20
LEAST_BUCKET_BYTES = 64 << 10


def is_deferred(collective: Collective, training: Training, *, threads: bool, obstacle: str) -> bool:
    """Whether updates are deferred: as asked, else where threads exchange between several nodes.

    `obstacle`: why this trainer cannot; empty if it can. Raises UsageError if it was asked for and cannot be.
    """
    if training.deferred == AUTOMATIC:
        num_nodes = int(collective.settings().get("num_nodes", 1))
        return threads and num_nodes > 1 and not obstacle and not training.pipelined
    if not training.deferred:
        return False
    if not threads:
        obstacle = "no thread exchanges gradients meanwhile; give teams=1 too"
    if obstacle:
        raise UsageError(f"deferred=1 was asked for, but {obstacle}")
    return True


class DeferredUpdates(ReplicaTrainer):
    """Makes what is due before anybody sees the weights; stands before the framework's trainer in a class's bases."""

    def _make_updates(self) -> None:
        raise NotImplementedError

    def synchronize(self) -> None:
        self._make_updates()
        super().synchronize()  # type: ignore[misc]

    def weights(self) -> Weights:
        self._make_updates()
        return super().weights()

    def state(self) -> State:
        self._make_updates()
        return super().state()

    def held(self, *, slots: bool = True) -> State:
        self._make_updates()
        return super().held(slots=slots)

    def restore(self, state: State) -> None:
        self._make_updates()
        super().restore(state)


def bucket_limit(bytes_in_front: int) -> int:
    """Bytes at which a bucket is closed, with so many still to come that the forward pass needs earlier.

    The last to become ready are needed first, and nothing hides them: buckets grow smaller towards the front.
    """
    return min(max(bytes_in_front // 4, LEAST_BUCKET_BYTES), PART_BYTES)


@dataclass(frozen=True, slots=True)
class Timing:
    """A part's place in a step."""

    ready: float  # seconds after the backpropagation began
    seconds: float  # that its exchange takes
    needed: int  # its place in the order in which the next forward pass needs the weights


def planned_order(parts: Sequence[Timing]) -> list[int]:
    """Indices of `parts` in the order to exchange them: always the one needed first of those that are ready."""
    by_readiness = sorted(range(len(parts)), key=lambda index: (parts[index].ready, index))
    waiting: list[tuple[int, int]] = []
    order: list[int] = []
    now, arrived = 0.0, 0
    while len(order) < len(parts):
        if not waiting:
            now = max(now, parts[by_readiness[arrived]].ready)
        while arrived < len(parts) and parts[by_readiness[arrived]].ready <= now:
            index = by_readiness[arrived]
            heapq.heappush(waiting, (parts[index].needed, index))
            arrived += 1
        _, index = heapq.heappop(waiting)
        order.append(index)
        now += parts[index].seconds
    return order


def agreed(collective: Collective, parts: Sequence[Timing]) -> list[Timing]:
    """What all ranks take the parts' timing to be; collective.

    A part is ready when it is on the last rank, and its exchange takes what the last rank to come to it sees.
    """
    own = np.array([[part.ready, -part.seconds, part.needed] for part in parts], dtype=np.float64)
    collective.allreduce(flat := own.reshape(-1).copy(), "max")
    return [
        Timing(ready=float(ready), seconds=-float(seconds), needed=int(needed))
        for ready, seconds, needed in flat.reshape(own.shape)
    ]
