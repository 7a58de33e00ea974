"""The facts of this node: lscpu, nvidia-smi and mpiexec, the kernel's /sys, limits of a container, loaded modules."""

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
from typing import Any

import psutil

from dlscale.base.launchers import Flavour, flavour_of, mpi_title
from dlscale.base.launching.pals import is_pals
from dlscale.base.redaction import redact
from dlscale.base.strings import visible
from dlscale.benchmarks.systems.limits import Limits, read_limits

COMMAND_SECONDS = 30.0
Table = dict[str, Any]  # a section of the file: facts as tables, None where one is unknown
Interfaces = list[tuple[str, float | None]]  # names, and Gb/s per direction


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
class ThisNode:
    """All that was read on this node: tables of a system's file, empty where there is nothing of the kind."""

    hostname: str
    node: Table
    devices: Table
    fabric: Table
    num_threads: int  # of the hardware
    num_allowed: int  # of them, for this process
    mpi: tuple[Flavour, str] | None  # "MPICH 5.0.2"; None: none that is known
    pals: bool  # mpiexec is that of PALS
    modules: tuple[str, ...] | None  # those loaded, without paths and users' names; None: no module command
    torch: str | None  # the version that this Python has
    limits: Limits


def fact(value: str | float | None, source: str, note: str = "") -> Table | None:
    """Something that was read on this machine; None where it is unknown."""
    if not value:
        return None
    value = visible(value) if isinstance(value, str) else value
    return {"value": value, "source": source, "kind": "machine"} | ({"note": note} if note else {})


def gibibytes(amount: float | None) -> str | None:
    """As in 251.4 GiB; None where nothing is known, or no more than nothing is left of it."""
    text = f"{amount or 0:.1f}"
    return f"{text} GiB" if float(text) else None


def read_node(commands: Commands) -> ThisNode:
    """Read all of it. Starts nothing but commands that describe this node, and mpiexec for its version."""
    own = Path(sys.prefix) / "bin" / "mpiexec"
    version_text = commands.run(str(own) if own.exists() else "mpiexec", "--version")
    flavour = flavour_of(version_text)
    loaded = os.environ.get("LOADEDMODULES", "").split(":")
    node, num_threads = read_cpu(commands)
    return ThisNode(
        hostname=platform.node(),
        node=node,
        devices=read_gpus(commands),
        fabric=read_network(),
        num_threads=num_threads,
        num_allowed=len(os.sched_getaffinity(0)),
        mpi=(flavour, mpi_title(version_text) or flavour) if flavour else None,
        pals=is_pals(version_text),
        modules=tuple(name for name in loaded if name and name[0] not in "/~" and redact(name) == name)
        if {"LMOD_VERSION", "MODULESHOME"} & os.environ.keys()
        else None,
        torch=importlib.metadata.version("torch") if importlib.util.find_spec("torch") else None,
        limits=read_limits(),
    )


