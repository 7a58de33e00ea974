"""JAX as the third framework: what it computes is in tests/parity and tests/contract, here what it is asked for."""

import subprocess
import sys

import pytest

from dlscale.analysis.families import _framework_pair
from dlscale.base.errors import UsageError
from dlscale.benchmarks.launch.environment import framework_remedy
from dlscale.benchmarks.records.record import Gate, Parity
from dlscale.benchmarks.study.study import EVERYTHING
from dlscale.collectives import NAMES, capabilities
from dlscale.collectives.backend import Setup
from dlscale.collectives.none import NoneBackend
from dlscale.collectives.registry import check_setup
from dlscale.models import load_workload
from dlscale.models.frameworks import check_execution
from dlscale.models.workload import Execution, Input, Shard


def test_it_is_asked_for_by_name_and_trains_over_three_backends():
    assert EVERYTHING["frameworks"] == ("torch", "tensorflow")
    assert [name for name in NAMES if "jax" in capabilities(name).frameworks] == ["none", "mpi", "ring"]
    assert framework_remedy("jax") == "pip install 'dlscale[jax]'"
    with pytest.raises(UsageError, match="cosmogan has no network in jax; choose --frameworks from: torch, "):
        load_workload("cosmogan").check_framework("jax")


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"device": "gpu"}, "device gpu"),
        ({"precision": "bf16"}, "precision bf16"),
        ({"compiled": True}, "compiled=yes"),
        ({"slept": True}, "steps that sleep"),
        ({"control": "profile"}, "control profile"),
    ],
)
def test_what_it_does_not_do_is_said_in_one_line(asked, named):
    check_execution("torch", **asked)
    with pytest.raises(UsageError, match=f"^jax was asked for {named}, but here it .*; leave that out"):
        check_execution("jax", **asked)


@pytest.mark.parametrize("name", ["mpi", "ring"])
@pytest.mark.parametrize("options", [{"pipelined": True}, {"teams": 1}])
def test_a_plan_refuses_an_exchange_that_overlaps(name, options):
    check_setup(name, options, Setup(framework="torch", num_ranks=2))
    with pytest.raises(UsageError, match="in jax all gradients of a step are there at once"):
        check_setup(name, options, Setup(framework="jax", num_ranks=2))


@pytest.mark.requires("jax")
def test_its_client_has_the_threads_that_it_was_given():
    script = (
        "import os\n"
        "from dlscale.models.frameworks import framework_module\n"
        "jax = framework_module('jax')\n"
        "jax.prepare(3)\n"
        "names = [open(f'/proc/self/task/{task}/comm').read() for task in os.listdir('/proc/self/task')]\n"
        "print(sum('XLAEigen' in name for name in names), jax.numerics()['threads'], 'NPROC' in os.environ)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["3", "3", "False"]


@pytest.mark.requires("jax")
def test_steps_within_are_not_stamped():
    factory = load_workload("hep_cnn").factory(
        framework="jax", preset="tiny", local_batch=1, source=Input(), execution=Execution()
    )
    with pytest.raises(UsageError, match="control profile"):
        NoneBackend().distribute_stamped(factory, shard=Shard(), seed=1)


def verdict(*frameworks, passed=True):
    gate = Gate(name="tiny: loss", passed=passed, value=0.0, tolerance=0.1, detail="")
    return Parity(
        workload="hep_cnn",
        preset="tiny",
        precision="fp32",
        num_parameters=dict.fromkeys(frameworks, 1),
        checks=[gate],
    )


class Trained:
    def __init__(self, framework):
        self.framework = framework


@pytest.mark.parametrize(
    ("frameworks", "verdicts", "comparable"),
    [
        (("torch", "jax"), [verdict("torch", "jax")], True),
        (("torch", "jax"), [verdict("torch", "tensorflow")], None),
        (("torch", "tensorflow", "jax"), [verdict("torch", "tensorflow")], None),
        (("torch", "tensorflow", "jax"), [verdict("torch", "tensorflow"), verdict("torch", "jax")], True),
        (("torch", "tensorflow", "jax"), [verdict("torch", "jax", passed=False)], False),
    ],
)
def test_three_are_comparable_when_each_was_compared(frameworks, verdicts, comparable):
    assert _framework_pair(map(Trained, frameworks), verdicts).comparable is comparable
