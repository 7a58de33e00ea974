"""What a study shards: a curve for each value, over the backends that carry it and nowhere else."""

from typing import get_args

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.study.settings import OPTIONS
from dlscale.benchmarks.study.study import Study
from dlscale.collectives.sharding import NAMES
from tests.benchmarks.study.test_axes import plan, trained

ALL = {"shard": list(NAMES)}


def sharded(planned, num_ranks=2):
    return {(c.backend, c.framework, c.algorithm, c.shard) for c in trained(planned, num_ranks)}


def test_the_study_has_the_values_that_collectives_have():
    assert get_args(Study.model_fields["shard"].annotation) == NAMES


def test_each_value_is_a_curve_of_the_backends_that_carry_it_and_none_trains_once():
    planned = plan(backends=["none", "gloo", "mpi"], **ALL)
    assert sharded(planned) == {
        ("none", "torch", "sync", "none"),
        *(("gloo", "torch", "sync", shard) for shard in NAMES),
        *(("mpi", "torch", "sync", shard) for shard in ("none", "optimizer")),
    }
    assert len(trained(planned)) == 6
    assert planned.warnings == (
        "mpi, parameters sharded in torch is left out: backend mpi has no shard=parameters in torch",
    )


def test_a_framework_has_only_what_it_carries():
    planned = plan(backends=["ring"], frameworks=["torch", "tensorflow"], shard="optimizer")
    assert sharded(planned) == {("ring", "torch", "sync", "optimizer")}
    (warning,) = planned.warnings
    assert "backend ring has no shard=optimizer in tensorflow" in warning


def test_one_value_alone_leaves_the_backends_out_that_lack_it_but_not_the_base_case():
    planned = plan(backends=["none", "gloo", "mpi_ps"], shard="optimizer")
    assert {(backend, shard) for backend, _, _, shard in sharded(planned)} == {
        ("none", "none"),
        ("gloo", "optimizer"),
    }
    (warning,) = planned.warnings
    assert "backend mpi_ps has no shard=optimizer in torch" in warning


def test_algorithms_with_weights_of_each_rank_are_not_sharded():
    planned = plan(backends=["ring"], algorithms=["sync", "easgd"], shard=["none", "optimizer"])
    assert sharded(planned) == {
        ("ring", "torch", "sync", "none"),
        ("ring", "torch", "sync", "optimizer"),
        ("ring", "torch", "easgd", "none"),
    }
    (warning,) = planned.warnings
    assert warning.startswith("ring easgd, optimizer sharded in torch is left out: ")


def test_options_for_averaged_gradients_leave_the_sharded_curves_out():
    options = {"ring": {"pipelined": [False, True]}}
    planned = plan(backends=["ring"], shard=["none", "optimizer"], backend_options=options)
    assert sorted(c.shard for c in trained(planned)) == ["none", "none", "optimizer"]
    assert "ring.pipelined=True with shard=optimizer" in planned.warnings[0]


def test_communication_only_is_a_control_of_averages():
    cells = [case.cell for launch in plan(backends=["gloo"], **ALL).launches for case in launch.cases]
    assert {cell.shard for cell in cells if cell.control == "exchange"} == {"none"}


@pytest.mark.parametrize("text", ["none,optimizer", "none|optimizer"])
def test_values_are_separated_by_commas_or_bars(text):
    assert OPTIONS["shard"].read(text) == {"shard": ["none", "optimizer"]}


REFUSED = [
    (
        {"backends": ["mpi"], "shard": "parameters"},
        "over mpi in torch: nothing here carries it; in torch these do: gloo, nccl$",
    ),
    (
        {"backends": ["ring"], "frameworks": ["tensorflow"], "shard": ["none", "optimizer"]},
        "over ring in tensorflow: nothing here carries it; in torch these do: mpi, gloo, ring$",
    ),
    ({"backends": ["none"], "shard": "optimizer"}, "shard=optimizer over none in torch: nothing here"),
    ({"backends": ["mpi_ps"], "shard": "optimizer"}, "shard=optimizer over mpi_ps in torch: nothing here"),
    (
        {"backends": ["ring"], "algorithms": ["easgd"], "shard": "optimizer"},
        "shard=optimizer with algorithm easgd: there every rank has weights of its own",
    ),
    (
        {"backends": ["gloo"], "shard": "parameters", "compiled": True},
        "shard=parameters with compiled networks: a graph of torch.compile ends wherever weights are gathered",
    ),
    (
        {"backends": ["ring"], "shard": "optimizer", "backend_options": {"ring": {"pipelined": True}}},
        "ring.pipelined=True with shard=optimizer: that is for gradients that all ranks average",
    ),
    (
        {"backends": ["ring"], "shard": "optimizer", "device": "gpu"},
        "shard=optimizer works on host memory, .* choose device cpu, or shard=parameters$",
    ),
    ({"backends": ["ring"], "shard": "all"}, "shard"),
]


@pytest.mark.parametrize(("changes", "words"), REFUSED)
def test_what_cannot_be_sharded_is_refused_in_one_line(changes, words):
    with pytest.raises(UsageError, match=words) as caught:
        plan(**changes)
    assert "\n" not in str(caught.value)
