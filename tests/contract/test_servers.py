"""What parameter servers promise beyond other backends: gradients as they come."""

import numpy as np
import pytest

from dlscale.benchmarks.rank.gates import identity_gate

from .conftest import Broken, make_factory


@pytest.fixture
def pair(any_served_pair):
    return any_served_pair


@pytest.mark.on_ranks(2)
def test_the_gates_of_asynchronous_training_pass(pair, connected, verdicts):
    backend = connected(*pair, {"asynchronous": True})
    assert backend.asynchronous
    workload = (
        "cosmogan" if pair[1] == "torch" else "hep_cnn"
    )  # whose graphs take TensorFlow ten seconds less
    found = verdicts(backend, make_factory(pair[1], workload))
    assert found == {"broadcast": True, "gradient": True}


@pytest.mark.on_ranks(2)
@pytest.mark.parametrize(("asynchronous", "looked_at"), [(False, {"audit_window"}), (True, set())])
def test_all_that_servers_hold_is_replayed(pair, connected, asynchronous, looked_at, audits):
    found = audits(connected(*pair, {"asynchronous": asynchronous}), make_factory(pair[1]), 5)
    assert found.keys() == {"audit_step", "audit_scale", "audit_samples", "audit_count"} | looked_at
    assert max(found.values()) < 1e-6


@pytest.mark.on_ranks(2)
def test_a_gradient_that_counts_twice_does_not_pass(pair, connected, verdicts):
    def of_the_last_rank(_, shard):
        return 2.0 if shard.index == shard.count - 1 else 1.0

    backend = Broken(connected(*pair, {"asynchronous": True}), of_the_last_rank)
    assert not all(verdicts(backend, make_factory(pair[1])).values())


@pytest.mark.on_ranks(2)
def test_nobody_waits_for_others_and_every_gradient_is_counted(pair, connected, world, shard):
    backend = connected(*pair, {"asynchronous": True})
    trainer = backend.distribute(make_factory(pair[1]), shard=shard, seed=3)
    world.Barrier()
    before = trainer.num_applied()
    world.Barrier()
    if shard.index == 0:  # alone, while the others wait below
        for _ in range(10):
            trainer.step()
    trainer.synchronize()
    world.Barrier()
    alone = trainer.num_applied() - before
    world.Barrier()
    for _ in range(5 + shard.index):
        trainer.step()
    trainer.synchronize()
    world.Barrier()
    together = trainer.num_applied() - before - alone
    loss = trainer.loss()
    same = identity_gate(trainer.served_weights(), control=world)
    staleness = trainer.staleness()
    trainer.close()
    assert same.passed, "all ranks see the servers' weights of now"
    assert not staleness or (pair[1] == "torch" and set(staleness) > {0})
    assert alone == 10
    assert together == sum(5 + rank for rank in range(shard.count))
    assert np.isfinite(loss)
