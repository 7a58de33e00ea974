"""The TensorFlow trainer, alone in one process."""

import numpy as np
import pytest

from dlscale.models import load_workload
from dlscale.models.workload import Input, Shard

pytestmark = pytest.mark.requires("tensorflow")


def make_replica(workload):
    factory = load_workload(workload).factory(
        framework="tensorflow", preset="tiny", local_batch=2, source=Input()
    )
    return factory(shard=Shard(index=0, count=1), seed=1)


def test_a_step_is_traced_once():
    """Tracing is most of a short launch: an optimizer that makes its variables meanwhile has it done twice."""
    from dlscale.collectives.training._tensorflow import alone

    replica = make_replica("hep_cnn")
    differentiate, traced = replica.differentiate, []
    replica.differentiate = lambda *batch, **options: traced.append(batch) or differentiate(*batch, **options)
    trainer = alone(replica)
    for _ in range(2):
        trainer.step()
    assert len(traced) == 1


@pytest.mark.parametrize("workload", ["hep_cnn", "resnet50"])
def test_what_optimizers_keep_is_made_without_a_step(workload):
    replica = make_replica(workload)
    before = replica.state()
    replica.make_slots()
    replica.make_slots()
    after = replica.state()
    assert all(np.array_equal(after[name], before[name]) for name in before)
    kept = {name: after[name] for name in after.keys() - before.keys()}
    powers = {name: value for name, value in kept.items() if name.endswith("_power")}
    assert {name.split(".")[-1]: round(float(value), 3) for name, value in powers.items()} == (
        {"beta1_power": 0.9, "beta2_power": 0.999} if workload == "hep_cnn" else {}
    )
    assert len(kept) > len(powers)
    assert not any(kept[name].any() for name in kept.keys() - powers.keys())
