"""The same program on a GPU as on cores, and a clock that sees the GPU's work."""

import time

import numpy as np
import pytest

from dlscale.benchmarks.rank.measure import time_window
from dlscale.collectives.registry import connect
from dlscale.models import NAMES, load_workload
from dlscale.models.workload import Execution, Input, Shard

TOLERANCE = 1e-3  # of the largest output: sums of thousands of float32 products in another order


def factory(name, framework, device, *, precision="fp32", preset="tiny", local_batch=4):
    return load_workload(name).factory(
        framework=framework,
        preset=preset,
        local_batch=local_batch,
        source=Input(),
        execution=Execution(device=device, precision=precision),
    )


def on_cores(name):
    """Outputs of torch on the host: the networks of both frameworks are the same (tests/parity)."""
    return factory(name, "torch", "cpu")(shard=Shard(), seed=1).outputs()


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_those_of_the_host(name, framework):
    replica = factory(name, framework, "gpu")(shard=Shard(), seed=1)
    assert replica.device == "gpu"
    for found, expected in zip(replica.outputs(), on_cores(name), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE * np.abs(expected).max())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", NAMES)
def test_training_reaches_every_weight_and_stays_finite(name, precision, framework):
    """Seen in what an optimizer keeps, if it does: ResNet-50 first changes a scale of 1 by its last binary place."""
    backend = connect("none", control=None, framework=framework)
    factory_on_gpu = factory(name, framework, "gpu", precision=precision)
    trainer = backend.distribute(factory_on_gpu, shard=Shard(), seed=1)
    before = trainer.weights()
    for _ in range(5):
        trainer.step()
    trainer.synchronize()
    assert np.isfinite(trainer.loss())
    kept = [value for place, value in trainer.state().items() if place.startswith("optimizer")]
    if kept:
        assert all(np.any(value) for value in kept)
    else:
        assert all(not np.array_equal(old, new) for old, new in zip(before, trainer.weights(), strict=True))
    trainer.close()


class Alone:
    def barrier(self):
        pass


def test_a_window_waits_for_the_gpu(framework):
    backend = connect("none", control=None, framework=framework)
    trainer = backend.distribute(factory("resnet50", framework, "gpu", local_batch=32), shard=Shard(), seed=1)
    time_window(trainer, Alone(), phase="warmup", num_steps=3)
    window = time_window(trainer, Alone(), phase="steady", num_steps=20)
    begin = time.perf_counter()
    trainer.synchronize()
    assert time.perf_counter() - begin < 0.05 * window.seconds  # nothing was left to wait for
    trainer.close()
