"""Training in rounds over real ranks: the gate and the audits pass, and what goes wrong in an exchange is seen."""

from types import SimpleNamespace

import pytest

from dlscale.benchmarks.rank.audit import ReplayAudit
from dlscale.collectives.algorithms import read_algorithm
from dlscale.collectives.algorithms.easgd import Elastic
from dlscale.collectives.algorithms.rounds import RoundsBackend

from .conftest import audit_steps, make_factory

pytestmark = pytest.mark.on_ranks(2)

ELASTIC = {"interval": 2, "moving_rate": 0.8}
PAIRS = [
    pytest.param("mpi", "torch"),
    pytest.param("ring", "tensorflow", marks=pytest.mark.requires("ring-tensorflow")),
]


@pytest.fixture
def gated(connected, verdicts):
    """gated(backend, framework, options): which gates pass."""

    def found(backend, framework, options):
        rounds = RoundsBackend(connected(backend, framework), read_algorithm("easgd", options))
        passed = verdicts(rounds, make_factory(framework, synthetic=False))
        rounds._collective.close()  # the backend is closed by the fixture
        return passed

    return found


@pytest.mark.parametrize(("backend", "framework"), PAIRS)
def test_a_round_is_what_the_rule_says(backend, framework, gated):
    assert gated(backend, framework, ELASTIC) == {"broadcast": True, "gradient": True}


def test_an_exchange_that_does_something_else_fails(gated, monkeypatch):
    before = Elastic.before

    def short(self, step):
        before(self, step)
        self.centre *= 0.99

    for harm in (lambda _self, _step: None, short):
        monkeypatch.setattr(Elastic, "before", harm)
        assert not gated("mpi", "torch", ELASTIC)["gradient"]


@pytest.fixture
def audited(connected, audited_training, world, shard):
    """audited(backend, framework, harm): the audits that fail in 3 + 1 + 3 + 1 steps in rounds.

    And what the ranks have learnt; `harm` follows the warm-up.
    """

    def run(backend, framework, harm=lambda _: None):
        rounds = RoundsBackend(connected(backend, framework), read_algorithm("easgd", ELASTIC))
        factory = make_factory(framework, synthetic=False)
        trainer = rounds.distribute(factory, shard=shard, seed=11 + shard.index)
        audit = ReplayAudit(audited_training(trainer, rounds, factory))
        for _ in range(3):
            trainer.step()
        audit.count(3)
        gates = audit_steps(audit, trainer, 3, harm)
        learnt = trainer.weights()
        assert trainer.settings()["num_rounds"] == 3
        trainer.close()
        rounds._collective.close()
        failed = {name for name, gate in gates.items() if not gate.passed}
        return failed, world.allgather([weight.tobytes() for weight in learnt])

    return run


@pytest.mark.parametrize(("backend", "framework"), PAIRS)
def test_a_training_passes_its_audits_and_ranks_learn_the_same(backend, framework, audited):
    failed, learnt = audited(backend, framework)
    assert failed == set()
    assert learnt[0] == learnt[1]


def test_an_exchange_that_goes_wrong_later_is_seen(audited):
    def harm(trainer):
        trainer._rule._collective = SimpleNamespace(allreduce=lambda *_: None, size=2)

    failed, _ = audited("mpi", "torch", harm)
    assert "audit_window" in failed
