"""Trainings whose state lies in parts on the ranks: they do what others do, and faults of parts are seen."""

import os

import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.rank.audit import ReplayAudit
from dlscale.benchmarks.rank.gates import update_gates
from dlscale.collectives import NAMES, capabilities
from dlscale.collectives.backend import GATHER_SIZES
from dlscale.collectives.sharding import check_sharding
from dlscale.models.workload import WEIGHT

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
    assert {gate.name: gate.passed for gate in found} == dict.fromkeys(("broadcast", "gradient"), True)
    trainer = backend.distribute(factory, shard=shard, seed=11 + shard.index)
    gates = audit_steps(ReplayAudit(audited_training(trainer, backend, factory)), trainer, 3)
    assert all(gate.passed for gate in gates.values()), gates
    assert all(gate.value is not None for gate in gates.values())
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
    gates = audit_steps(ReplayAudit(audited_training(trainer, backend, factory)), trainer, 3)
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
