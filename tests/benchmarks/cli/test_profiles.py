"""`compute=profile:STUDY`: what of a profile becomes the study's, and profiles of something else."""

from types import SimpleNamespace

import pytest

from dlscale.analysis.predict.profile import slept_by
from dlscale.analysis.predict.published_profiles import load_stored
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import profiles
from dlscale.benchmarks.cli.profiles import with_profiles
from dlscale.benchmarks.study.study import load_study
from dlscale.benchmarks.systems.system import load_system
from dlscale.models import load_workload
from dlscale.models.slept import ByProfile
from dlscale.models.workload import Input, Shard
from tests.made_records import profile_record

STORED = [
    *(
        "run",
        "weak-scaling",
        "--dry-run",
        "--system",
        "emulated-4",
        "--data",
        "synthetic",
        "--workloads",
        "hep_cnn",
    ),
    *("--preset", "paper", "--batch", "128", "--frameworks", "tensorflow"),
]


@pytest.fixture
def study(monkeypatch, tmp_path):
    """A folder with a study of one profile, of HEP-CNN (tiny) in torch with a batch of 8; and its cell."""
    record = profile_record()
    folders = {tmp_path / "mine-1": [record], tmp_path / "mine-2": []}  # the second one is the latest
    monkeypatch.setattr(profiles, "load_records", lambda folder: (folders[folder], []))
    monkeypatch.setattr(profiles, "study_folders", lambda _: list(folders))
    monkeypatch.setattr(profiles, "choose_study", lambda *_: tmp_path / "mine-2")
    return SimpleNamespace(cell=record.case.cell, results=tmp_path, folders=folders)


def test_each_cell_sleeps_by_its_own_profile(study):
    cells = [study.cell, study.cell.model_copy(update={"num_ranks": 2, "backend": "ring"})]
    plan = with_profiles(load_study("weak-scaling"), ByProfile(name="mine"), cells, results=study.results)
    assert list(plan.slept_by_profile) == ["hep_cnn tiny in torch, fp32, batch 8"]
    slept = plan.slept_of(workload="hep_cnn", preset="tiny", framework="torch", local_batch=8)
    assert (slept.forward_seconds, slept.backward_seconds) == (0.01, 0.018)
    assert slept.ready == {"weight": 0.018, "bias": 0.002}
    assert slept.source.endswith(study.cell.id)
    assert len(slept.digest) == 12
    with pytest.raises(
        UsageError, match="has no profile of hep_cnn tiny in torch, fp32, batch 4, but of: hep"
    ):
        plan.slept_of(workload="hep_cnn", preset="tiny", framework="torch", local_batch=4)


@pytest.mark.parametrize(
    ("other", "asked"),
    [
        ({"workload": "resnet50"}, "resnet50 tiny in torch, fp32, batch 8"),
        ({"preset": "small"}, "hep_cnn small in torch, fp32, batch 8"),
        ({"framework": "tensorflow"}, "hep_cnn tiny in tensorflow, fp32, batch 8"),
        ({"local_batch": 4}, "hep_cnn tiny in torch, fp32, batch 4"),
        ({"precision": "bf16"}, "hep_cnn tiny in torch, bf16, batch 8"),
    ],
)
def test_a_profile_of_something_else_is_one_line(study, other, asked):
    cell = study.cell.model_copy(update=other)
    with pytest.raises(UsageError) as caught:
        with_profiles(load_study("weak-scaling"), ByProfile(name="mine"), [cell], results=study.results)
    line = str(caught.value)
    assert line.startswith(f"compute=profile:mine: no profile of {asked}; measured there: hep_cnn tiny")
    assert "\n" not in line


def test_a_profile_of_sleep_is_none(study):
    slept = slept_by(load_stored(load_system("cori"), "hep_cnn"))
    cell = study.cell.model_copy(update={"slept": slept})
    for folder, records in study.folders.items():
        study.folders[folder] = [
            record.model_copy(update={"case": record.case.model_copy(update={"cell": cell})})
            for record in records
        ]
    with pytest.raises(UsageError, match="measured there: none"):
        with_profiles(load_study("weak-scaling"), ByProfile(name="mine"), [study.cell], results=study.results)


@pytest.mark.parametrize("name", ["profile", "profile:cori"])
def test_a_stored_profile_is_in_the_plan(dlscale, name):
    status, said, _ = dlscale(
        *STORED, "--nodes", "1,2", "--backends", "none,ring", "--set", f"compute={name}"
    )
    assert status == 0
    assert "hep_cnn paper in tensorflow, fp32, batch 128: sleep of " in said
    assert "(40 ms per sample (Kurth et al., TensorFlow at Scale, CUG 2018, slides))" in said


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("--frameworks torch", "no profile of hep_cnn paper in torch, fp32, batch 128; stored of cori: "),
        ("--workloads resnet50 --preset tiny", "0 stored profiles of resnet50; stored are: cori-hep"),
        ("--system local", "compute=profile on local, which is not emulated"),
    ],
)
def test_no_stored_profile_fits(mistake, words, problem):
    assert problem in mistake(*STORED, *words.split(), "--set", "compute=profile")


@pytest.mark.requires("torch")
def test_a_stored_profile_has_the_gradients_of_the_network():
    slept = slept_by(load_stored(load_system("cori"), "hep_cnn"))
    factory = load_workload("hep_cnn").factory(
        framework="torch", preset="paper", local_batch=1, source=Input()
    )
    (sleeps,) = slept.passes([factory(shard=Shard(), seed=1).names()])
    assert len(sleeps.gradients) == len(slept.ready)
    assert sum(seconds for _, seconds in sleeps.gradients) == pytest.approx(slept.backward_seconds)
