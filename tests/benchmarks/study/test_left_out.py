"""What a rank would refuse is in no plan: named it is a mistake, among `all` it is left out with the reason."""

from types import SimpleNamespace

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.launch.preparing import usable_part
from dlscale.benchmarks.study.expand import expand
from dlscale.benchmarks.study.sizes import Shape, Size
from dlscale.benchmarks.study.study import load_study
from dlscale.benchmarks.systems.system import Policy

ONE_NODE, NODES = (Size(1, 1),), (Size(1, 1), Size(1, 2), Size(2, 4))
OPEN = {"allow_open_ports": True}


def plan(name="weak-scaling", *, sizes=NODES, **changes):
    fields = {"workloads": ["hep_cnn"], "preset": "tiny", "launches": 1, "reference_launches": 0}
    shape = Shape(sizes=sizes, ranks_per_node=2, num_cores=8, cores_per_rank=4, threads_per_rank=4)
    study = load_study(name, **fields | changes)
    return expand(study, environment="default", shape=shape, data="synthetic", policy=Policy())


def trained(planned):
    return {(launch.cell.workload, launch.cell.framework) for launch in planned.launches}


def nodes_of(planned, backend):
    return sorted({launch.cell.num_nodes for launch in planned.launches if launch.cell.backend == backend})


def here(planned, **problems):
    """What is left of a plan where torch is installed, and these backends cannot be used."""
    report = SimpleNamespace(
        frameworks=["torch"], problems={f"{name}/torch": text for name, text in problems.items()}
    )
    return usable_part(planned, report, SimpleNamespace(name="mine"), launcher="mpiexec")


def test_a_framework_that_is_not_installed_is_left_out_among_all_and_refused_when_named():
    planned = here(plan(frameworks=["all"], backends=["ring"]))
    assert (planned.study.frameworks, trained(planned)) == (["torch"], {("hep_cnn", "torch")})
    assert planned.warnings[-1].startswith("tensorflow is left out: environment mine has no tensorflow; pip")
    with pytest.raises(UsageError, match="environment mine has no tensorflow"):
        here(plan(frameworks=["tensorflow"], backends=["ring"]))


def test_so_is_a_backend_that_cannot_be_used_here():
    for own in (plan(backends=None), plan(backends=["all"])):
        left = here(own, ring="not built; make ring")
        assert {launch.cell.backend for launch in left.launches} >= {"none", "mpi"}
        assert "ring in torch is left out: not built; make ring" in left.warnings
    with pytest.raises(UsageError, match="not built; make ring"):
        here(plan(backends=["none", "ring"]), ring="not built; make ring")


@pytest.mark.parametrize(
    ("backend", "framework", "device"),
    [("gloo", "torch", "cpu"), ("tf_collective", "tensorflow", "cpu"), ("grpc_ps", "tensorflow", "cpu")]
    + [("nccl", framework, "gpu") for framework in ("torch", "tensorflow")]
    + [("xccl", "torch", "gpu")],
)
def test_open_ports_between_nodes_must_be_allowed(backend, framework, device):
    asked = {"backends": ["none", backend], "frameworks": [framework], "device": device}
    with pytest.raises(
        UsageError, match=f"backend {backend} was asked for across machines.*allow_open_ports"
    ):
        plan(**asked)
    assert nodes_of(plan(**asked, backend_options={backend: OPEN}), backend) != []
    assert nodes_of(plan(**asked, sizes=ONE_NODE), backend) == [1]


def test_servers_that_ask_for_a_token_need_no_leave():
    assert 2 in nodes_of(plan(backends=["grpc_ps"], frameworks=["torch"]), "grpc_ps")


@pytest.mark.parametrize("backends", [None, ["all"]])
def test_backends_that_nobody_named_are_left_out_where_they_would_be_refused(backends):
    planned = plan(backends=backends)
    assert nodes_of(planned, "ring") == [1, 2]
    assert nodes_of(planned, "gloo") == [1]
    (warning,) = [text for text in planned.warnings if text.startswith("gloo")]
    assert warning.startswith(
        "gloo in torch on 4 ranks is left out: backend gloo was asked for across machines"
    )


def test_an_operation_that_is_not_one_of_gpus_is_refused_on_them():
    with pytest.raises(UsageError, match=r"set horovod\.operations=nccl"):
        plan(backends=["none", "horovod"], device="gpu")
    planned = plan(
        backends=["none", "horovod"], device="gpu", backend_options={"horovod": {"operations": "nccl"}}
    )
    assert nodes_of(planned, "horovod") == [1, 2]


def test_several_ranks_without_any_exchange_are_not_worth_their_nodes():
    with pytest.raises(UsageError, match="backend nccl was asked for across machines"):
        plan(device="gpu")  # whose own backends are none and nccl


def test_what_is_left_on_one_rank_alone_is_no_base_case_of_anything():
    planned = plan(sizes=(Size(1, 1), Size(2, 4)), base="own")
    assert nodes_of(planned, "gloo") == []
    assert nodes_of(planned, "ring") == [1, 2]
