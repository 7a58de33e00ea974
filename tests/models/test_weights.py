"""A replica's state: what a training goes on from, in both frameworks."""

import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.models import load_workload
from dlscale.models.weights import decays
from dlscale.models.workload import Input, Shard

FRAMEWORKS = [
    pytest.param("torch", id="torch"),
    pytest.param("tensorflow", id="tensorflow", marks=pytest.mark.requires("tensorflow")),
]


def replica(framework, *, workload="cosmogan", seed=3):
    make = load_workload(workload).factory(framework=framework, preset="tiny", local_batch=2, source=Input())
    return make(shard=Shard(), seed=seed)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("change", ["missing", "unknown", "shape", "missing slot", "slot"])
def test_that_of_another_training_is_refused(framework, change):
    one = replica(framework)
    one.apply(one.gradients())
    state = one.state()
    owner = "optimizer" if "slot" in change else "network"
    name = next(name for name, value in state.items() if name.startswith(owner) and value.size > 1)
    if change.startswith("missing"):
        del state[name]
    elif change == "unknown":
        state["network9.weight"] = np.zeros(3, np.float32)
    else:
        state[name] = np.zeros((2, 2, 2), np.float32)
    with pytest.raises(UsageError, match="belongs to another training: "):
        one.restore(state)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_replica_can_be_taken_back_to_a_state_again_and_again(framework):
    """Also to one that it was in after its first update, and its optimizer's memory and its batches with it."""
    one = replica(framework, workload="resnet50")
    seen = []
    for _ in range(2):
        one.apply(one.gradients())
    state = one.state()
    for _ in range(2):
        one.restore(state)
        one.apply(one.gradients())
        kept = {name: value for name, value in one.state().items() if not name.startswith("network")}
        seen.append(kept | dict(enumerate(one.weights())))
    first, second = seen
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert any(not np.array_equal(first[name], state[name]) for name in first if name in state)


def test_weight_decay_spares_batch_norm_in_every_network():
    names = (
        "stem.norm.weight",
        "norms.0.bias",
        "generator.norms.2.weight",
        "normal.weight",
        "classifier.bias",
    )
    assert [decays(name) for name in names] == [False, False, False, True, True]
