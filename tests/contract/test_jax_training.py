"""JAX over the backends that train in it, on the ranks of this launch; its gates, as every framework's."""

import functools

import numpy as np
import pytest

from dlscale.benchmarks.rank.exchange_audit import bucket_sizes
from dlscale.benchmarks.rank.gates import identity_gate
from dlscale.collectives.registry import connect

from .conftest import make_factory

pytestmark = pytest.mark.on_ranks(2)

NAMES = [pytest.param(name, marks=pytest.mark.requires(f"{name}-jax")) for name in ("none", "mpi", "ring")]
EXCHANGING = NAMES[1:]


jax_factory = functools.cache(lambda: make_factory("jax"))  # its replicas share what is compiled


@pytest.mark.parametrize("name", NAMES)
def test_the_gates_pass(name, world, verdicts):
    backend = connect(name, control=world, framework="jax")
    assert all(verdicts(backend, jax_factory()).values())
    backend.close()


@pytest.mark.requires("mpi-jax")
def test_a_forgotten_layer_is_noticed(world, verdicts, monkeypatch):
    from dlscale.models.frameworks._jax import JaxReplica

    backend, update = connect("mpi", control=world, framework="jax"), JaxReplica.update

    def harmed(replica, gradients):
        update(replica, [gradient * (place > 0) for place, gradient in enumerate(gradients)])

    monkeypatch.setattr(JaxReplica, "update", harmed)
    assert not all(verdicts(backend, jax_factory()).values())
    backend.close()


@pytest.mark.parametrize("name", EXCHANGING)
def test_weights_stay_equal_and_go_on_from_a_state(name, world, shard):
    backend, factory = connect(name, control=world, framework="jax"), jax_factory()
    trainer = backend.distribute(factory, shard=shard, seed=11 + shard.index)
    first = trainer.weights()
    for expected, found in zip(jax_factory()(shard=shard, seed=11).weights(), first, strict=True):
        np.testing.assert_array_equal(found, expected)
    sizes = bucket_sizes(trainer.settings(), sum(4 * weight.size for weight in first))
    assert sum(sizes) == sum(4 * weight.size for weight in first)
    for _ in range(5):
        trainer.step()
    trainer.synchronize()
    state = trainer.state()
    for _ in range(5):
        trainer.step()
    last = trainer.weights()
    assert np.isfinite(trainer.loss())
    assert all(not np.array_equal(a, b) for a, b in zip(first, last, strict=True))
    assert identity_gate(last, control=world).passed
    resumed = backend.distribute(factory, shard=shard, seed=11 + shard.index)  # of the batches too
    resumed.restore(state)
    for _ in range(5):
        resumed.step()
    for expected, found in zip(last, resumed.weights(), strict=True):
        np.testing.assert_array_equal(found, expected)
    backend.close()
