"""Evaluations of a training to a target: the quality of its networks on held-out samples.

All ranks evaluate, each its own pieces of the samples, on a replica that is given what the trainer has learnt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from dlscale.benchmarks.rank.checkpoints import share_checkpoint
from dlscale.benchmarks.records.cell import Cell
from dlscale.collectives import CountingTrainer, Trainer
from dlscale.collectives.algorithms.registry import SYNC
from dlscale.collectives.sharding import NONE
from dlscale.models.quality.metric import HeldOut, Measured
from dlscale.models.workload import Input, Replica, Shard, State, Weights, Workload


class Evaluator:
    """The quality of a trainer's networks on held-out samples. Collective.

    `replica` gets what the trainer has: its state, with what batch norm keeps, and where servers hold the weights, or
    each rank has its own, those that all have learnt together. Ranks keep statistics of their own for batch norm: those
    of rank 0 are the network's, as in its checkpoint. `pieces` are this rank's part of the last evaluation.
    """

    def __init__(self, cell: Cell, source: Input, replica: Replica, *, world: Any, facts: Workload) -> None:
        """`facts`: the cell's, with a user's file where it has one."""
        self._held_out = HeldOut(facts.data(), facts.quality(), preset=cell.preset_facts, source=source)
        self.indices = self._held_out.indices  # of all ranks, in the order of pieces
        self.replica, self._world = replica, world
        # Of whole samples, whoever shares them.
        self._part = Shard(index=world.Get_rank(), count=world.Get_size())
        self.pieces: Sequence[tuple[int, Measured]] = ()
        self._by_state = not cell.num_servers
        self._own_weights = cell.algorithm != SYNC  # ranks' states have weights of their own
        self._of_first = facts.running_statistics and cell.num_ranks > 1
        self._gathers = cell.shard != NONE
        # Over all ranks; all others of the input are an epoch's.
        self.num_samples, self.num_training = self._held_out.num_samples, self._held_out.num_training
        if self._by_state:
            # The optimizers make what they keep in their first step; restoring overwrites all of it.
            replica.apply([np.zeros_like(weight) for weight in replica.weights()])

    @property
    def num_skipped(self) -> int:
        """Bad samples of this rank's part that evaluations left out."""
        return len(self._held_out.bad)

    def metrics(self, trainer: Trainer) -> dict[str, float]:
        """Every metric of the workload that can be computed, the same on all ranks."""
        self.load(trainer)
        self.pieces = list(self._held_out.measure(self.replica.predict, self._part))
        gathered = self._world.gather(self.pieces)
        metrics = self._held_out.metrics([piece for own in gathered for piece in own]) if gathered else None
        shared: dict[str, float] = self._world.bcast(metrics)
        return shared

    def load(self, trainer: Trainer) -> None:
        """Give the replica what the trainer has learnt."""
        if self._by_state:
            self.replica.restore(
                network_state(trainer, self._world, of_first=self._of_first, gathers=self._gathers)
            )
        if not self._by_state or self._own_weights:
            self.replica.load(self.learnt(trainer))

    def learnt(self, trainer: Trainer) -> Weights:
        """The trainer's weights, those of all ranks together where each has its own; collective."""
        return trainer.weights() if self._by_state else cast(CountingTrainer, trainer).served_weights()


def network_state(trainer: Trainer, world: Any, *, of_first: bool, gathers: bool = False) -> State:
    """The trainer's state on this rank or, if `of_first`, that of rank 0 on all ranks; collective then.

    Where a state `gathers` shards it is collective in any case.
    """
    own = trainer.state() if gathers or not of_first or world.Get_rank() == 0 else None
    return share_checkpoint(world, own if world.Get_rank() == 0 else None) if of_first else own or {}
