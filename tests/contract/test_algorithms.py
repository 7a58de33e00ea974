"""Training in rounds over real ranks: the gate and the audits pass, and what goes wrong in an exchange is seen."""

import numpy as np
import pytest

from dlscale.benchmarks.rank.audit import AuditedTraining
from dlscale.benchmarks.rank.deviation import bounds_for
from dlscale.benchmarks.rank.rounds import RoundsAudit, rounds_gate
from dlscale.collectives.algorithms.registry import read_algorithm
from dlscale.collectives.algorithms.rounds import RoundsBackend, RoundsTrainer
from dlscale.models import load_workload
from dlscale.models.workload import Execution, Shard

pytestmark = pytest.mark.on_ranks(2)

ALGORITHMS = [("local_sgd", {"interval": 2, "start": 1}), ("easgd", {"interval": 2, "moving_rate": 0.8})]
MOMENTUM = ("easgd", {"interval": 3, "momentum": 0.5})
PAIRS = [
    pytest.param("mpi", "torch"),
    pytest.param("ring", "tensorflow", marks=pytest.mark.requires("ring-tensorflow")),
]


def factory_of(framework):
    workload = load_workload("hep_cnn")
    return workload.factory(
        framework=framework,
        preset="tiny",
        local_batch=2,
        source=workload.input("tiny"),
        execution=Execution(),
    )


def shard_of(world):
    return Shard(index=world.Get_rank(), count=world.Get_size())


def gated(backend, framework, world, algorithm):
    """The names of the gates, and of those that failed, of an algorithm over the backend."""
    name, options = algorithm
    rounds = RoundsBackend(backend, read_algorithm(name, options))
    results = rounds_gate(
        rounds, factory_of(framework), control=world, shard=shard_of(world), seed=5, precision="fp32"
    )
    rounds._collective.close()  # the backend is closed by the fixture
    return [gate.name for gate in results], {gate.name for gate in results if not gate.passed}


@pytest.mark.parametrize(("backend", "framework"), PAIRS)
def test_a_round_is_what_the_rule_says(backend, framework, connected, world):
    # TensorFlow traces every trainer anew, which takes seconds: one algorithm there, with synchronous steps.
    for algorithm in (*ALGORITHMS, MOMENTUM) if framework == "torch" else ALGORITHMS[:1]:
        assert gated(connected(backend, framework), framework, world, algorithm) == (
            ["broadcast", "round"],
            set(),
        )


def test_an_exchange_that_does_something_else_fails(connected, world, monkeypatch):
    average = RoundsTrainer._average

    def short(self, buffer):
        average(self, buffer)
        buffer *= 0.99

    for harm in (lambda _self, _buffer: None, short):
        monkeypatch.setattr(RoundsTrainer, "_average", harm)
        for algorithm in ALGORITHMS:
            _, failed = gated(connected("mpi", "torch"), "torch", world, algorithm)
            assert "round" in failed, algorithm


def audited(backend, framework, world, algorithm, *, harm=lambda _trainer: None):
    """The audits' gates of a training of 3 + 1 + 3 + 1 steps in rounds; `harm` follows the warm-up."""
    name, options = algorithm
    rounds = RoundsBackend(backend, read_algorithm(name, options))
    factory, shard = factory_of(framework), shard_of(world)
    trainer = rounds.distribute(factory, shard=shard, seed=11 + shard.index)
    audit = RoundsAudit(
        AuditedTraining(
            trainer=trainer,
            backend=rounds,
            make_reference=lambda: factory(shard=shard, seed=11 + shard.index),
            control=world,
            bounds=bounds_for(precision="fp32", wire="float32"),
            passed=lambda _: None,
            num_skipped=lambda: 0,
        )
    )
    for _ in range(3):
        trainer.step()
    audit.count(3)
    audit.warmed_up()
    audit.begin(1)
    audit.before(0)
    harm(trainer)
    for _ in range(3):
        trainer.step()
    audit.count(3)
    audit.after(0)
    audit.end()
    gates = audit.gates()
    learnt = trainer.weights()
    assert trainer.settings()["num_rounds"] == 3
    trainer.close()
    rounds._collective.close()
    return {gate.name for gate in gates if not gate.passed}, world.allgather([w.tobytes() for w in learnt])


@pytest.mark.parametrize(("backend", "framework"), PAIRS)
def test_a_training_passes_its_audits_and_ranks_learn_the_same(backend, framework, connected, world):
    for algorithm in ALGORITHMS if framework == "torch" else ALGORITHMS[1:]:
        failed, learnt = audited(connected(backend, framework), framework, world, algorithm)
        assert failed == set(), algorithm
        assert learnt[0] == learnt[1]


def test_an_exchange_that_goes_wrong_later_is_seen(connected, world):
    def harm(trainer):
        trainer._rule._average = lambda _buffer: None

    for algorithm in ALGORITHMS:
        failed, _ = audited(connected("mpi", "torch"), "torch", world, algorithm, harm=harm)
        assert "audit_window" in failed, algorithm


def test_rounds_of_one_step_are_synchronous_sgd(connected, world):
    """With plain SGD, which the gate's replica has."""
    backend, shard, factory = connected("mpi", "torch"), shard_of(world), factory_of("torch")
    found = []
    for rounds in (backend, RoundsBackend(backend, read_algorithm("local_sgd", {"interval": 1}))):
        trainer = rounds.distribute(factory, shard=shard, seed=3, gate=True)
        trainer.step()
        trainer.synchronize()
        found.append(trainer.weights())
        trainer.close()
    rounds._collective.close()
    for synchronous, local in zip(*found, strict=True):
        np.testing.assert_allclose(local, synchronous, atol=1e-6 * max(1.0, float(np.abs(synchronous).max())))
