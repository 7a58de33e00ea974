"""Device gpu, as far as a machine without one can say: what is moved there, and what is refused."""

import contextlib
import importlib
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dlscale.base.errors import UsageError
from dlscale.collectives import torch_distributed
from dlscale.collectives.registry import connect
from dlscale.collectives.torch_distributed import nccl, xccl
from dlscale.models import NAMES, frameworks, load_workload
from dlscale.models.frameworks import FRAMEWORKS, _torch, framework_module, gpu_module, gpu_of
from dlscale.models.workload import Execution, Input, Shard


@pytest.fixture
def meta(monkeypatch):
    """Torch's device without memory in the place of a GPU: whatever stays on the host does not fit what moved."""
    monkeypatch.setitem(_torch.DEVICES, "gpu", "meta")
    monkeypatch.setattr(_torch, "_on_gpu", lambda tensor: tensor.to("meta"))
    monkeypatch.setattr(_torch, "canonical", no_copy)


def no_copy(tensor):
    """A weight in canonical shape; a device without memory has nothing to copy."""
    axes = {4: (2, 3, 1, 0), 2: (1, 0)}.get(tensor.dim(), range(tensor.dim()))
    return np.zeros([tensor.shape[axis] for axis in axes], np.float32)


def replica(name, *, device):
    factory = load_workload(name).factory(
        framework="torch",
        preset="tiny",
        local_batch=2,
        source=Input(),
        execution=Execution(device=device),
    )
    return factory(shard=Shard(), seed=1)


@pytest.mark.parametrize("name", NAMES)
def test_a_replica_is_on_its_device_with_all_that_belongs_to_it(name, meta):
    trained = replica(name, device="gpu")
    on_host = replica(name, device="cpu")
    batch = trained.next_batch()
    for ours, theirs in zip(batch, on_host.next_batch(), strict=True):
        assert ours.device.type == "meta"
        assert (ours.shape, ours.stride()) == (theirs.shape, theirs.stride())
    known = {id(p) for o in trained.objectives for g in o.optimizer.param_groups for p in g["params"]}
    assert known == {id(p) for objective in trained.objectives for p in objective.parameters}
    for objective, twin in zip(trained.objectives, on_host.objectives, strict=True):
        for ours, theirs in zip(objective.parameters, twin.parameters, strict=True):
            assert ours.device.type == "meta"
            assert ours.stride() == theirs.stride()
        objective.loss(*batch).backward(retain_graph=objective.keeps_graph)


def test_autocast_follows_the_device():
    assert _torch.autocast(Execution(device="gpu")).device == "cuda"
    assert _torch.autocast(Execution()).device == "cpu"


@pytest.mark.parametrize(
    ("local_rank", "num_gpus", "taken"),
    [(0, 1, 0), (3, 1, 0), (0, 4, 0), (3, 4, 3), (0, 0, "sees no GPU"), (2, 2, "at most 2 ranks per node")],
)
def test_a_rank_takes_the_gpu_of_its_number_or_the_only_one_that_it_is_shown(local_rank, num_gpus, taken):
    if isinstance(taken, int):
        assert gpu_of(local_rank, num_gpus=num_gpus, framework="torch 2.13.0") == taken
        return
    with pytest.raises(UsageError, match=f"torch 2.13.0 sees .*{taken}|torch 2.13.0 {taken}"):
        gpu_of(local_rank, num_gpus=num_gpus, framework="torch 2.13.0")


@pytest.mark.parametrize(
    ("gpus", "machines", "sharing"),
    [
        ("abcd", "0000", None),
        ("abca", "0000", "0 and 3"),
        ("aa", "01", None),  # the same place on the PCI bus of two machines
        ("abab", "0011", None),
        ("abaa", "0011", "2 and 3"),
    ],
)
def test_ranks_with_one_gpu_are_refused_on_all_ranks(gpus, machines, sharing, monkeypatch):
    places = list(zip(machines, gpus, strict=True))
    for rank, gpu in enumerate(gpus):
        workers = SimpleNamespace(allgather=lambda _: places, Get_rank=lambda rank=rank: rank)
        own = SimpleNamespace(identity=lambda gpu=gpu: gpu)
        monkeypatch.setattr(frameworks, "gpu_module", lambda _, own=own: own)
        if sharing:
            with pytest.raises(UsageError, match=f"ranks {sharing} .* GPU a; start one rank per GPU"):
                frameworks.taken_gpu("torch", workers, machine=machines[rank])
        else:
            assert frameworks.taken_gpu("torch", workers, machine=machines[rank]) == gpu


