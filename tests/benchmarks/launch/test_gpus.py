"""GPUs: what an environment says of them, and which studies are refused before anything starts."""

import pytest

from dlscale.base.errors import UsageError
from dlscale.base.quantities import Count
from dlscale.benchmarks.launch import gpus
from dlscale.benchmarks.launch.gpus import Gpus, SeenGpus, with_gpus
from dlscale.benchmarks.launch.probe import Probe
from dlscale.benchmarks.study.expand import expand
from dlscale.benchmarks.study.sizes import shape
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


def digest_of(probe):
    return probe.fingerprint(frameworks=["torch"], backends=["none"], launcher="mpiexec").digest


def with_cores(number):
    node = Node(cores=Count(value=number, source="lscpu"))
    return load_system("local").model_copy(update={"node": node})


def plan(**changes):
    wanted = {"backends": ["none"], "ranks": [1, 2], "device": "gpu"} | changes
    study, system = load_study("weak-scaling", **wanted), with_cores(8)
    return expand(study, environment=".venv", shape=shape(study, system), data=None, policy=system.policy)


def seen(framework="torch", num_gpus=2, version="2.13.0", old=()):
    names = ["NVIDIA A100"] * num_gpus + list(old)
    return SeenGpus(
        framework=framework,
        version=version,
        names=names,
        libraries={f"{framework}_cuda": "13.0"},
        backend="nccl",
        library="NCCL 2.28.9",
        without_tf32=list(old),
    )


def cells(plan):
    return [case.cell for launch in plan.launches for case in launch.cases]


def one_line(caught):
    text = str(caught.value)
    assert "\n" not in text
    return text


class Installation:
    name = ".venv"


def answering(monkeypatch, *found):
    """The environment says so; returns the questions that it is asked."""
    asked = []

    def ask(installation, frameworks):
        asked.append(list(frameworks))
        return Gpus(seen=[one for one in found if one.framework in frameworks])

    monkeypatch.setattr(gpus, "ask", ask)
    return asked


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
        said = f"{name} is left out: backend {name} does not support device {device}, only "
        assert any(warning.startswith(said) for warning in found.warnings)


def test_a_study_on_cores_asks_for_no_gpus(monkeypatch):
    asked = answering(monkeypatch)
    assert with_gpus(Installation(), PROBE, plan(device=None)) is PROBE
    assert asked == []


def test_gpus_belong_to_the_fingerprint(monkeypatch):
    asked = answering(monkeypatch, seen(), seen("tensorflow"))
    found = with_gpus(Installation(), PROBE, plan())
    assert asked == [["torch"]]
    assert found.node == {"num_cores": 8, "gpus_torch": "NVIDIA A100, NVIDIA A100"}
    assert found.versions == {"torch": "2.13.0", "torch_cuda": "13.0"}
    assert digest_of(found) != digest_of(PROBE)
    both = with_gpus(Installation(), PROBE, plan(frameworks=["torch", "tensorflow"]))
    assert both.versions["tensorflow"] == "2.13.0"


@pytest.mark.parametrize(
    ("found", "ranks", "words"),
    [
        (seen(num_gpus=0, version="2.13.0+cpu"), [1], ["torch 2.13.0+cpu", "sees no GPU", "docs/gpu.md"]),
        (seen(num_gpus=1), [1, 2], ["2 ranks per node", "sees 1", "--ranks 1"]),
    ],
)
def test_too_few_gpus_are_told_in_one_line(monkeypatch, found, ranks, words):
    answering(monkeypatch, found)
    with pytest.raises(UsageError) as caught:
        with_gpus(Installation(), PROBE, plan(ranks=ranks))
    for word in words:
        assert word in one_line(caught)


def test_tf32_is_refused_where_a_gpu_has_none(monkeypatch):
    answering(monkeypatch, seen(num_gpus=1, old=["Tesla V100"]))
    with_gpus(Installation(), PROBE, plan(precision="fp32"))
    with pytest.raises(UsageError) as caught:
        with_gpus(Installation(), PROBE, plan(axes={"precision": ["fp32", "tf32"]}))
    for word in ("precision tf32", "torch 2.13.0 of environment", "Tesla V100", "8.0", "choose fp32 or bf16"):
        assert word in one_line(caught)


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, []),
        ({"dev/nvidiactl": "", "dev/dri/card0": ""}, []),
        ({"dev/nvidiactl": "", "dev/nvidia0": ""}, ["NVIDIA"]),
        ({"dev/dxg": ""}, ["NVIDIA"]),
        (
            {"dev/kfd": "", "dev/dri/renderD128": "", "sys/class/drm/renderD128/device/vendor": "0x1002\n"},
            ["AMD"],
        ),
        ({"dev/dri/renderD129": "", "sys/class/drm/renderD129/device/vendor": "0x8086\n"}, ["Intel"]),
        ({"sys/class/drm/renderD128/device/vendor": "0x8086\n"}, []),  # not shown to this process
        ({"dev/dri/renderD128": ""}, []),
    ],
)
def test_the_kernel_says_whose_gpus_are_here(files, found, tmp_path):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    known = gpus.makers(tmp_path)
    assert [maker for maker, here in known.items() if here] == found
    assert list(known) == ["NVIDIA", "AMD", "Intel"]
