"""N ranks with local batch b train as 1 rank with N b: the same samples, masks and means, so the same weights.

Tensors are compared by their distance in units of the distance that training has moved them. Adam divides gradients by
their size, so that rounding of those near 0 grows into whole updates: with it less is asked for than with plain SGD.
"""

import importlib.util
from dataclasses import replace

import numpy as np
import pytest

from dlscale.models import load_workload
from dlscale.models.images.data import ImageSamples
from dlscale.models.optimizers import optimizer_rule
from dlscale.models.samples import LocalBatches
from dlscale.models.workload import Execution, Shard

FRAMEWORKS = ["torch", pytest.param("tensorflow", marks=pytest.mark.requires("tensorflow"))]
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


@pytest.fixture
def images(tmp_path, monkeypatch):
    """Images in CIFAR-10's format, each with the same crop for whichever rank reads it."""
    path = tmp_path / "images.bin"
    rng = np.random.default_rng(5)
    path.write_bytes(b"".join(bytes([index % 10]) + rng.bytes(3 * 32 * 32) for index in range(60)))
    monkeypatch.setattr(ImageSamples, "read", ImageSamples.read_for_evaluation)
    return path


@pytest.fixture
def fixed_statistics(monkeypatch):
    """Batch norm by its running statistics, which stay what they are: a batch's own depend on who trains on it."""
    import torch

    def normalised(self, values):
        return torch.nn.functional.batch_norm(
            values, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
        )

    monkeypatch.setattr(torch.nn.BatchNorm2d, "forward", normalised)
    if importlib.util.find_spec("tensorflow"):
        from dlscale.models.frameworks._tensorflow_layers import BatchNorm

        call = BatchNorm.__call__
        monkeypatch.setattr(BatchNorm, "__call__", lambda self, values, updates: call(self, values, None))  # noqa: ARG005


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_hep_cnn(framework, masks_of_the_global_batch):
    check("hep_cnn", framework, Execution(learning_rate=1e-3))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_gpt(framework):
    check("gpt", framework, Execution(learning_rate=0.1, optimizer=optimizer_rule("sgd")))


@pytest.mark.slow
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_resnet50_with_fixed_statistics(framework, images, fixed_statistics):
    check("resnet50", framework, Execution(learning_rate=1e-2), path=images)


def check(name, framework, execution, *, path=None):
    facts = load_workload(name)
    source = replace(facts.input("tiny", path), held_out=0.125)

    def replica(shard):
        factory = facts.factory(
            framework=framework,
            preset="tiny",
            local_batch=LOCAL_BATCH * NUM_SHARDS // shard.count,
            source=source,
            execution=execution,
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
