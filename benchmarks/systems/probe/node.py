"""The facts of this node: cores, memory, GPUs, network, MPI and modules.

psutil, py-cpuinfo and NVIDIA's NVML read most of it; the network's interfaces are read in /sys/class.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import cpuinfo
import psutil
import pynvml

from dlscale.base.launchers import Flavour, flavour_of, mpi_title
from dlscale.base.redaction import redact
from dlscale.base.strings import visible

COMMAND_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Commands:
    """Runs commands, and keeps what those that failed complained of in `problems`."""

    problems: list[str] = field(default_factory=list)

    def run(self, program: str, *arguments: str) -> str:
        """What a command printed, or its stderr if it printed nothing; empty if it failed or does not exist."""
        if not shutil.which(program):
            return ""
        try:
            done = subprocess.run(
                [program, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=COMMAND_SECONDS,
                env={**os.environ, "LC_ALL": "C"},
            )
            if not done.returncode:
                return visible(done.stdout or done.stderr)
            lines = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
            reason = f"exit status {done.returncode}, {lines[-1]}"
        except subprocess.TimeoutExpired:
            reason = f"no answer within {COMMAND_SECONDS:.0f} s"
        except OSError as error:
            reason = error.strerror or "cannot be started"
        self.problems.append(redact(f"{Path(program).name} {' '.join(arguments)}: {reason}"))
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """Cores are physical ones, whether or not this process may use them; None: unknown."""

    num_cores: int
    num_threads: int  # of the hardware
    num_allowed: int  # hardware threads that this process may run on
    threads_per_core: int | None  # None also if cores differ
    numa_domains: int | None
    model: str | None
    memory_gib: float


def read_cpu(system_files: Path = Path("/sys")) -> Cpu:
    """The processors and the memory of this node."""
    num_threads = psutil.cpu_count(logical=True) or 1
    cores = psutil.cpu_count(logical=False)
    return Cpu(
        num_cores=cores or num_threads,
        num_threads=num_threads,
        num_allowed=len(os.sched_getaffinity(0)),
        threads_per_core=num_threads // cores if cores and num_threads % cores == 0 else None,
        numa_domains=len(
            {cpu.parent for cpu in system_files.glob("devices/system/node/node[0-9]*/cpu[0-9]*")}
        )
        or None,
        model=" ".join(str(cpuinfo.get_cpu_info().get("brand_raw") or "").split()) or None,
        memory_gib=psutil.virtual_memory().total / 2**30,
    )


def quantity(amount: float | None, unit: str) -> str | None:
    """As in 251.4 GiB; None where nothing is known, or no more than nothing is left of it."""
    text = f"{amount or 0:.1f}"
    return f"{text} {unit}" if float(text) else None


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU; memory in GiB."""

    model: str
    memory_gib: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """A node's GPUs by the model that most of them are of; `backend` exchanges between them, where that is known."""

    count: int
    gpu: Gpu
    others: tuple[str, ...] = ()  # models of the rest, which are counted too
    source: str = "gpus"
    backend: str = ""


def most_common(gpus: Sequence[Gpu], **known: str) -> Gpus | None:
    """All of a node's; None without any."""
    if not gpus:
        return None
    (gpu, _), *rest = Counter(gpus).most_common()
    others = {other.model for other, _ in rest} - {gpu.model}
    return Gpus(count=len(gpus), gpu=gpu, others=tuple(sorted(others)), **known)


def read_gpus() -> Gpus | None:
    """NVIDIA's GPUs of this node; None if NVML lists none."""
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        return most_common([_gpu(pynvml.nvmlDeviceGetHandleByIndex(index)) for index in range(count)])
    except pynvml.NVMLError:
        return None


