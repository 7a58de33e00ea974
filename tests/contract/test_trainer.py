"""What every backend promises to whoever trains over it, on the ranks of this launch."""

import os

import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.rank.case import bucket_sizes
from dlscale.benchmarks.rank.checkpoints import share_checkpoint
from dlscale.benchmarks.rank.controls import STEPS_OF_A_TRAINING, ExchangeOnly
from dlscale.benchmarks.rank.gates import identity_gate
from dlscale.collectives import capabilities
from dlscale.collectives.registry import connect

from .conftest import Broken, make_factory

pytestmark = pytest.mark.on_ranks(1, 2, 3)


@pytest.fixture
def pair(any_pair):
    return any_pair


@pytest.fixture
def backend(pair, connected):
    return connected(*pair)


@pytest.fixture
def framework(pair):
    return pair[1]


# In TensorFlow every trainer is traced for seconds: CosmoGAN only over backends whose trainers are made another way.
OTHER_TRAINERS = ("ring", "horovod", "grpc_ps", "tf_collective")


def leave_out_if_shown(pair, name, *, cosmogan=("ring",)):
    """Skips, in TensorFlow, CosmoGAN over backends other than those, and HEP-CNN over these.

    In torch, which traces nothing, both remain.
    """
    backend, framework = pair
    if framework == "tensorflow" and (name == "cosmogan") != (backend in cosmogan):
        pytest.skip("in TensorFlow one network per backend")


# CosmoGAN has two objectives, batch norm, and random inputs that it cannot do without. On 3 ranks, by which binary
# fractions are not divided exactly, one small network shows whether means are means.
@pytest.fixture(
    params=[
        pytest.param("hep_cnn-events", marks=pytest.mark.on_ranks(2)),
        pytest.param("hep_cnn-synthetic", marks=pytest.mark.on_ranks(3)),
        pytest.param("cosmogan-synthetic", marks=pytest.mark.on_ranks(1, 2)),
    ]
)
def factory(request, pair, framework, device, world):
    name, source = request.param.split("-")
    if world.Get_size() == 2:
        leave_out_if_shown(pair, name, cosmogan=OTHER_TRAINERS)
    return make_factory(framework, name, synthetic=source == "synthetic", device=device)


def test_the_gates_pass(backend, factory, verdicts):
    expected = {"broadcast", "gradient"} if backend.capabilities.exchanges else {"gradient"}
    assert verdicts(backend, factory) == dict.fromkeys(expected, True)


@pytest.mark.on_ranks(2)
@pytest.mark.parametrize(("name", "synthetic"), [("hep_cnn", False), ("cosmogan", True)])
def test_weights_stay_equal_over_twenty_steps(
    pair, backend, framework, device, name, synthetic, world, shard
):
    leave_out_if_shown(pair, name)
    factory = make_factory(framework, name, synthetic=synthetic, device=device)
    trainer = backend.distribute(factory, shard=shard, seed=11 + shard.index)
    assert np.isnan(trainer.loss())
    first = trainer.weights()
    exchanges = backend.capabilities.exchanges
    of_rank_0 = factory(shard=shard, seed=11 if exchanges else 11 + shard.index).weights()
    assert all(map(np.array_equal, first, of_rank_0))
    for _ in range(20):
        trainer.step()
    trainer.synchronize()
    assert np.isfinite(trainer.loss())
    last = trainer.weights()
    assert all(not np.array_equal(a, b) for a, b in zip(first, last, strict=True))
    gate = identity_gate(last, control=world)
    # Each rank has its own events, masks and first weights: only an exchange can make them agree.
    assert gate.passed == (exchanges or shard.count == 1)
    trainer.close()


@pytest.mark.on_ranks(2)
def test_the_buckets_of_an_exchange_alone_hold_all_gradients(pair, backend, device, world, shard):
    name, framework = pair
    if framework not in capabilities(name).collective:
        pytest.skip("its exchange is not measured alone")
    leave_out_if_shown(pair, "cosmogan")
    factory = make_factory(framework, "cosmogan", device=device)  # two objectives
    trainer = backend.distribute(factory, shard=shard, seed=1)
    for _ in range(STEPS_OF_A_TRAINING):
        trainer.step()
    trainer.synchronize()
    gradients = sum(4 * weight.size for weight in trainer.weights())
    sizes = bucket_sizes(trainer.settings(), gradients)
    trainer.close()
    assert sum(sizes) == gradients
    collective = backend.collective()
    exchange = ExchangeOnly(collective, sizes, world.Barrier)
    for _ in range(3):
        exchange.step()
    gate = exchange.gate(world)
    collective.close()
    assert gate.passed
    assert all(seconds > 0 for seconds in exchange.take_seconds())


