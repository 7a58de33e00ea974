"""Whose weights an evaluation judges, where ranks have weights of their own, and how long it takes."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from dlscale.benchmarks.rank.evaluations import Evaluator
from dlscale.collectives.registry import connect
from dlscale.models import load_workload
from dlscale.models.workload import Execution, Shard

FACTS = load_workload("hep_cnn")
WORLD = SimpleNamespace(
    bcast=lambda value: value, gather=lambda value: [value], Bcast=lambda _: None, Get_rank=lambda: 0,
    Get_size=lambda: 1,
)  # fmt: skip
SHARD = Shard(index=0, count=1)


@pytest.mark.parametrize(("algorithm", "judges_learnt"), [("sync", False), ("easgd", True)])
def test_ranks_in_rounds_are_judged_by_what_they_learnt_together(algorithm, judges_learnt):
    source = replace(FACTS.input("tiny"), held_out=0.02)
    factory = FACTS.factory(
        framework="torch", preset="tiny", local_batch=8, source=source, execution=Execution()
    )
    own = connect("none", control=None, framework="torch").distribute(factory, shard=SHARD, seed=7)
    learnt = factory(shard=SHARD, seed=11)
    known = {"facts": FACTS, "preset_facts": FACTS.preset("tiny"), "shard": "none", "target": None}
    cell = SimpleNamespace(**known, num_servers=0, num_ranks=1, algorithm=algorithm)
    evaluator = Evaluator(cell, source, factory(shard=SHARD, seed=7), world=WORLD, facts=FACTS)
    found = evaluator.metrics(SimpleNamespace(state=own.state, weights=learnt.weights))
    expected = evaluator.metrics(SimpleNamespace(state=own.state, weights=own.weights))
    assert (found != expected) == judges_learnt
