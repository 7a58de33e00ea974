"""What a fingerprint is made of, and what a launch gets of this process's environment."""

from pathlib import Path

import pytest

from dlscale.benchmarks.launch import environment, supervisor
from dlscale.benchmarks.launch.campaign import prepare_campaign
from dlscale.benchmarks.launch.probe import Probe, describe_node
from dlscale.benchmarks.study.study import load_study
from dlscale.benchmarks.systems import start as systems
from dlscale.benchmarks.systems.start import find_installation
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


def fingerprint(launcher="mpiexec", versions=VERSIONS, **changes):
    return environment.fingerprint(PROBE.model_copy(update={"versions": versions} | changes), launcher)


@pytest.mark.parametrize(
    "other",
    [
        {"commit": "c+dirty"},
        {"node": {"num_cores": 4}},
        {"versions": VERSIONS | {"torch": "9"}},
        {"launcher": "torchrun"},
    ],
)
def test_another_code_version_or_machine_is_another_fingerprint(other):
    assert fingerprint(**other).digest != fingerprint().digest


def test_without_mpi_the_launcher_counts_and_no_mpi():
    without = fingerprint("torchrun")
    assert without.versions["launcher"] == "torchrun"
    assert without.digest == fingerprint("torchrun", VERSIONS | {"mpi": "MPICH 9"}).digest


def test_an_environment_has_its_name_wherever_dlscale_is_started(tmp_path, monkeypatch):
    prefix = Path(systems.__file__).resolve().parents[2] / ".venv"
    monkeypatch.setattr(systems.sys, "prefix", str(prefix))
    monkeypatch.chdir(tmp_path)
    local = load_system("local")
    found = find_installation(local)
    assert (found.name, found.prefix) == (".venv", prefix)


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    """prepared(): a campaign where these versions are installed."""
    local = load_system("local").model_copy(update={"launcher": "mpiexec"})
    study = load_study("weak-scaling", system=local, backends=["none"], preset="tiny", ranks=[1], launches=1)

    def prepare():
        monkeypatch.setattr(environment, "probe", lambda *_: PROBE)
        monkeypatch.setattr(environment, "with_found_launcher", lambda system, *_: (system, "mpich", ""))
        return prepare_campaign(study, local, environment_name=None, data="synthetic", results=tmp_path)

    return prepare


def test_a_launch_gets_nothing_of_a_scheduler_or_what_was_tuned(prepared, monkeypatch):
    for name in ("SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "https_proxy", "UCX_TLS", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr(supervisor, "supervise", lambda prepared, _: prepared)
    campaign = prepared()
    launch = campaign.run(campaign.plan.launches[0])
    assert not {"SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "https_proxy", "UCX_TLS"} & launch.environment.keys()
    assert "UCX_TLS" not in launch.metadata.environment_variables
    assert launch.metadata.configuration.rules["min_windows"] == 10


X86 = "processor\t: 0\ncpu family\t: 25\nmodel name\t: AMD EPYC 9654\n"
ARM = "processor\t: {}\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: {}\n\n"
POWER = "processor\t: 0\ncpu\t\t: POWER9, altivec supported\nclock\t\t: 3800.000000MHz\n"


@pytest.mark.parametrize(
    ("text", "model"),
    [
        (X86, "AMD EPYC 9654"),
        (ARM.format(0, "0xd4f") + ARM.format(1, "0xd4f"), "0xd4f"),
        (POWER, "POWER9, altivec supported"),
        ("processor\t: 0\nuarch\t: sifive,u74-mc\n", "sifive,u74-mc"),
    ],
)
def test_processors_of_every_kind_are_told_apart(tmp_path, text, model):
    (tmp_path / "cpuinfo").write_text(text)
    assert describe_node(tmp_path / "cpuinfo")["cpu_model"] == model
