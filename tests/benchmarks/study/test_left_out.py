"""What a rank would refuse is in no plan: it is left out with the reason, or a mistake where nothing named is left."""

from types import SimpleNamespace

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.launch.campaign import usable_part
from dlscale.collectives.sharding import NAMES as SHARDS
from dlscale.models import NAMES as WORKLOADS
from tests.benchmarks.study.plans import cells, on_nodes, plan, tiny, trained

OPEN = {"allow_open_ports": True}


def nodes_of(planned, backend):
    return sorted({launch.cell.num_nodes for launch in planned.launches if launch.cell.backend == backend})


def here(planned, **problems):
    """What is left of a plan where torch is installed, and these backends cannot be used."""
    report = SimpleNamespace(
        frameworks=["torch"],
        problems={f"{name}/torch": text for name, text in problems.items()},
        gpus=[],
    )
    return usable_part(planned, report, SimpleNamespace(name="mine"), launcher="mpiexec")


def test_a_framework_that_is_not_installed_is_left_out_among_all_and_refused_when_named():
    planned = here(tiny(frameworks=["all"], backends=["ring"]))
    assert (planned.study.frameworks, {cell.framework for cell in cells(planned)}) == (["torch"], {"torch"})
    assert planned.warnings[-1].startswith("tensorflow is left out: environment mine has no tensorflow; pip")
    with pytest.raises(UsageError, match="environment mine has no tensorflow"):
        here(tiny(frameworks=["tensorflow"], backends=["ring"]))


def test_so_is_a_backend_that_cannot_be_used_here():
    for own in (plan(), plan(backends=["all"])):
        left = here(own, ring="not built; make ring")
        assert {launch.cell.backend for launch in left.launches} >= {"none", "mpi"}
        assert "ring in torch is left out: not built; make ring" in left.warnings
    with pytest.raises(UsageError, match="not built; make ring"):
        here(tiny(backends=["none", "ring"]), ring="not built; make ring")


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
        on_nodes(**asked)
    assert 2 in nodes_of(on_nodes(**asked, backend_options={backend: OPEN}), backend)
    assert nodes_of(on_nodes(**asked, ranks=(1,)), backend) == [1]


@pytest.mark.parametrize("backends", [None, ["all"], ["none", "gloo", "ring"]])
def test_a_backend_is_left_out_where_it_would_be_refused(backends):
    planned = on_nodes(backends=backends)
    assert nodes_of(planned, "ring") == [1, 2]
    assert nodes_of(planned, "gloo") == [1]
    (warning,) = [text for text in planned.warnings if text.startswith("gloo")]
    assert warning.startswith(
        "gloo in torch on 4 ranks is left out: backend gloo was asked for across machines"
    )


def test_several_ranks_without_any_exchange_are_not_worth_their_nodes():
    with pytest.raises(UsageError, match="backend nccl was asked for across machines"):
        on_nodes(device="gpu")  # whose own backends are none and nccl


def test_servers_that_ask_for_a_token_need_no_leave_and_operations_of_gpus_are_named():
    assert 2 in nodes_of(on_nodes(backends=["grpc_ps"]), "grpc_ps")
    with pytest.raises(UsageError, match=r"set horovod\.operations=nccl"):
        on_nodes(backends=["none", "horovod"], device="gpu")
    nccl = {"horovod": {"operations": "nccl"}}
    assert nodes_of(
        on_nodes(backends=["none", "horovod"], device="gpu", backend_options=nccl), "horovod"
    ) == [1, 2]


def test_numbers_of_servers_above_the_workers_are_left_out_and_equal_ones_counted_once():
    found = plan(backends=["grpc_ps"], preset="tiny", servers=["1", "2", "1/2"])
    assert {(c.num_ranks, c.num_servers) for c in cells(found, "train")} == {(1, 1), (2, 1), (2, 2)}
    (warning,) = found.warnings
    assert "grpc_ps in torch on 1 ranks is left out: 2 servers for 1 workers" in warning


def test_usual_sizes_that_do_not_divide_a_global_batch_are_left_out_of_that_workload():
    found = plan("strong-scaling", num_cores=4, workloads=["hep_cnn", "cosmogan"], backends=["none", "ring"])
    assert {c.num_ranks for c in cells(found) if c.workload == "hep_cnn"} == {1, 2, 4}
    (warning,) = [text for text in found.warnings if "hep_cnn" in text]
    assert warning.startswith(
        "none in torch, ring in torch on 3 ranks are left out: strong scaling of hep_cnn (small)"
    )


def test_all_stands_for_everything_that_can_train():
    found = plan(workloads=["all"], frameworks=["all"], preset="tiny")
    everything = {(c.workload, c.framework, c.backend) for c in cells(found)}
    for workload in WORKLOADS:
        assert {(workload, "torch", "gloo"), (workload, "tensorflow", "ring")} <= everything
        assert (workload, "tensorflow", "gloo") not in everything
    line = "gloo in tensorflow is left out: backend gloo does not support tensorflow, only torch"
    assert found.warnings == plan(frameworks=["tensorflow"]).warnings == (line,)


def sharded(planned):
    return {(c.backend, c.algorithm, c.shard) for c in trained(planned)}


def test_each_sharding_is_a_curve_of_the_backends_that_carry_it_and_none_trains_once():
    planned = tiny(backends=["none", "gloo", "mpi"], shard=list(SHARDS))
    gloo, mpi = ([(name, "sync", shard) for shard in SHARDS] for name in ("gloo", "mpi"))
    assert sharded(planned) == {("none", "sync", "none"), *gloo, *mpi[:2]}
    assert len(trained(planned)) == 6
    (warning,) = planned.warnings
    assert warning.startswith(
        "mpi, parameters sharded in torch is left out: backend mpi has no shard=parameters"
    )


@pytest.mark.parametrize(
    ("changes", "left", "words"),
    [
        (
            {"backends": ["none", "gloo", "mpi_ps"], "shard": "optimizer"},
            {("none", "sync", "none"), ("gloo", "sync", "optimizer")},
            "mpi_ps, optimizer sharded in torch is left out: backend mpi_ps has no shard=optimizer",
        ),
        (
            {"backends": ["ring"], "algorithms": ["sync", "easgd"], "shard": ["none", "optimizer"]},
            {("ring", "sync", "none"), ("ring", "sync", "optimizer"), ("ring", "easgd", "none")},
            "ring easgd, optimizer sharded in torch is left out: ",
        ),
        (
            {
                "backends": ["ring"],
                "shard": ["none", "optimizer"],
                "backend_options": {"ring": {"pipelined": [False, True]}},
            },
            {("ring", "sync", "none"), ("ring", "sync", "optimizer")},
            "ring.pipelined=True with shard=optimizer",
        ),
        (
            {
                "backends": ["none", "ring", "tf_collective"],
                "algorithms": ["easgd"],
                "frameworks": ["tensorflow"],
            },
            {("none", "sync", "none"), ("ring", "easgd", "none")},
            "tf_collective easgd in tensorflow is left out: backend tf_collective does not carry algorithm easgd",
        ),
    ],
)
def test_what_a_backend_does_not_carry_is_left_out_of_it(changes, left, words):
    planned = tiny(**changes)
    assert sharded(planned) == left
    (warning,) = planned.warnings
    assert words in warning
