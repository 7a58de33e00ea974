"""Trainings whose state lies in parts on the ranks: they do what others do, and faults of parts are seen."""

import os

import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.rank.audit import REPLAY_GATES
from dlscale.benchmarks.rank.checks import make_audit, update_gates
from dlscale.benchmarks.rank.gates import sharding_gate
from dlscale.collectives import NAMES, capabilities
from dlscale.collectives.backend import GATHER_SIZES
from dlscale.collectives.sharding import check_sharding
from dlscale.collectives.sharding.optimizer import TimedCollective
from dlscale.models.weights import WEIGHT

from .conftest import audit_steps, device_of, make_factory, mark

pytestmark = pytest.mark.on_ranks(1, 2, 3)

ADAM_SLOTS = 2  # beside each weight
PADDING = 4000  # bytes on a rank, of short chunks and of counts of steps


def carries(name, shard):
    """On the device of this launch."""
    device = os.environ.get("DLSCALE_CONTRACT_DEVICE", "cpu")
    try:
        check_sharding(name, {}, framework="torch", shard=shard, device=device)
    except UsageError:
        return False
    return device in capabilities(name).devices


SHARDED = [
    pytest.param(name, shard, id=f"{name}-{shard}", marks=mark(name, "torch"))
    for name in NAMES
    for shard in capabilities(name).shards
    if carries(name, shard)
]
of_all = pytest.mark.parametrize(("name", "sharding"), SHARDED)


@pytest.fixture
def sharded(connected):
    """sharded(name, sharding): a backend that is closed when the test ends."""
    return lambda name, sharding: connected(name, "torch", shard=sharding)


@of_all
def test_gates_and_audits_pass_and_each_rank_keeps_its_part(
    sharded, name, sharding, audited_training, world, shard
):
    backend, factory = sharded(name, sharding), make_factory("torch", device=device_of(name))
    found = update_gates(backend, factory, control=world, shard=shard, seed=5, precision="fp32")
    assert {gate.name: gate.passed for gate in found} == dict.fromkeys(
        ("broadcast", "gradient", "sharding"), True
    )
    trainer = backend.distribute(factory, shard=shard, seed=11 + shard.index)
    gates = audit_steps(make_audit(audited_training(trainer, backend, factory)), trainer, 3)
    assert all(gate.passed for gate in gates.values()), gates
    assert all(gates[name].value is not None for name in REPLAY_GATES)
    held = trainer.held()
    weights = sum(value.nbytes for key, value in held.items() if key.startswith(f"{WEIGHT}."))
    kept = trainer.state_bytes()
    in_parts = {kept.optimizer: ADAM_SLOTS * weights}
    if sharding == "parameters":
        in_parts |= {kept.parameters: weights, kept.gradients: weights}
    else:
        assert kept.parameters >= weights
    for found, expected in in_parts.items():
        most = world.allreduce(found, op=max)
        assert expected <= most * world.Get_size() < expected + PADDING * world.Get_size()
    trainer.close()


@pytest.mark.on_ranks(2)
@pytest.mark.parametrize(("network", "num_gathers"), [("cosmogan", 3), ("gpt", 2 * 2 + 1)])
def test_units_are_gathered_for_each_pass_that_needs_them(
    sharded, network, num_gathers, audited_training, world, shard
):
    """GPT's two blocks twice, and the rest once; of CosmoGAN's networks the one that both losses go back through."""
    backend, factory = sharded("gloo", "parameters"), make_factory("torch", network)
    found = update_gates(backend, factory, control=world, shard=shard, seed=5, precision="fp32")
    assert all(gate.passed for gate in found), found
    trainer = backend.distribute(factory, shard=shard, seed=11 + shard.index)
    gates = audit_steps(make_audit(audited_training(trainer, backend, factory)), trainer, 3)
    assert all(gate.passed for gate in gates.values()), gates
    assert len(str(trainer.settings()[GATHER_SIZES]).split(",")) == num_gathers
    trainer.close()


@pytest.mark.on_ranks(2)
@of_all
def test_a_saved_state_goes_on_with_and_without_shards(sharded, name, sharding, world, shard):
    backend, factory = sharded(name, sharding), make_factory("torch", device=device_of(name))
    trainer = backend.distribute(factory, shard=shard, seed=11)
    trainer.step()
    state = trainer.state()
    trainer.step()
    resumed = backend.distribute(factory, shard=shard, seed=11)
    resumed.restore(state)
    resumed.step()
    assert all(map(np.array_equal, resumed.weights(), trainer.weights()))
    whole = factory(shard=shard, seed=11)
    whole.restore(state)
    assert all(np.array_equal(value, state[key]) for key, value in whole.state().items())
    for each in (trainer, resumed):
        each.close()


def never(kind, name, monkeypatch):
    """The part of one rank is not updated."""
    monkeypatch.setattr(kind, name, lambda *_: None)


def twice(kind, name, monkeypatch):
    """The part of one rank is updated twice."""
    update = getattr(kind, name)

    def both(self, *given):
        update(self, *given)
        return update(self, *given)

    monkeypatch.setattr(kind, name, both)


def stale(_kind, _name, monkeypatch):
    """One rank gets the other's part as it was a step before."""
    gather, before = TimedCollective.allgather, {}

    def late(self, piece, output):
        own = piece.copy()
        gather(self, piece, output)
        fresh = output.copy()
        output[:] = before.get(output.size, fresh)
        output[self.rank * own.size : (self.rank + 1) * own.size] = own
        before[output.size] = fresh

    monkeypatch.setattr(TimedCollective, "allgather", late)


def place_of(sharding):
    """Where a rank updates its part."""
    if sharding == "parameters":
        from dlscale.collectives.sharding._torch_parameters import PieceUpdate

        return PieceUpdate, "apply"
    from dlscale.collectives.sharding._torch_optimizer import PartUpdate

    return PartUpdate, "apply"


@pytest.mark.on_ranks(2)
@pytest.mark.parametrize(
    ("name", "sharding", "fault"),
    [
        *(("mpi", "optimizer", fault) for fault in (never, twice, stale)),
        ("gloo", "parameters", twice),
    ],
)
def test_a_fault_of_a_part_is_seen(sharded, name, sharding, fault, monkeypatch, world, shard):
    backend = sharded(name, sharding)
    if shard.index == 1:
        fault(*place_of(sharding), monkeypatch)
    factory = make_factory("torch", device=device_of(name))
    gate = sharding_gate(backend, factory, control=world, shard=shard, seed=5, precision="fp32")
    assert not gate.passed
    assert gate.value is None or gate.value > 10 * gate.tolerance
