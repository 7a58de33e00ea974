"""Training with compressed gradients over the backends that have them."""

import numpy as np
import pytest

from dlscale.benchmarks.rank.gates import identity_gate
from dlscale.collectives.compression import CompressedCollective
from dlscale.collectives.registry import connect

from .conftest import make_factory

pytestmark = pytest.mark.on_ranks(2)

# With few values on the wire at such small networks: a message must hold some of them.
OPTIONS = {
    "fp16": {},
    "bf16": {},
    "topk": {"topk_share": 0.05},
    "threshold": {"threshold": 1e-3},
    "qsgd": {"qsgd_levels": 1},
}
PAIRS = [
    ("mpi", "torch", "fp16"),
    ("mpi", "torch", "topk"),
    ("ring", "torch", "topk"),
    ("ring", "torch", "threshold"),
    ("ring", "torch", "qsgd"),
    ("mpi", "tensorflow", "topk"),
]


@pytest.fixture
def backend(world):
    opened = []

    def connected(name, framework, compression, **options):
        options = {"compression": compression, **OPTIONS[compression], **options}
        opened.append(connect(name, control=world, framework=framework, options=options))
        return opened[-1]

    yield connected
    for one in opened:
        one.close()


@pytest.mark.parametrize(("name", "framework", "compression"), PAIRS)
def test_the_gates_replay_what_is_sent(backend, gates, name, framework, compression):
    """Two steps: the second one sends what the first left over."""
    pytest.importorskip(framework)
    found = gates(backend(name, framework, compression), make_factory(framework))
    assert list(found) == ["broadcast", "gradient"]
    assert [(gate.name, gate.value) for gate in found.values() if not gate.passed] == []


def test_the_gate_sees_a_residual_that_is_forgotten(backend, gates, monkeypatch):
    monkeypatch.setattr(CompressedCollective, "state_of", lambda *_: {})
    gate = gates(backend("mpi", "torch", "topk"), make_factory("torch"))["gradient"]
    assert not gate.passed
    assert gate.value > 0.1


def test_steps_are_counted_in_bytes_and_weights_stay_equal(backend, world, shard):
    """Messages of 8 bytes for each of the share of a bucket's elements, to all other ranks."""
    trainer = backend("mpi", "torch", "topk", check_every=1).distribute(
        make_factory("torch"), shard=shard, seed=3
    )
    for _ in range(2):
        trainer.step()
    trainer.synchronize()
    weights, settings, states = trainer.weights(), trainer.settings(), trainer.bucket_states()
    trainer.close()
    assert identity_gate(weights, control=world).passed
    counts = [int(size) // 4 for size in settings["bucket_bytes"].split(",")]
    assert settings["wire_bytes"] == sum(8 * round(0.05 * count) for count in counts) * (shard.count - 1)
    assert (settings["compression"], settings["topk_share"]) == ("topk", 0.05)
    assert [state["residual"].size for state in states] == counts
    assert all(np.any(state["residual"] != 0) for state in states)


def test_one_after_the_other_trainers_share_no_residuals(backend, shard):
    opened = backend("ring", "torch", "topk")
    for _ in range(2):
        trainer = opened.distribute(make_factory("torch"), shard=shard, seed=3)
        assert not any(trainer.bucket_states())
        trainer.step()
        trainer.close()