def _gpu(handle: object) -> Gpu:
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle).total / 2**30
    except pynvml.NVMLError:  # where the GPU shares the node's memory
        memory = None
    return Gpu(pynvml.nvmlDeviceGetName(handle), memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The network that jobs would use. Bandwidth of all its interfaces together, in Gb/s per direction."""

    name: str
    interfaces: tuple[str, ...]
    gigabits: float | None  # None: unknown


def read_network(system_files: Path = Path("/sys")) -> Network | None:
    """The fastest kind of network of this node; None if no interface is up."""
    classes = system_files / "class"
    # Cassini's speed is that of the Ethernet interface which each device has as well.
    slingshot = [
        (device.name, next((_gigabits(net) for net in sorted(device.glob("device/net/*"))), None))
        for device in sorted((classes / "cxi").glob("cxi*"))
    ]
    aries = [(device.name, None) for device in sorted((classes / "gni").glob("*"))]
    # The fastest Ethernet interface alone: several are used together only as a bond, which is one interface.
    ethernet = [
        (net.name, _gigabits(net))
        for net in sorted((classes / "net").glob("*"))
        if ((net / "device").exists() or (net / "bonding").exists())
        and not (net / "bonding_slave").exists()
        and _text(net / "operstate") == "up"
    ]
    fastest = sorted(ethernet, key=lambda interface: -(interface[1] or 0))[:1]
    return (
        _together("Slingshot", slingshot)
        or _infiniband(classes / "infiniband")
        or _together("Aries", aries)
        or _together("Ethernet", fastest)
    )


def _infiniband(folder: Path) -> Network | None:
    """The active ports of the fastest kind; RoCE only where there is nothing else."""
    kinds: dict[str, list[tuple[str, float | None]]] = {}
    for port in sorted(folder.glob("*/ports/*")):
        device = port.parent.parent.name
        rate = re.match(r"([\d.]+) Gb/sec(?: \(\d+X (\w+)\))?", _text(port / "rate"))  # 200 Gb/sec (4X HDR)
        if rate and "ACTIVE" in _text(port / "state"):
            kind = "Omni-Path" if device.startswith("hfi") else f"InfiniBand {rate[2] or ''}".strip()
            if _text(port / "link_layer") == "Ethernet":
                kind = "RoCE"
            kinds.setdefault(kind, []).append((device, float(rate[1])))
    if not kinds:
        return None
    kind = max(kinds, key=lambda name: (name != "RoCE", sum(speed or 0 for _, speed in kinds[name])))
    return _together(kind, kinds[kind])


def _together(name: str, interfaces: Sequence[tuple[str, float | None]]) -> Network | None:
    if not interfaces:
        return None
    speeds = [speed for _, speed in interfaces if speed]
    complete = len(speeds) == len(interfaces)  # an interface of unknown speed would make the sum wrong
    names = tuple(dict.fromkeys(interface for interface, _ in interfaces))
    return Network(name=name, interfaces=names, gigabits=sum(speeds) if complete else None)


def _gigabits(net: Path) -> float | None:
    """Gb/s of a network interface; the kernel has Mb/s, or -1 where it does not know (virtual machines)."""
    megabits = _number(net / "speed")
    return megabits / 1000 if megabits else None


def _number(path: Path) -> int:
    text = _text(path)
    return int(text) if text.isdecimal() else 0


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:  # many files of /sys exist and cannot be read
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThisNode:
    """All that was read on this node; None: there is none, or it cannot be read."""

    hostname: str
    cpu: Cpu
    gpus: Gpus | None
    network: Network | None
    mpi: tuple[Flavour, str] | None  # "MPICH 5.0.2"
    modules: tuple[str, ...] | None  # those loaded, without paths and users' names; None: no module command
    torch: str | None  # the version that this Python has


def read_node(commands: Commands) -> ThisNode:
    """Read all of it. Starts nothing but this environment's mpiexec, or the one on PATH, for its version."""
    own = Path(sys.prefix) / "bin" / "mpiexec"
    version_text = commands.run(str(own) if own.exists() else "mpiexec", "--version")
    flavour = flavour_of(version_text)
    loaded = os.environ.get("LOADEDMODULES", "").split(":")
    modules = tuple(
        name for name in loaded if name and not name.startswith(("/", "~")) and redact(name) == name
    )
    return ThisNode(
        hostname=platform.node(),
        cpu=read_cpu(),
        gpus=read_gpus(),
        network=read_network(),
        mpi=(flavour, mpi_title(version_text) or flavour) if flavour else None,
        modules=modules if {"LMOD_VERSION", "MODULESHOME"} & os.environ.keys() else None,
        torch=importlib.metadata.version("torch") if importlib.util.find_spec("torch") else None,
    )