def read_cpu(commands: Commands) -> tuple[Table, int]:
    """Cores by lscpu, which knows them on every architecture, whether or not this process may use them, and memory.

    Also the number of hardware threads. Cores with different numbers of threads have no common one.
    """
    rows = re.findall(
        r"^\d+,(\d*),(\d*),(\d*)$", commands.run("lscpu", "-p=CPU,CORE,SOCKET,NODE"), re.MULTILINE
    )
    num_threads = len(rows) or os.cpu_count() or 1
    num_cores = len({(core, socket) for core, socket, _ in rows}) or num_threads
    model = re.search(r"^(?:BIOS )?Model name:\s*(\S.*)", commands.run("lscpu"), re.MULTILINE)
    even = rows and num_threads % num_cores == 0
    return {
        "cores": fact(num_cores, "node"),
        "threads_per_core": fact(num_threads // num_cores if even else None, "node"),
        "memory": fact(
            gibibytes(psutil.virtual_memory().total / 2**30), "node", "less what the kernel keeps"
        ),
        "cpu_model": fact(" ".join(model[1].split()) if model else None, "node"),
        "numa_domains": fact(len({domain for *_, domain in rows if domain}), "node"),
    }, num_threads


def read_gpus(commands: Commands) -> Table:
    """NVIDIA's GPUs of this node; where nvidia-smi fails, that is a problem which is named."""
    output = commands.run("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
    rows = [line.rpartition(",") for line in output.splitlines()]
    # MiB, or [N/A] where the GPU shares the node's memory
    return devices_of(
        [(name, int(size) / 1024 if size.strip().isdecimal() else None) for name, _, size in rows]
    )


def devices_of(gpus: Sequence[tuple[str, float | None]]) -> Table:
    """All of a node's GPUs, of model and GiB each, by the model that most of them are of."""
    if not gpus:
        return {}
    ((model, gib), _), *rest = Counter(gpus).most_common()
    others = sorted({other for (other, _), _ in rest} - {model})
    note = f"counted with: {', '.join(others)}" if others else ""
    return {
        "per_node": fact(len(gpus), "gpus", note),
        "model": fact(model, "gpus", note),
        "memory": fact(gibibytes(gib), "gpus", note),
    }


def read_network(system_files: Path = Path("/sys")) -> Table:
    """The fastest kind of network of this node; empty if no interface is up."""
    classes = system_files / "class"
    # Cassini's speed is that of the Ethernet interface which each device has as well.
    slingshot: Interfaces = [
        (device.name, next((_gigabits(net) for net in sorted(device.glob("device/net/*"))), None))
        for device in sorted((classes / "cxi").glob("cxi*"))
    ]
    aries: Interfaces = [(device.name, None) for device in sorted((classes / "gni").glob("*"))]
    # The fastest Ethernet interface alone: several are used together only as a bond, which is one interface.
    ethernet = [
        (net.name, _gigabits(net))
        for net in sorted((classes / "net").glob("*"))
        if ((net / "device").exists() or (net / "bonding").exists())
        and not (net / "bonding_slave").exists()
        and _text(net / "operstate") == "up"
    ]
    fastest = sorted(ethernet, key=lambda interface: -(interface[1] or 0))[:1]
    verbs = _verbs(classes / "infiniband")
    kinds = {"Slingshot": slingshot, **verbs, "Aries": aries, "Ethernet": fastest}
    name = next((kind for kind, interfaces in kinds.items() if interfaces), None)
    if name is None:
        return {}
    speeds = [speed for _, speed in kinds[name]]
    names = list(dict.fromkeys(interface for interface, _ in kinds[name]))
    # An interface of unknown speed would make the sum wrong.
    total = f"{sum(filter(None, speeds)):g} Gb/s" if all(speeds) else None
    return {
        "name": fact(name, "network"),
        "bandwidth": fact(total, "network"),
        "nics_per_node": fact(len(names), "network", f"interfaces: {', '.join(names)}"),
    }


def _verbs(folder: Path) -> dict[str, Interfaces]:
    """The active ports in class/infiniband by their kind, the fastest one first and RoCE last."""
    kinds: dict[str, Interfaces] = {}
    for port in sorted(folder.glob("*/ports/*")):
        device = port.parent.parent
        rate = re.match(r"([\d.]+) Gb/sec(?: \(\d+X (\w+)\))?", _text(port / "rate"))  # 200 Gb/sec (4X HDR)
        if rate and "ACTIVE" in _text(port / "state"):
            kind, known = _kind_of(device, _text(port / "link_layer"))
            kind = f"{kind} {rate[2] or ''}".strip() if kind == "InfiniBand" else kind
            kinds.setdefault(kind, []).append((device.name, float(rate[1]) if known else None))
    order = sorted(kinds, key=lambda name: (name != "RoCE", sum(speed or 0 for _, speed in kinds[name])))
    return {name: kinds[name] for name in reversed(order)}


def _kind_of(device: Path, layer: str) -> tuple[str, bool]:
    """The kind of a device's network, and whether its port's rate counts: EFA has 4X EDR (linux-rdma/rdma-core#884)."""
    if device.name.startswith("hfi"):
        return "Omni-Path", True
    if layer in ("InfiniBand", "Ethernet"):
        return "InfiniBand" if layer == "InfiniBand" else "RoCE", True
    is_efa = (device / "device/driver").resolve().name == "efa" or device.name.startswith(("efa", "rdmap"))
    return "EFA" if is_efa else "a network of an unknown kind", False


def _gigabits(net: Path) -> float | None:
    """Gb/s of a network interface; the kernel has Mb/s, or -1 where it does not know (virtual machines)."""
    text = _text(net / "speed")
    return (int(text) if text.isdecimal() else 0) / 1000 or None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:  # many files of /sys exist and cannot be read
        return ""
