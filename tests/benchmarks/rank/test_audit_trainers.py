"""Audits of real trainers on one rank: what they replay is right bit by bit, and faults that begin later are seen."""

from types import SimpleNamespace

import pytest

from dlscale.benchmarks.rank.audit import ReplayAudit
from dlscale.benchmarks.rank.deviation import bounds_for
from dlscale.benchmarks.rank.reference import AuditedTraining
from dlscale.collectives.registry import connect
from dlscale.models import load_workload
from dlscale.models.workload import Execution, Shard

FRAMEWORKS = [
    pytest.param("torch", id="torch"),
    pytest.param("tensorflow", id="tensorflow", marks=pytest.mark.requires("tensorflow")),
]
CONTROL = SimpleNamespace(
    allgather=lambda value: [value],
    bcast=lambda value: value,
    Barrier=lambda: None,
    Get_rank=lambda: 1,
    Get_size=lambda: 2,
)
WARM_UP, LATER = 3, 4


def audit_of(
    framework,
    plant=lambda _trainer, _replica: None,
    *,
    harm=lambda _replica: None,
    workload="hep_cnn",
    precision="fp32",
):
    """The gates of a training of 3 + 1 + 2 + 1 steps, after `plant` (trainer) and `harm` (replica)."""
    facts = load_workload(workload)
    factory = facts.factory(
        framework=framework,
        preset="tiny",
        local_batch=4,
        source=facts.input("tiny"),
        execution=Execution(precision=precision),
    )
    shard = Shard(index=1, count=2)
    replicas = []

    def remembering(**arguments):
        replicas.append(factory(**arguments))
        harm(replicas[-1])
        return replicas[-1]

    backend = connect("none", control=None, framework=framework)
    trainer = backend.distribute(remembering, shard=shard, seed=7)
    plant(trainer, replicas[0])
    audit = ReplayAudit(
        AuditedTraining(
            trainer=trainer,
            backend=backend,
            make_reference=lambda: factory(shard=shard, seed=7),
            control=CONTROL,
            shard=shard,
            bounds=bounds_for(precision=precision),
        )
    )
    for _ in range(WARM_UP):
        trainer.step()
    audit.count(WARM_UP)
    audit.warmed_up()
    audit.begin(1)
    audit.before(0)
    for _ in range(2):
        trainer.step()
    audit.count(2)
    audit.after(0)
    audit.end()
    return {gate.name: gate for gate in audit.gates()}


@pytest.mark.slow
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(
    ("workload", "precision"), [("hep_cnn", "fp32"), ("hep_cnn", "bf16"), ("resnet50", "fp32")]
)
def test_a_replay_is_the_training_bit_by_bit(framework, workload, precision):
    """Adam, and momentum with weight decay for some of the weights; events, masks and random crops."""
    gates = audit_of(framework, workload=workload, precision=precision)
    names = ("audit_step", "audit_scale", "audit_window", "audit_samples")
    assert {name: gate.value for name, gate in gates.items()} == dict.fromkeys(names, 0.0)


def nothing_at_all(trainer, _replica):
    """From step LATER on."""
    step, number = trainer.step, iter(range(1000))
    trainer.step = lambda: None if next(number) >= LATER else step()


def another_shard(_trainer, replica):
    replica._batches._shard = Shard(index=0, count=2)
    replica._batches.begin_at(0)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(
    ("plant", "name"), [(nothing_at_all, "audit_samples"), (another_shard, "audit_step")]
)
def test_a_trainer_that_does_something_else_fails(framework, plant, name):
    gates = audit_of(framework, plant)
    assert not gates[name].passed
    assert not gates["audit_window"].passed


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_mean_a_little_too_small_is_seen_in_bfloat16(framework):
    """Half a percent, which the largest rounding of a bfloat16 (0.4 %) comes near to."""
    gates = audit_of(framework, harm=a_little_less, precision="bf16")
    assert not gates["audit_scale"].passed
    assert gates["audit_scale"].value == pytest.approx(0.005, rel=0.7)


def a_little_less(replica):
    if replica.framework == "torch":
        for parameter in replica.objectives[0].parameters:
            parameter.register_hook(lambda gradient: gradient * 0.995)
        return
    differentiate = replica.differentiate

    def less(*batch, **options):
        losses, groups, updates = differentiate(*batch, **options)
        return losses, [[gradient * 0.995 for gradient in group] for group in groups], updates

    replica.differentiate = less
