"""N ranks with local batch b train as 1 rank with N b: the same samples, masks and means, so the same weights.

Tensors are compared by their distance in units of the distance that training has moved them. Adam divides gradients by
their size, so that rounding of those near 0 grows into whole updates: with it less is asked for than with plain SGD.
"""

from dataclasses import replace

import numpy as np
import pytest

from dlscale.models import load_workload
from dlscale.models.samples import LocalBatches
from dlscale.models.workload import Execution, Shard

NUM_STEPS, NUM_SHARDS, LOCAL_BATCH = 50, 3, 2


@pytest.fixture
def masks_of_the_global_batch(monkeypatch):
    """Each sample of a global batch has its own masks, whichever rank trains on it."""

    def draw(self):
        count, rng = self._shard.count, np.random.default_rng(self.num_drawn)
        whole = self._data.step_inputs(self._preset, count * self._local_batch, rng, gate=False)
        begin = self._shard.index * self._local_batch
        return tuple(part[begin : begin + self._local_batch] for part in whole)

    monkeypatch.setattr(LocalBatches, "_draw", draw)


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_shards_with_mean_gradients_end_where_one_rank_ends(framework, masks_of_the_global_batch):
    facts = load_workload("hep_cnn")
    source = replace(facts.input("tiny"), held_out=0.125)

    def replica(shard):
        factory = facts.factory(
            framework=framework,
            preset="tiny",
            local_batch=LOCAL_BATCH * NUM_SHARDS // shard.count,
            source=source,
            execution=Execution(learning_rate=1e-3),
        )
        return factory(shard=shard, seed=1)

    alone = replica(Shard())
    shards = [replica(Shard(index=index, count=NUM_SHARDS)) for index in range(NUM_SHARDS)]
    begin = alone.weights()
    for _ in range(NUM_STEPS):
        alone.apply(alone.gradients())
        own = [shard.gradients() for shard in shards]
        mean = [
            np.mean(parts, axis=0, dtype=np.float64).astype(np.float32) for parts in zip(*own, strict=True)
        ]
        for shard in shards:
            shard.apply(mean)
    for first, one, many in zip(begin, alone.weights(), shards[0].weights(), strict=True):
        assert np.linalg.norm(one - many) <= 1e-3 * np.linalg.norm(one - first)