class Device:
    """A module of torch for one kind of GPUs, that shows these UUIDs."""

    def __init__(self, *uuids, **properties):
        self._uuids, self._properties, self._own = uuids, properties, 0
        self.nccl = SimpleNamespace(version=lambda: (2, 22, 3))

    def device_count(self):
        return len(self._uuids)

    def get_device_name(self, index):
        return f"GPU {index}"

    def set_device(self, index):
        self._own = index

    def current_device(self):
        return self._own

    def get_device_capability(self, index):
        return (7, 0) if self._uuids[index] == "old" else (9, 0)

    def get_device_properties(self, index):
        return SimpleNamespace(uuid=self._uuids[index], **self._properties)


BUILDS = {
    "CUDA": ({"cuda": "13.0"}, "cuda", "nccl", {"torch_cuda": "13.0", "torch_nccl": "2.22.3"}),
    "ROCm": ({"hip": "6.4.43482"}, "cuda", "nccl", {"torch_rocm": "6.4.43482", "torch_rccl": "2.22.3"}),
    "XPU": ({"xpu": "20250101"}, "xpu", "xccl", {"torch_xpu": "20250101"}),
    "XPU of torch 2.4": ({"xpu": "20240101"}, "xpu", "", {"torch_xpu": "20240101"}),
}
LIBRARIES = {"CUDA": "NCCL 2.22.3", "ROCm": "RCCL 2.22.3", "XPU": "oneCCL", "XPU of torch 2.4": ""}


@pytest.fixture
def build(monkeypatch):
    """Torch is of that build, with these GPUs; returns what knows them."""

    def built(name, device):
        versions, kind, backend, _ = BUILDS[name]
        for version in ("cuda", "hip", "xpu"):
            monkeypatch.setattr(torch.version, version, versions.get(version), raising=False)
        monkeypatch.setattr(torch, kind, device)
        monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: backend == "nccl")
        if backend:
            monkeypatch.setattr(
                torch.distributed, "is_xccl_available", lambda: backend == "xccl", raising=False
            )
        else:
            monkeypatch.delattr(torch.distributed, "is_xccl_available", raising=False)
        return importlib.reload(gpu_module("torch"))

    yield built
    monkeypatch.undo()
    importlib.reload(gpu_module("torch"))


@pytest.mark.parametrize("name", BUILDS)
def test_a_build_of_torch_is_said_by_the_name_of_its_gpus(name, build):
    gpus = build(name, Device("a", "b"))
    _, kind, backend, libraries = BUILDS[name]
    gpus.take(1)
    assert (gpus.libraries(), gpus.identity()) == (libraries, "b")
    assert gpus.exchange_library() == (backend, LIBRARIES[name])
    assert gpus.names() == ["GPU 0", "GPU 1"]
    assert gpus.current() == torch.device(kind, 1)


@pytest.mark.parametrize(
    ("name", "uuids", "without"),
    [
        ("CUDA", ["new", "old"], ["GPU 1"]),
        ("CUDA", ["new"], []),
        ("ROCm", ["new"], ["GPU 0"]),
        ("XPU", ["new", "new"], ["GPU 0", "GPU 1"]),
    ],
)
def test_gpus_without_tf32_are_not_taken_for_it(name, uuids, without, build):
    gpus = build(name, Device(*uuids))
    assert gpus.without_tf32() == without
    gpus.take(0)
    with (
        pytest.raises(UsageError, match=f"sees {without[0]}, which has no TF32")
        if without
        else contextlib.nullcontext()
    ):
        gpus.take(0, tf32=True)


def test_a_gpu_without_uuid_has_a_place_on_the_bus(build):
    gpus = build("ROCm", Device(None, pci_domain_id=0, pci_bus_id=0xC1, pci_device_id=0))
    assert gpus.identity() == "PCI 0000:c1:00"
    with pytest.raises(UsageError, match="neither a GPU's UUID nor its PCI bus"):
        build("ROCm", Device(None)).identity()


def gpus_of(num_gpus, *library):
    """What a framework says of GPUs."""
    return SimpleNamespace(
        names=lambda: ["NVIDIA A100"] * num_gpus,
        version=lambda: "2.13.0",
        exchange_library=lambda: library,
        current=lambda: torch.device("xpu", 1),
    )


NCCL, XCCL, NEITHER = ("nccl", "NCCL 2.28.9"), ("xccl", "oneCCL"), ("", "")


@pytest.mark.parametrize(
    ("backend", "framework", "num_gpus", "library", "words"),
    [
        *((nccl, framework, 0, NEITHER, "backend nccl needs a GPU; ") for framework in FRAMEWORKS),
        *(
            (nccl, framework, 1, NEITHER, "has no library between GPUs; see docs/gpu")
            for framework in FRAMEWORKS
        ),
        *((nccl, framework, 1, NCCL, "") for framework in FRAMEWORKS),
        (nccl, "torch", 1, XCCL, "exchanges between its GPUs by oneCCL; choose --backends xccl"),
        (xccl, "torch", 0, NEITHER, "backend xccl needs a GPU; torch 2.13.0 sees none; see docs/gpu"),
        (xccl, "torch", 1, NEITHER, "has no library between GPUs; see docs/gpu"),
        (xccl, "torch", 1, NCCL, "exchanges between its GPUs by NCCL 2.28.9; choose --backends nccl"),
        (xccl, "torch", 1, XCCL, ""),
    ],
)
def test_a_backend_between_gpus_needs_one_and_its_library(
    backend, framework, num_gpus, library, words, monkeypatch
):
    monkeypatch.setattr(frameworks, "gpu_module", lambda _: gpus_of(num_gpus, *library))
    with pytest.raises(UsageError, match=words) if words else contextlib.nullcontext():
        backend.check(framework)


