"""Settings with several values: each value is a case of its own, and a mistake is one line."""

import json
import re
from importlib import resources

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.study.expand import expand
from dlscale.benchmarks.study.plan import num_comparisons
from dlscale.benchmarks.study.settings import OPTIONS, assigned, nested
from dlscale.benchmarks.study.sizes import Shape, Size
from dlscale.benchmarks.study.study import Study, load_study
from dlscale.benchmarks.systems.system import Policy

SHAPE = Shape(
    sizes=(Size(1, 1), Size(1, 2)), ranks_per_node=None, num_cores=2, cores_per_rank=1, threads_per_rank=1
)
SMALL = {"workloads": ["hep_cnn"], "preset": "tiny", "launches": 1, "reference_launches": 0}


def plan_of(study):
    return expand(study, environment="default", shape=SHAPE, data="synthetic", policy=Policy())


def plan(name="weak-scaling", **changes):
    return plan_of(load_study(name, **SMALL | changes))


def options(*words):
    """The backends' and algorithms' options of `--set` words, as in a study's file."""
    return nested(assigned(words, OPTIONS))


def trained(planned, num_ranks=2):
    cells = [launch.cell for launch in planned.launches]
    return [cell for cell in cells if cell.control == "train" and cell.num_ranks == num_ranks]


def test_each_value_of_an_option_is_a_case_of_its_backend_alone():
    asked = options("backend_options=gloo.bucket_cap_mb=1|25,gloo.allow_open_ports=true")
    planned = plan(backends=["none", "ring", "gloo"], **asked)
    cells = trained(planned)
    found = sorted(
        (cell.backend, cell.backend_options.get("bucket_cap_mb")) for cell in cells if cell.backend == "gloo"
    )
    assert found == [("gloo", 1), ("gloo", 25)]
    assert all(cell.backend_options["allow_open_ports"] is True for cell in cells if cell.backend == "gloo")
    assert sorted(cell.backend for cell in cells) == ["gloo", "gloo", "none", "ring"]
    assert len({cell.id for cell in cells}) == 4
    assert num_comparisons(cells) == 2  # gloo's values count as two backends do


def test_algorithms_run_over_every_backend_that_carries_them_and_their_options_are_axes():
    planned = plan(
        backends=["none", "ring", "mpi", "tf_collective"],
        frameworks=["torch", "tensorflow"],
        algorithms=["sync", "easgd"],
        **options("easgd.interval=2|8", "easgd.moving_rate=0.5"),
        controls=["exchange"],
    )
    found = sorted(
        (cell.backend, cell.algorithm, cell.algorithm_options.get("interval", 0))
        for cell in trained(planned)
        if cell.framework == "torch"
    )
    both = [("easgd", 2), ("easgd", 8), ("sync", 0)]
    assert found == [*(("mpi", *one) for one in both), ("none", "sync", 0), *(("ring", *one) for one in both)]
    assert {c.algorithm for c in trained(planned) if c.backend == "tf_collective"} == {"sync"}
    cells = [case.cell for launch in planned.launches for case in launch.cases]
    assert {cell.algorithm for cell in cells if cell.control == "exchange"} == {"sync"}
    assert all(cell.algorithm_options["moving_rate"] == 0.5 for cell in cells if cell.algorithm == "easgd")


def test_a_backend_without_an_algorithm_of_the_study_is_left_out():
    planned = plan(
        backends=["none", "ring", "tf_collective"], algorithms=["easgd"], frameworks=["tensorflow"]
    )
    assert {(cell.backend, cell.algorithm) for cell in trained(planned)} == {
        ("none", "sync"),
        ("ring", "easgd"),
    }
    (warning,) = planned.warnings
    assert warning == (
        "tf_collective easgd in tensorflow is left out: backend tf_collective does not carry algorithm easgd"
    )


def test_servers_carry_algorithms_of_their_own_and_their_rule_need_not_be_plain_sgd():
    planned = plan(
        backends=["ring", "mpi_ps"],
        algorithms=["sync", "downpour", "easgd"],
        algorithm_options={"downpour": {"optimizer": "momentum", "groups": 2}},
        frameworks=["torch"],
    )
    found = {(cell.backend, cell.algorithm) for cell in trained(planned)}
    served = {("mpi_ps", name) for name in ("sync", "downpour", "easgd")}
    assert found == served | {("ring", "sync"), ("ring", "easgd")}
    assert not any(
        cell.algorithm == "downpour" for cell in trained(planned, num_ranks=1)
    )  # too few for two groups


MALFORMED = [
    *(
        f"backend_options={word}"
        for word in ("horovod", "cycle_time_ms=1", "horovod.=1", ".a=1", "a.b=", "a'.b=1")
    ),
    "backend_options=easgd.interval=4",
    "gloo.bucket_cap_mb=1|",
    "gloo.bucket_cap_mb=|2",
    "gloo.bucket_cap_mb=1|1",
    "environment_variables=A.B=1",
    "environment_variables=batch=4",
    *("batch=16|", "batch=16|16", "batch=16|x", "batch=", "seed=-1", "nix=1", "=1", "batch"),
]


