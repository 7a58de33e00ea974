"""Plans of studies on machines that are stated, for the tests of what is in them."""

from dlscale.base.quantities import Count
from dlscale.benchmarks.study.expand import expand
from dlscale.benchmarks.study.settings import OPTIONS, assigned
from dlscale.benchmarks.study.sizes import Shape, shape
from dlscale.benchmarks.study.study import load_study, placed
from dlscale.benchmarks.systems.system import Node, Policy, load_system

TINY = {"workloads": ["hep_cnn"], "preset": "tiny", "launches": 1, "reference_launches": 0}


def with_cores(number):
    node = Node(cores=Count(value=number, source="lscpu"))
    return load_system("local").model_copy(update={"node": node})


def plan(name="weak-scaling", num_cores=2, data=None, **changes):
    study, system = load_study(name, **changes), with_cores(num_cores)
    return expand(study, environment=".venv", shape=shape(study, system), data=data, policy=system.policy)


def tiny(name="weak-scaling", **changes):
    return plan(name, **{"data": "synthetic"} | TINY | changes)


def on_nodes(name="weak-scaling", *, ranks=(1, 2, 4), data="synthetic", policy=Policy(), **changes):  # noqa: B008
    """On nodes of 8 cores with 2 ranks each."""
    found = Shape(ranks=ranks, ranks_per_node=2, num_cores=8, cores_per_rank=4, threads_per_rank=3)
    study = load_study(name, **TINY | changes)
    return expand(study, environment=".venv", shape=found, data=data, policy=policy)


def options(*words):
    """The settings of `--set` words, as in a study's file."""
    return placed({}, assigned(words, OPTIONS))


def cells(planned, control=None):
    every = [case.cell for launch in planned.launches for case in launch.cases]
    return [cell for cell in every if control in (None, cell.control)]


def trained(planned, num_ranks=2):
    return [cell for cell in cells(planned, "train") if cell.num_ranks == num_ranks]
