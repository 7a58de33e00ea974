"""A study's fingerprint has what the study uses; a new folder beside one of the same plan says what differs."""

from pathlib import Path

import pytest

from dlscale.benchmarks.launch import environment
from dlscale.benchmarks.launch.campaign import describe_campaign
from dlscale.benchmarks.launch.preparing import prepare_campaign
from dlscale.benchmarks.launch.probe import Probe, cpu_model
from dlscale.benchmarks.study.study import load_study
from dlscale.benchmarks.systems import start as systems
from dlscale.benchmarks.systems.start import default_environment
from dlscale.benchmarks.systems.system import load_system

VERSIONS = {
    "python": "3.11.2",
    "torch": "2.13.0",
    "tensorflow-cpu": "2.21.0",
    "horovod": "0.28.1",
    "mpi": "MPICH 5",
}
PROBE = Probe(
    versions=VERSIONS,
    mpi="mpich",
    mpi_problem=None,
    problems={},
    frameworks=["torch"],
    commit="c",
    node={"num_cores": 2},
)


def fingerprint(versions, launcher="mpiexec", **changes):
    study = {"frameworks": ["torch"], "backends": ["none"]} | changes
    return PROBE.model_copy(update={"versions": versions}).fingerprint(launcher=launcher, **study)


@pytest.mark.parametrize(
    ("package", "used_by"),
    [
        ("horovod", {"backends": ["none", "horovod"]}),
        ("tensorflow-cpu", {"frameworks": ["torch", "tensorflow"]}),
        ("mpi", {}),
    ],
)
def test_a_package_counts_where_the_study_uses_it(package, used_by):
    other = VERSIONS | {package: "9"}
    assert fingerprint(VERSIONS, **used_by).digest != fingerprint(other, **used_by).digest
    assert (fingerprint(VERSIONS).digest == fingerprint(other).digest) == bool(used_by)


def test_another_commit_is_another_fingerprint():
    dirty = PROBE.model_copy(update={"commit": "c+dirty"})
    prints = {
        probe.fingerprint(frameworks=["torch"], backends=["none"], launcher="mpiexec").digest
        for probe in (PROBE, dirty)
    }
    assert len(prints) == 2


def test_without_mpi_the_launcher_counts_and_no_mpi():
    without = fingerprint(VERSIONS, "torchrun")
    assert without.versions["launcher"] == "torchrun"
    assert without.digest == fingerprint(VERSIONS | {"mpi": "MPICH 9"}, "torchrun").digest
    assert without.digest != fingerprint(VERSIONS).digest


def test_an_environment_has_its_name_wherever_dlscale_is_started(tmp_path, monkeypatch):
    prefix = Path(systems.__file__).resolve().parents[2] / ".venv"
    monkeypatch.setattr(systems.sys, "prefix", str(prefix))
    monkeypatch.chdir(tmp_path)
    local = load_system("local")
    assert default_environment(local) == ".venv"
    assert systems._folder(local.environments[".venv"]) == prefix
    assert systems._folder(local.environments[".venv-openmpi"]) == tmp_path / ".venv-openmpi"


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    """prepared(torch="..."): a campaign where these versions are installed."""
    local = load_system("local")
    study = load_study("weak-scaling", system=local, backends=["none"], preset="tiny", ranks=[1], launches=1)

    def prepare(**versions):
        probe = PROBE.model_copy(update={"versions": VERSIONS | versions})
        monkeypatch.setattr(environment, "probe", lambda *_: probe)
        monkeypatch.setattr(environment, "check_mpi", lambda *_, **__: "mpich")
        return prepare_campaign(study, local, environment_name=None, data="synthetic", results=tmp_path)

    return prepare


def test_a_launch_gets_nothing_of_a_scheduler_and_the_plan_names_what_was_tuned(prepared, monkeypatch):
    for name in ("SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "https_proxy", "UCX_TLS", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    campaign = prepared()
    launch = campaign.prepare(campaign.plan.launches[0])
    assert not {"SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "https_proxy", "UCX_TLS"} & launch.environment.keys()
    assert "UCX_TLS" in campaign.withheld
    assert "OMP_NUM_THREADS" not in campaign.withheld  # which dlscale says itself
    assert "UCX_TLS" not in launch.metadata.environment_variables


def test_a_new_folder_beside_one_of_the_same_plan_says_what_differs(prepared):
    first = prepared()
    assert not [text for text in first.plan.warnings if "new folder" in text]
    first.store.open(describe_campaign(first))
    assert prepared(horovod="9").store.folder == first.store.folder
    (text,) = [text for text in prepared(torch="2.14.0").plan.warnings if "new folder" in text]
    assert first.store.folder.name in text
    assert text.endswith(": torch 2.13.0, now 2.14.0")


X86 = "processor\t: 0\ncpu family\t: 25\nmodel name\t: AMD EPYC 9654\n"
ARM = "processor\t: {}\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: {}\n\n"
POWER = "processor\t: 0\ncpu\t\t: POWER9, altivec supported\nclock\t\t: 3800.000000MHz\n"


@pytest.mark.parametrize(
    ("text", "model"),
    [
        (X86, "AMD EPYC 9654"),
        (ARM.format(0, "0xd4f") + ARM.format(1, "0xd4f"), "ARM 0x41/0xd4f"),
        (ARM.format(0, "0xd46") + ARM.format(1, "0xd47"), "ARM 0x41/0xd46 + ARM 0x41/0xd47"),
        (POWER, "POWER9"),
        ("processor\t: 0\nuarch\t: sifive,u74-mc\n", "sifive,u74-mc"),
    ],
)
def test_processors_of_every_kind_are_told_apart(text, model):
    assert cpu_model(text) == model
