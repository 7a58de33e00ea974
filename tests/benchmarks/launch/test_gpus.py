"""GPUs: what an environment says of them, and which studies are refused before anything starts."""

from types import SimpleNamespace

import pytest

from dlscale.base.errors import UsageError
from dlscale.base.quantities import Count
from dlscale.benchmarks.launch import environment
from dlscale.benchmarks.launch.campaign import prepare_campaign, usable_part
from dlscale.benchmarks.launch.probe import Probe, SeenGpus, shows_gpus
from dlscale.benchmarks.study.expand import expand
from dlscale.benchmarks.study.study import load_study
from dlscale.benchmarks.systems.system import Node, load_system
from dlscale.collectives import NAMES as BACKENDS
from dlscale.collectives import capabilities

PROBE = Probe(
    versions={"torch": "2.13.0"},
    mpi="mpich",
    mpi_problem=None,
    problems={},
    frameworks=["torch", "tensorflow"],
    commit="c",
    node={"num_cores": 8},
)


def fingerprint_of(probe):
    return environment.fingerprint(probe, "mpiexec")


def reporting(*gpus):
    return PROBE.model_copy(update={"gpus": list(gpus)})


def with_cores(number):
    node = Node(cores=Count(value=number, source="lscpu"))
    return load_system("local").model_copy(update={"node": node})


def plan(**changes):
    wanted = {"backends": ["none"], "ranks": [1, 2], "device": "gpu"} | changes
    return expand(load_study("weak-scaling", **wanted), with_cores(8), environment=".venv", data=None)


def seen(framework="torch", num_gpus=2, version="2.13.0"):
    return SeenGpus(
        framework=framework,
        version=version,
        names=["NVIDIA A100"] * num_gpus,
        libraries={f"{framework}_cuda": "13.0"},
        backend="nccl",
        library="NCCL 2.28.9",
    )


def cells(plan):
    return [case.cell for launch in plan.launches for case in launch.cases]


def one_line(caught):
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_the_study_puts_its_device_into_every_cell():
    assert {cell.device for cell in cells(plan())} == {"gpu"}
    assert {cell.device for cell in cells(plan(device=None))} == {"cpu"}
    assert plan().digest != plan(device=None).digest
    with pytest.raises(UsageError, match="'tpu'"):
        plan(device="tpu")


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_backends_of_the_other_device_are_refused(device):
    (other,) = {"cpu", "gpu"} - {device}
    for backend in (name for name in BACKENDS if device not in capabilities(name).devices):
        with pytest.raises(UsageError) as caught:
            plan(backends=["none", backend], frameworks=["torch", "tensorflow"], device=device)
        assert f"backend {backend} does not support device {device}, only {other}" in one_line(caught)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_all_backends_are_those_of_the_device_and_the_others_are_told(device):
    operations = {"horovod": {"operations": "nccl" if device == "gpu" else "mpi"}}
    both = ["torch", "tensorflow"]
    found = plan(backends=["all"], frameworks=both, device=device, backend_options=operations)
    having = {name for name in BACKENDS if device in capabilities(name).devices}
    assert {cell.backend for cell in cells(found)} == having
    for name in set(BACKENDS) - having:
        said = f" left out: backend {name} does not support device {device}, only "
        assert any(said in warning for warning in found.warnings)


@pytest.mark.parametrize(("device", "asked"), [(None, []), ("gpu", ["torch"])])
def test_only_a_study_on_gpus_asks_for_them_in_the_same_question(monkeypatch, tmp_path, device, asked):
    questions = []

    def probe(_, question):
        questions.append(question)
        return reporting(seen()) if question.gpus else PROBE

    monkeypatch.setattr(environment, "probe", probe)
    monkeypatch.setattr(environment, "with_found_launcher", lambda system, *_: (system, "mpich", ""))
    study = load_study("weak-scaling", backends=["none"], ranks=[1], preset="tiny", device=device)
    system = load_system("local").model_copy(update={"launcher": "mpiexec"})
    campaign = prepare_campaign(study, system, environment_name=None, data="synthetic", results=tmp_path)
    assert [question.gpus for question in questions] == [asked]
    assert ("gpus_torch" in campaign.fingerprint.node) == bool(asked)


def test_gpus_belong_to_the_fingerprint():
    found = fingerprint_of(reporting(seen(), seen("tensorflow")))
    assert found.node["gpus_torch"] == "NVIDIA A100, NVIDIA A100"
    assert found.versions["torch_cuda"] == "13.0"
    assert found.versions["tensorflow"] == "2.13.0"
    assert found.digest != fingerprint_of(PROBE).digest


@pytest.mark.parametrize(
    ("found", "ranks", "words"),
    [
        (seen(num_gpus=0, version="2.13.0+cpu"), [1], ["torch 2.13.0+cpu sees no GPU; see docs/gpu.md"]),
        (seen(num_gpus=1), [1, 2], ["2 ranks per node", "sees 1"]),
    ],
)
def test_too_few_gpus_are_told_in_one_line(found, ranks, words):
    with pytest.raises(UsageError) as caught:
        usable_part(plan(ranks=ranks), reporting(found), SimpleNamespace(name="x"), launcher="mpiexec")
    for word in words:
        assert word in one_line(caught)


@pytest.mark.parametrize(
    ("file", "found"),
    [("nvidiactl", False), ("dri/card0", False), *((name, True) for name in ("nvidia0", "dxg", "kfd"))],
)
def test_the_kernel_shows_whether_there_are_gpus(file, found, tmp_path):
    assert not shows_gpus(tmp_path)
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).touch()
    assert shows_gpus(tmp_path) == found
