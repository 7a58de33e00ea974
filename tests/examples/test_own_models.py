"""The examples of own models in one file: they are workloads, and learn."""

from dataclasses import replace
from pathlib import Path

import pytest

from dlscale.models.own import own_workload
from dlscale.models.own.facts import read_facts
from dlscale.models.own.model import FilePlace
from dlscale.models.quality.metric import HeldOut
from dlscale.models.workload import Shard

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "framework"),
    [
        ("lstm_events.py", "torch"),
        pytest.param("lstm_events_keras.py", "tensorflow", marks=pytest.mark.requires("tensorflow")),
    ],
)
def test_the_lstm_learns_to_tell_events_apart(name, framework):
    path = EXAMPLES / name
    facts = read_facts(path)
    assert (facts.framework, facts.input_shape, facts.num_samples) == (framework, [30, 3], 4000)
    workload = own_workload(facts, FilePlace(path, path))
    source = replace(workload.input("own"), held_out=0.125)
    make = workload.factory(framework=framework, preset="own", local_batch=16, source=source)
    replica = make(shard=Shard(), seed=1)
    held_out = HeldOut(workload.data(), workload.quality(), preset=workload.preset(), source=source)
    before = held_out.metrics(list(held_out.measure(replica.predict, Shard())))
    for _ in range(120):
        replica.apply(replica.gradients())
    after = held_out.metrics(list(held_out.measure(replica.predict, Shard())))
    assert set(after) == {"auc", "accuracy", "loss"}
    assert after["auc"] > max(0.75, before["auc"])
    assert after["loss"] < before["loss"]
