"""Ranks that share samples do what one device does with whole ones, over every carrier, and what is wrong is seen."""

from dataclasses import replace
from functools import partial

import pytest

from dlscale.benchmarks.rank.audit import ReplayAudit
from dlscale.benchmarks.rank.gates import split_gate, update_gates
from dlscale.collectives.neighbours import carrier_of, connect_neighbours, over_control
from dlscale.models.workload import Execution, Input, Shard
from tests.faults import halos
from tests.taller import taller

from .conftest import audit_steps, device_of, mark, take_gpu

pytestmark = pytest.mark.on_ranks(2, 3, 4)

BACKENDS = [pytest.param(name, marks=mark(name, "torch")) for name in ("mpi", "gloo")]
TALLER = 96  # rows of ResNet-50's smallest preset: 3 blocks of 32


@pytest.fixture
def shared(world, connected):
    """shared(split, backend=...): this rank's shard beside that backend, which is connected."""
    opened = []
    if device_of("none") == "gpu":
        take_gpu("torch")

    def made(split=None, *, backend="mpi"):
        split, carrier = split or world.Get_size(), carrier_of(backend, framework="torch")
        opened.append(connect_neighbours(carrier, control=world, split=split))
        rank, size = world.Get_rank(), world.Get_size()
        return Shard(index=rank // split, count=size // split, neighbours=opened[-1])

    yield made
    for neighbours in opened:
        neighbours.close()


def factory_of(name, *, preset="tiny", framework="torch", height=None, precision="fp64"):
    return taller(name, preset, height).factory(
        framework=framework,
        preset=preset,
        local_batch=2,
        source=Input(),
        execution=Execution(device=device_of("none"), precision=precision),
    )


@pytest.fixture
def gate(world):
    """gate(shard, name, ...): what `split_gate` says of that network."""
    return lambda shard, *of, **more: split_gate(factory_of(*of, **more), control=world, shard=shard, seed=3)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "split",
    [
        pytest.param(split, marks=pytest.mark.on_ranks(*sizes))
        for split, *sizes in ((2, 2, 4), (3, 3), (4, 4))
    ],
)
def test_gates_pass_over_every_carrier(shared, connected, gate, backend, split):
    """On 3 ranks rows are uneven: 2 + 1 + 1 of 4 blocks. On 4 there are two replicas of 2, or one."""
    connected(backend, "torch")
    shard = shared(split, backend=backend)
    assert gate(shard, "hep_cnn").passed


@pytest.mark.parametrize(
    ("network", "more"),
    [
        pytest.param("cosmogan", {}, marks=pytest.mark.on_ranks(2)),
        pytest.param("cosmogan", {"preset": "small"}, marks=pytest.mark.on_ranks(3)),
        pytest.param("resnet50", {"height": TALLER}, marks=pytest.mark.on_ranks(2, 3)),
    ],
)
def test_batch_norm_is_over_the_ranks(shared, gate, network, more):
    found = gate(shared(), network, **more)
    assert found.passed, found


@pytest.mark.on_ranks(2, 4)
@pytest.mark.parametrize("backend", ["mpi", "ring", "none"])
def test_trainings_pass_their_gates_and_audits(shared, connected, backend, audited_training, world):
    """The reference asks its neighbours over the control plane."""
    connection, factory = connected(backend, "torch"), factory_of("hep_cnn", precision="fp32")
    shard = shared(2)
    found = update_gates(connection, factory, control=world, shard=shard, seed=5, precision="fp32")
    assert all(gate.passed for gate in found), found
    trainer = connection.distribute(factory, shard=shard, seed=11 + shard.index)
    beside = Shard(index=shard.index, count=shard.count, neighbours=over_control(world, split=2))
    training = audited_training(trainer, connection, lambda **_: factory(shard=beside, seed=11 + shard.index))
    gates = audit_steps(ReplayAudit(replace(training, shard=shard)), trainer, 3)
    assert all(gate.passed for gate in gates.values()), gates
    assert all(gate.value is not None for gate in gates.values())
    trainer.close()


# Halos of outputs and gradients of HEP-CNN `tiny`: 3, and 3 and 2.
stale = partial(halos.halo_of_the_step_before, period=8, later=0)


@pytest.mark.on_ranks(2)
@pytest.mark.parametrize(
    ("fault", "network", "more"),
    [
        (halos.narrow_halo, "hep_cnn", {}),
        (halos.edge_gradient_dropped, "hep_cnn", {}),
        (halos.batch_norm_of_own_rows, "cosmogan", {}),
        (halos.uneven_taken_for_even, "hep_cnn", {"preset": "paper", "height": 48}),  # 3 blocks
        (stale, "hep_cnn", {}),
    ],
)
def test_a_fault_is_seen(shared, gate, fault, network, more, monkeypatch):
    fault(monkeypatch.setattr)
    found = gate(shared(), network, **more)
    assert not found.passed
    assert found.value is None or found.value > 100 * found.tolerance