@pytest.mark.parametrize(
    ("options", "given", "bound"),
    [({}, "eth0", "lo"), ({"allow_open_ports": True}, "eth0", "eth0"), ({"bucket_cap_mb": 5}, None, "lo")],
)
def test_ranks_of_xccl_form_a_group_of_their_own_gpus(options, given, bound, monkeypatch, tmp_path):
    """With torch's part of it replaced: no such build is here."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    formed = []
    for module in (frameworks, torch_distributed):
        monkeypatch.setattr(module, "gpu_module", lambda _: gpus_of(2, *XCCL))
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda *a, **k: formed.append((*a, k)))
    for variable in xccl.interface_variables:
        monkeypatch.setenv(variable, given) if given else monkeypatch.delenv(variable, raising=False)
    alone = SimpleNamespace(
        Get_rank=lambda: 0, Get_size=lambda: 1, allgather=lambda one: [one], bcast=lambda one: one
    )
    backend = connect("xccl", control=alone, options=options)
    ((name, known),) = formed
    assert (name, known["rank"], known["world_size"]) == ("xccl", 0, 1)
    assert known["device_id"] == torch.device("xpu", 1)
    assert [os.environ[variable] for variable in xccl.interface_variables] == [bound, bound]
    assert backend.name == "xccl"
    with pytest.raises(UsageError, match="backend xccl has no operations on host buffers"):
        backend.collective()


@pytest.mark.parametrize("tf32", [False, True])
def test_torch_takes_the_gpu_of_its_local_rank_with_tf32_only_if_asked(tf32, monkeypatch):
    taken = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: f"GPU {index}")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    switches = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [switch.allow_tf32 for switch in switches]
    try:
        for switch in switches:
            switch.allow_tf32 = not tf32
        gpu_module("torch").take(3, tf32=tf32)
        assert taken == [3]
        assert [switch.allow_tf32 for switch in switches] == [tf32, tf32]
    finally:
        for switch, allowed in zip(switches, before, strict=True):
            switch.allow_tf32 = allowed


def test_cores_have_no_tf32():
    frameworks.check_precision("tf32", device="gpu")
    with pytest.raises(UsageError, match="precision tf32 was asked for on device cpu"):
        frameworks.check_precision("tf32", device="cpu")


def test_tensorflow_sees_the_gpu_of_its_local_rank_alone(monkeypatch):
    import tensorflow as tf

    done = []
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: ["gpu 0", "gpu 1"])
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda *what: done.append(("visible", *what)))
    experimental = tf.config.experimental
    monkeypatch.setattr(experimental, "set_memory_growth", lambda *what: done.append(("grows", *what)))
    monkeypatch.setattr(
        experimental, "enable_tensor_float_32_execution", lambda on: done.append(("tf32", on))
    )
    gpu_module("tensorflow").take(1, tf32=False)
    assert done == [("visible", "gpu 1", "GPU"), ("grows", "gpu 1", True), ("tf32", False)]
    details = {"gpu 0": {"device_name": "Tesla V100", "compute_capability": (7, 0)}, "gpu 1": {}}
    monkeypatch.setattr(experimental, "get_device_details", details.get)
    assert gpu_module("tensorflow").without_tf32() == ["Tesla V100", "unknown"]
    with pytest.raises(UsageError, match="sees Tesla V100, which has no TF32"):
        gpu_module("tensorflow").take(1, tf32=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "framework",
    [pytest.param(name, marks=[pytest.mark.nightly] if name == "tensorflow" else []) for name in FRAMEWORKS],
)
def test_an_environment_without_gpus_says_so(framework):
    framework_module(framework)
    if gpu_module(framework).names():
        pytest.skip("there is a GPU here")
    # In a process of its own: a framework that has computed takes no more orders.
    prepare = f"from dlscale.models.workload import framework_module as f; f({framework!r}).prepare(1, device='gpu')"
    refused = subprocess.run([sys.executable, "-c", prepare], capture_output=True, text=True, check=False)
    assert "UsageError: device gpu was asked for" in refused.stderr
    assert "sees no GPU here; see docs/gpu.md" in refused.stderr
    question = json.dumps({"gpus": [framework]})
    command = [sys.executable, "-m", "dlscale.benchmarks.launch.probe", question]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert '"names":[]' in said