# What the gradient of parameter `index` is multiplied by.
def summed_not_averaged(index, shard):
    return shard.count


def one_layer_forgotten(index, shard):
    return 0.0 if index == 0 else 1.0


def one_rank_counts(index, shard):
    return 1.0 + 1e-3 * shard.index


@pytest.mark.on_ranks(2)
@pytest.mark.exchanging
@pytest.mark.parametrize("harm", [summed_not_averaged, one_layer_forgotten, one_rank_counts])
def test_a_broken_exchange_does_not_pass(pair, connected, device, harm, verdicts):
    if pair[1] == "tensorflow" and harm is not one_rank_counts:
        pytest.skip("the gate is the same in torch")
    broken = Broken(connected(*pair), harm)
    assert not all(verdicts(broken, make_factory(pair[1], device=device)).values())


@pytest.mark.on_ranks(2)
@pytest.mark.parametrize("name", ["mpi", "ring"])
def test_gates_see_through_the_staging(name, world, verdicts, monkeypatch):
    """Gradients of a device, for which the host stands here, pass and fail as those of the host do."""
    if name not in os.environ.get("DLSCALE_CONTRACT_BACKENDS", name).split(","):
        pytest.skip("this launch is of another backend")
    from dlscale.collectives.training import _torch_buckets

    class Copying(_torch_buckets.Staging):
        def on_device(self, host):
            return host.clone()

    class Forgetful(Copying):
        def on_device(self, host):
            return host * (1 - 1e-3 * (host.dim() == 1))

    backend, factory = connect(name, control=world), make_factory("torch")
    for kind in (Copying, Forgetful):
        monkeypatch.setattr(_torch_buckets, "staging_of", lambda _, kind=kind: kind())
        assert all(verdicts(backend, factory).values()) == (kind is Copying)
    backend.close()


@pytest.mark.on_ranks(1, 2)
@pytest.mark.parametrize(("name", "synthetic"), [("hep_cnn", False), ("cosmogan", True)])
def test_a_restored_training_goes_on_as_if_it_had_never_stopped(
    pair, backend, framework, device, name, synthetic, world, shard
):
    """The same weights, bit for bit: optimizers, batch norm, the samples' order and what steps draw included."""
    leave_out_if_shown(pair, name)
    if pair == ("mpi", "tensorflow"):
        pytest.skip("one class trains over both, and its state has nothing of what carries the gradients")
    if pair[0] in ("gloo", "nccl") and world.Get_size() > 2:
        pytest.skip(
            "DistributedDataParallel cuts its buckets anew after a first step: sums of 3 have another order"
        )
    if (world.Get_size() > 1) != backend.capabilities.exchanges:
        pytest.skip("shown on two ranks; on one for `none`, whose ranks have a training of their own each")
    factory = make_factory(framework, name, synthetic=synthetic, device=device)
    trainer = backend.distribute(factory, shard=shard, seed=11)
    if backend.capabilities.servers:
        with pytest.raises(UsageError, match="no checkpoints"):
            trainer.state()
        trainer.close()
        return

    def shared(one):
        return share_checkpoint(world, one.state() if shard.index == 0 else None)

    for _ in range(3):
        trainer.step()
    trainer.synchronize()
    state = shared(trainer)
    for _ in range(3):
        trainer.step()
    trainer.synchronize()
    expected, weights = trainer.state(), trainer.weights()
    evaluated = shared(trainer)
    trainer.close()

    other = backend.distribute(factory, shard=shard, seed=11)
    other.restore(state)
    for _ in range(3):
        other.step()
    other.synchronize()
    found = other.state()
    assert sorted(found) == sorted(expected)
    assert found["num_drawn"][0] == 6
    if shard.index == 0:  # what batch norm remembers is each rank's own, and all go on from that of rank 0
        assert [name for name in expected if not np.array_equal(found[name], expected[name])] == []
    assert all(np.array_equal(one, two) for one, two in zip(other.weights(), weights, strict=True))
    again = shared(other)
    assert all(np.array_equal(again[name], value) for name, value in evaluated.items()), "on every rank"
    other.close()
