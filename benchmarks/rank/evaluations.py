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
from dlscale.models.workload import Input, Replica, Shard, Weights, Workload


class Evaluator:
    """The quality of a trainer's networks on held-out samples. Collective.

    `replica` gets what the trainer has: its state, with what batch norm keeps, and where servers hold the weights, or
    each rank has its own, those that all have learnt together. Ranks keep statistics of their own for batch norm: those
    of rank 0 are the network's, as in its checkpoint. `pieces` are this rank's part of the last evaluation.
    """

    def __init__(self, cell: Cell, source: Input, replica: Replica, *, world: Any, facts: Workload) -> None:
        """`facts`: the cell's, with a user's file where it has one."""
        # Over all ranks; all others of the input are an epoch's.
        self.held_out = HeldOut(facts.data(), facts.quality(), preset=cell.preset_facts, source=source)
        self.replica, self._world = replica, world
        # Of whole samples, whoever shares them.
        self._part = Shard(index=world.Get_rank(), count=world.Get_size())
        self.pieces: Sequence[tuple[int, Measured]] = ()
        self._by_state = not cell.num_servers
        self._own_weights = cell.algorithm != SYNC  # ranks' states have weights of their own
        self._gathers = cell.shard != NONE
        if self._by_state:
            # The optimizers make what they keep in their first step; restoring overwrites all of it.
            replica.apply([np.zeros_like(weight) for weight in replica.weights()])

    def metrics(self, trainer: Trainer) -> dict[str, float]:
        """Every metric of the workload that can be computed, the same on all ranks."""
        self.load(trainer)
        self.pieces = list(self.held_out.measure(self.replica.predict, self._part))
        gathered = self._world.gather(self.pieces)
        metrics = self.held_out.metrics([piece for own in gathered for piece in own]) if gathered else None
        shared: dict[str, float] = self._world.bcast(metrics)
        return shared

    def load(self, trainer: Trainer) -> None:
        """Give the replica what the trainer has learnt."""
        if self._by_state:
            is_first = self._world.Get_rank() == 0
            state = trainer.state() if self._gathers or is_first else None  # a state is gathered by all ranks
            self.replica.restore(share_checkpoint(self._world, state if is_first else None))
        if not self._by_state or self._own_weights:
            self.replica.load(self.learnt(trainer))

    def learnt(self, trainer: Trainer) -> Weights:
        """The trainer's weights, those of all ranks together where each has its own; collective."""
        return trainer.weights() if self._by_state else cast(CountingTrainer, trainer).served_weights()
