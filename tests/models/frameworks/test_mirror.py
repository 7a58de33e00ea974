"""Every workload is the same in both frameworks, also where tests/parity does not look."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest

from dlscale.collectives.registry import connect
from dlscale.models import NAMES, load_workload
from dlscale.models.cosmogan import LATENT_SIZE
from dlscale.models.frameworks import FRAMEWORKS
from dlscale.models.workload import Execution, Input, Shard

pytestmark = pytest.mark.requires("tensorflow")
# Building Inception takes longer than all others; its layers are theirs, and tests/parity has it every day.
WORKLOADS = [
    pytest.param(name, marks=[pytest.mark.nightly] if name == "inception_v3" else []) for name in NAMES
]


def replicas(name, **options):
    """One of torch and one of TensorFlow, that see the same batches."""
    return [
        load_workload(name).factory(
            framework=framework, preset="tiny", local_batch=4, source=Input(), execution=Execution()
        )(shard=Shard(), seed=3, **options)
        for framework in FRAMEWORKS
    ]


@pytest.mark.parametrize("gate", [False, True])
@pytest.mark.parametrize("name", WORKLOADS)
def test_first_weights_are_equal(name, gate):
    one, other = replicas(name, gate=gate)
    for weight, ours, theirs in zip(one.names(), one.weights(), other.weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg=weight)


@pytest.mark.parametrize("name", WORKLOADS)
def test_what_a_step_leaves_in_running_statistics_is_equal(name):
    """Predictions rest on them; weights are made equal after the step, whose rounding differs."""
    both = replicas(name)
    for replica in both:
        trainer = connect("none", control=None).distribute(
            lambda replica=replica, **_: replica, shard=Shard(), seed=3
        )
        trainer.step()
        trainer.close()
    one, other = both
    other.load(one.weights())
    workload, rng = load_workload(name), np.random.default_rng(1)
    given = workload.data().synthetic_batch(workload.preset("tiny"), 2, rng)[0]
    if name == "cosmogan":
        given = rng.standard_normal((2, LATENT_SIZE), dtype=np.float32)
    ours, theirs = one.predict(given), other.predict(given)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-3 * np.abs(ours).max())


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("name", WORKLOADS)
def test_gates_repeat_themselves(name, framework):
    replica = replicas(name, gate=True)[FRAMEWORKS.index(framework)]
    for one, again in zip(replica.gradients(), replica.gradients(), strict=True):
        np.testing.assert_array_equal(one, again)