@pytest.mark.parametrize("word", MALFORMED)
def test_a_malformed_word_is_refused_in_one_line(word):
    with pytest.raises(UsageError, match=r"^--set ") as caught:
        assigned([word], OPTIONS)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("batch=16,32", "write several values as 16|32"),
        ("shard=optimiser", "(did you mean optimizer?)"),
        ("max_step=9", "the nearest is rules.max_steps"),
        ("ring.teams=1", ""),
    ],
)
def test_a_mistake_is_told_with_what_was_meant(word, hint):
    if not hint:
        assert options(word) == {"backend_options": {"ring": {"teams": 1}}}
        return
    with pytest.raises(UsageError, match=re.escape(hint)):
        assigned([word], OPTIONS)


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithms": ["sync", "easgd"]},
        {"batch": [2, 4], "backend_options": {"gloo": {"bucket_cap_mb": [1, 25]}}},
    ],
)
def test_a_study_is_read_back_as_it_was(changes):
    study = load_study("weak-scaling", **changes)
    assert Study.model_validate_json(json.dumps(study.model_dump(mode="json"))) == study


def test_values_are_numbers_truths_and_texts():
    deep = "[" * 100_000
    words = (
        "horovod.cycle_time_ms=0.5",
        "grpc_ps.asynchronous=true",
        "grpc_ps.placement=size",
        f"ring.x={deep}",
    )
    assert options(*words)["backend_options"] == {
        "horovod": {"cycle_time_ms": 0.5},
        "grpc_ps": {"asynchronous": True, "placement": "size"},
        "ring": {"x": deep},
    }


def test_settings_of_the_training_make_curves_of_every_backend_with_base_cases_of_their_own():
    planned = plan(backends=["none", "ring"], batch=[2, 4], precision=["fp32", "bf16"], base="own")
    for num_ranks in (1, 2):
        found = sorted((c.backend, c.local_batch, c.precision) for c in trained(planned, num_ranks))
        assert found == [(b, n, p) for b in ("none", "ring") for n in (2, 4) for p in ("bf16", "fp32")]


def test_lists_in_a_file_are_axes_which_the_command_line_replaces(tmp_path):
    text = """
    name = "mine"
    title = "Mine"
    scaling_mode = "weak"
    workloads = ["hep_cnn"]
    frameworks = ["torch"]
    backends = ["gloo"]
    precision = ["fp32", "bf16"]
    batch = [2]
    [backend_options.gloo]
    bucket_cap_mb = [1, 25]
    [environment_variables]
    MPICH_ASYNC_PROGRESS = ["0", "1"]
    """
    path = tmp_path / "mine.toml"
    path.write_text(text)
    study = load_study(str(path))
    assert study.axes == {
        "precision": ["fp32", "bf16"],
        "gloo.bucket_cap_mb": [1, 25],
        "MPICH_ASYNC_PROGRESS": ["0", "1"],
    }
    assert len(study.variants("gloo")) == 8
    assert sorted(variant.precision for variant in study.variants("none")) == ["bf16", "bf16", "fp32", "fp32"]
    changed = load_study(
        str(path), precision="bf16", backend_options={"gloo": {"bucket_cap_mb": 5}}, environment_variables={}
    )
    assert (changed.precision, changed.axes) == ("bf16", {"MPICH_ASYNC_PROGRESS": ["0", "1"]})


@pytest.mark.parametrize(
    "line",
    [
        "axes = 5",
        "axes = [1]",
        "[axes]\nbatch = 5",
        "[axes]\nbatch = [[1], [2]]",
        "[axes]\n'a b' = [1, 2]",
        "batch = [{}, {}]",
        "batch = [1, 2]\nbackend_options = 5",
        "batch = [1, 2]\nbackend_options = {gloo = 5}",
        "batch = [1, 2]\nenvironment_variables = [1]",
    ],
)
def test_a_file_with_nonsense_for_axes_is_refused_in_one_line(tmp_path, line):
    path = tmp_path / "mine.toml"
    text = 'name = "mine"\ntitle = "Mine"\nscaling_mode = "weak"\nworkloads = ["hep_cnn"]\nframeworks = ["torch"]\n'
    backends = "" if line.startswith("backends") else 'backends = ["gloo"]\n'
    precision = 'precision = "fp32"\n'
    path.write_text(f"{text}{backends}{precision}{line}\n")
    with pytest.raises(UsageError) as caught:
        load_study(str(path))
    assert "\n" not in str(caught.value)


def test_learning_rates_of_a_target_are_an_axis(tmp_path):
    asked = load_study("time-to-solution", axes={"learning_rate": [1e-3, 2e-3]}, ranks=[1, 2], launches=1)
    planned = expand(asked, environment="default", shape=SHAPE, data=None, policy=Policy())
    found = sorted((launch.cell.backend, launch.cell.target.learning_rate) for launch in planned.launches)
    assert found == [(name, rate) for name in ("gloo", "none", "ring") for rate in (1e-3, 2e-3)]
    text = (resources.files("dlscale.benchmarks") / "study/studies/time-to-solution.toml").read_text()
    path = tmp_path / "mine.toml"
    path.write_text(text.replace('scaling = "none"', 'scaling = "none"\nlearning_rate = [1e-3, 2e-3]'))
    assert load_study(str(path)).axes == {"learning_rate": [1e-3, 2e-3]}
    named = load_study(str(path), target={"learning_rate": 5e-3})
    assert (named.axes, named.target.learning_rate) == ({}, 5e-3)
