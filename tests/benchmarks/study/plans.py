"""Plans of studies on machines that are stated, for the tests of what is in them."""

from dlscale.base.quantities import Count
from dlscale.benchmarks.study.expand import expand
from dlscale.benchmarks.study.settings import OPTIONS, assigned
from dlscale.benchmarks.study.study import load_study, placed
from dlscale.benchmarks.systems.system import Node, Placement, load_system

TINY = {"workloads": ["hep_cnn"], "preset": "tiny", "launches": 1, "reference_launches": 0}


def with_cores(number):
    node = Node(cores=Count(value=number, source="lscpu"))
    return load_system("local").model_copy(update={"node": node})


def plan(name="weak-scaling", num_cores=2, data=None, **changes):
    return expand(load_study(name, **changes), with_cores(num_cores), environment=".venv", data=data)


def tiny(name="weak-scaling", **changes):
    return plan(name, **{"data": "synthetic"} | TINY | changes)


def on_nodes(name="weak-scaling", *, ranks=(1, 2, 4), data="synthetic", **changes):
    """On nodes of 8 cores with 2 ranks each, which compute with 3 threads."""
    placement = Placement(ranks_per_node=2, variables={"OMP_NUM_THREADS": "3"})
    own = {"node": with_cores(8).node, "placement": placement}
    study = load_study(name, **TINY | {"ranks": list(ranks), "base": "smallest"} | changes)
    return expand(study, load_system("template").model_copy(update=own), environment=".venv", data=data)


def options(*words):
    """The settings of `--set` words, as in a study's file."""
    return placed({}, assigned(words, OPTIONS))


def cells(planned, control=None):
    every = [case.cell for launch in planned.launches for case in launch.cases]
    return [cell for cell in every if control in (None, cell.control)]


def trained(planned, num_ranks=2):
    return [cell for cell in cells(planned, "train") if cell.num_ranks == num_ranks]
