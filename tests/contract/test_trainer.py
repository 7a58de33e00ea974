"""What every backend promises to whoever trains over it, on the ranks of this launch."""

import numpy as np
import pytest

from dlscale.benchmarks.gates import gradient_gate, identity_gate
from dlscale.collectives import NAMES, connect, with_capability
from dlscale.models import load_workload
from dlscale.models.workload import Input, Shard

EXCHANGING = [name for name in NAMES if name in with_capability("exchanges")]


@pytest.fixture(params=NAMES)
def backend(request, world):
    connected = connect(request.param, control=world)
    yield connected
    connected.close()


@pytest.fixture
def shard(world):
    return Shard(index=world.Get_rank(), count=world.Get_size())


@pytest.fixture(params=["synthetic", "events"])
def factory(request):
    workload = load_workload("hep_cnn")
    source = Input() if request.param == "synthetic" else workload.input("tiny")
    return workload.factory(framework="torch", preset="tiny", local_batch=2, precision="fp32", source=source)


def test_the_gates_pass(backend, factory, world, shard):
    gates = gradient_gate(backend, factory, control=world, shard=shard, seed=5, precision="fp32")
    assert [gate.name for gate in gates if not gate.passed] == []
    expected = {"broadcast", "gradient"} if backend.capabilities.exchanges else {"gradient"}
    assert {gate.name for gate in gates} == expected


def test_weights_stay_equal_over_twenty_steps(backend, factory, world, shard):
    trainer = backend.distribute(factory, shard=shard, seed=11 + shard.index)
    assert np.isnan(trainer.loss())
    first = trainer.weights()
    for _ in range(20):
        trainer.step()
    trainer.synchronize()
    assert np.isfinite(trainer.loss())
    last = trainer.weights()
    assert all(not np.array_equal(a, b) for a, b in zip(first, last, strict=True))
    gate = identity_gate(last, control=world, name="identity")
    # Each rank has its own events, masks and first weights: only an exchange can make them agree.
    assert gate.passed == (backend.capabilities.exchanges or shard.count == 1)
    trainer.close()


def test_the_first_weights_are_those_of_rank_0(backend, factory, world, shard):
    trainer = backend.distribute(factory, shard=shard, seed=20 + shard.index)
    seed = 20 if backend.capabilities.exchanges else 20 + shard.index
    alone = factory(shard=shard, seed=seed).weights()
    for found, expected in zip(trainer.weights(), alone, strict=True):
        np.testing.assert_array_equal(found, expected)
    trainer.close()


def test_settings_are_plain_values(backend, factory, shard):
    trainer = backend.distribute(factory, shard=shard, seed=1)
    assert all(isinstance(value, str | int | float | bool) for value in trainer.settings().values())
    if backend.capabilities.exchanges:
        assert "overlap" in trainer.settings()
    trainer.close()


class Broken:
    """A backend whose trainers do something wrong with the replica's gradients."""

    def __init__(self, backend, harm):
        self._backend, self._harm = backend, harm
        self.capabilities = backend.capabilities

    def distribute(self, factory, *, shard, seed, gate=False):
        def harmed(**arguments):
            replica = factory(**arguments)
            (objective,) = replica.objectives
            objective.optimizer.register_step_pre_hook(lambda *_: self._harm(objective.parameters, shard))
            return replica

        return self._backend.distribute(harmed, shard=shard, seed=seed, gate=gate)


def summed_not_averaged(parameters, shard):
    for parameter in parameters:
        parameter.grad *= shard.count


def one_layer_forgotten(parameters, shard):
    parameters[0].grad.zero_()


def one_rank_counts(parameters, shard):
    for parameter in parameters:
        parameter.grad *= 1.0 + 1e-3 * shard.index


@pytest.mark.parametrize("name", EXCHANGING)
@pytest.mark.parametrize("harm", [summed_not_averaged, one_layer_forgotten, one_rank_counts])
def test_a_broken_exchange_does_not_pass(name, harm, world, shard):
    if shard.count == 1 and harm is not one_layer_forgotten:
        return  # with one rank the sum is the mean, and rank 0 is the one that counts
    workload = load_workload("hep_cnn")
    factory = workload.factory(
        framework="torch", preset="tiny", local_batch=2, precision="fp32", source=Input()
    )
    backend = connect(name, control=world)
    gates = gradient_gate(
        Broken(backend, harm), factory, control=world, shard=shard, seed=5, precision="fp32"
    )
    assert not all(gate.passed for gate in gates)
    backend.close()


@pytest.mark.parametrize("num_threads", [1, 2])
def test_overlap_gives_the_same_weights(num_threads, world, shard, monkeypatch):
    """With a core to spare a thread exchanges the buckets; it must not change what is computed."""
    import os

    import torch

    factory = load_workload("hep_cnn").factory(
        framework="torch", preset="tiny", local_batch=2, precision="fp32", source=Input()
    )
    monkeypatch.setattr(torch, "get_num_threads", lambda: num_threads)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    backend = connect("ring", control=world)
    trainer = backend.distribute(factory, shard=shard, seed=3)
    assert trainer.settings()["overlap"] == (num_threads < 2)
    for _ in range(5):
        trainer.step()
    gate = identity_gate(trainer.weights(), control=world, name="identity")
    assert gate.passed
    trainer.close()
    backend.close()
