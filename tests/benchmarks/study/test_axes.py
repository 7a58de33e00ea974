"""Settings with several values: each value is a case of its own, and a mistake is one line."""

import json
import re
from importlib import resources

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.study.plan import num_comparisons
from dlscale.benchmarks.study.settings import OPTIONS, assigned
from dlscale.benchmarks.study.study import Study, load_study
from tests.benchmarks.study.plans import options, plan, tiny, trained


def test_each_value_of_an_option_is_a_case_of_its_backend_alone():
    asked = options("backend_options=gloo.bucket_cap_mb=1|25,gloo.allow_open_ports=true")
    found = trained(tiny(backends=["none", "ring", "gloo"], **asked))
    gloo = [cell.backend_options for cell in found if cell.backend == "gloo"]
    assert sorted(own["bucket_cap_mb"] for own in gloo) == [1, 25]
    assert all(own["allow_open_ports"] is True for own in gloo)
    assert sorted(cell.backend for cell in found) == ["gloo", "gloo", "none", "ring"]
    assert num_comparisons(found) == 2  # gloo's values count as two backends do


def test_algorithms_run_over_every_backend_that_carries_them_and_their_options_are_axes():
    planned = tiny(
        backends=["none", "ring", "mpi", "mpi_ps"],
        algorithms=["sync", "downpour", "easgd"],
        **options("easgd.interval=2|8", "easgd.moving_rate=0.5", "downpour.masters=0"),
        controls=["exchange"],
    )
    found = sorted((c.backend, c.algorithm, c.algorithm_options.get("interval", 0)) for c in trained(planned))
    both = [("easgd", 2), ("easgd", 8), ("sync", 0)]
    every = [("mpi", both), ("mpi_ps", [("downpour", 0), *both]), ("none", [("sync", 0)]), ("ring", both)]
    assert found == [(name, *algorithm) for name, carried in every for algorithm in carried]
    exchanged = [
        case.cell for launch in planned.launches for case in launch.cases if case.cell.control == "exchange"
    ]
    assert {cell.algorithm for cell in exchanged} == {"sync"}


@pytest.mark.parametrize(
    "word",
    [
        *(f"backend_options={word}" for word in ("horovod", "cycle_time_ms=1", "horovod.=1", ".a=1", "a.b=")),
        *("environment_variables=A.B", "environment_variables=batch=4", "target=auc"),
        *("batch=16|", "batch=16|x", "batch=", "seed=-1", "nix=1", "=1", "batch", "precision=fp8", "ranks=0"),
    ],
)
def test_a_malformed_word_is_refused_in_one_line(word):
    with pytest.raises(UsageError, match=r"^--set ") as caught:
        assigned([word], OPTIONS)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("batch=16,32", "write several values as 16|32"),
        ("shard=none,optimizer", "write several values as none|optimizer"),
        ("shard=optimiser", "(did you mean optimizer?)"),
        ("max_step=9", "(did you mean max_steps?)"),
    ],
)
def test_a_mistake_is_told_with_what_was_meant(word, hint):
    with pytest.raises(UsageError, match=re.escape(hint)):
        assigned([word], OPTIONS)


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
    assert options("split=1|2|auto", "max_steps=9") == {"split": [1, 2, "auto"], "rules": {"max_steps": 9}}


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


def test_settings_of_the_training_make_curves_of_every_backend_with_base_cases_of_their_own():
    planned = tiny(backends=["none", "ring"], batch=[2, 4], precision=["fp32", "bf16"], base="own")
    for num_ranks in (1, 2):
        found = sorted((c.backend, c.local_batch, c.precision) for c in trained(planned, num_ranks))
        assert found == [(b, n, p) for b in ("none", "ring") for n in (2, 4) for p in ("bf16", "fp32")]


HEAD = (
    'name = "mine"\ntitle = "Mine"\nscaling_mode = "weak"\nworkloads = ["hep_cnn"]\nframeworks = ["torch"]\n'
)


def test_lists_in_a_file_are_axes_which_the_command_line_replaces(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(f"""{HEAD}
    backends = ["gloo"]
    precision = ["fp32", "bf16"]
    batch = [2]
    [backend_options.gloo]
    bucket_cap_mb = [1, 25]
    [environment_variables]
    MPICH_ASYNC_PROGRESS = [0, 1]
    """)
    study = load_study(str(path))
    assert study.axes == {
        "precision": ["fp32", "bf16"],
        "gloo.bucket_cap_mb": [1, 25],
        "MPICH_ASYNC_PROGRESS": [0, 1],
    }
    assert len(study.variants("gloo")) == 8
    assert {one.environment_variables["MPICH_ASYNC_PROGRESS"] for one in study.variants()} == {"0", "1"}
    assert sorted(variant.precision for variant in study.variants("none")) == ["bf16", "bf16", "fp32", "fp32"]
    changed = load_study(str(path), precision="bf16", backend_options={"gloo": {"bucket_cap_mb": 5}})
    assert (changed.precision, changed.axes) == ("bf16", {"MPICH_ASYNC_PROGRESS": [0, 1]})


@pytest.mark.parametrize(
    "line",
    [
        *("axes = 5", "axes = [1]", "[axes]\nbatch = 5", "[axes]\nbatch = []", "[axes]\nbatch = [[1], [2]]"),
        *("[axes]\n'a b' = [1, 2]", "batch = [{}, {}]", "batch = []", "batch = [1, 2]\nbackend_options = 5"),
        *("batch = [1, 2]\nbackend_options = {gloo = 5}", "batch = [1, 2]\nenvironment_variables = [1]"),
        "[axes]\nlearning_rate = [1e-3, 2e-3]",
    ],
)
def test_a_file_with_nonsense_for_axes_is_refused_in_one_line(tmp_path, line):
    path = tmp_path / "mine.toml"
    path.write_text(f'{HEAD}backends = ["gloo"]\nprecision = "fp32"\n{line}\n')
    with pytest.raises(UsageError) as caught:
        load_study(str(path))
    assert "\n" not in str(caught.value)


def test_learning_rates_of_a_target_are_an_axis(tmp_path):
    planned = plan("time-to-solution", axes={"learning_rate": [1e-3, 2e-3]}, ranks=[1, 2], launches=1)
    found = sorted((launch.cell.backend, launch.cell.target.learning_rate) for launch in planned.launches)
    assert found == [(name, rate) for name in ("gloo", "none", "ring") for rate in (1e-3, 2e-3)]
    text = (resources.files("dlscale.benchmarks") / "study/studies/time-to-solution.toml").read_text()
    path = tmp_path / "mine.toml"
    path.write_text(text.replace('scaling = "none"', 'scaling = "none"\nlearning_rate = [1e-3, 2e-3]'))
    assert load_study(str(path)).axes == {"learning_rate": [1e-3, 2e-3]}
    named = load_study(str(path), target={"learning_rate": 5e-3})
    assert (named.axes, named.target.learning_rate) == ({}, 5e-3)
