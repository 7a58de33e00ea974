"""What a node says of itself: cores, memory, GPUs, network interfaces, MPI and modules, by its files and commands.

`Host` is the machine as the probe sees it, its files and commands; tests put another one in its place. The kernel
has cores, NUMA domains, frequency, memory and links (/proc, /sys/class); the drivers' own tools list the GPUs.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from dlscale.base.redaction import redact
from dlscale.benchmarks.systems.system import Flavour, flavour_of

COMMAND_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Files are asked for by their absolute paths. What a command complained of is in `problems`."""

    root: Path = Path("/")
    hostname: str = field(default_factory=platform.node)
    today: str = field(default_factory=lambda: datetime.now(UTC).date().isoformat())
    variables: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    num_allowed: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))  # hardware threads
    problems: list[str] = field(default_factory=list)

    def text(self, path: str) -> str | None:
        """What a file holds, without surrounding blanks; None if it is not there, cannot be read or is empty."""
        try:
            return (self.root / path.lstrip("/")).read_text(
                encoding="utf-8", errors="replace"
            ).strip() or None
        except OSError:  # many files of /sys exist and cannot be read
            return None

    def names(self, folder: str) -> list[str]:
        """What is in a folder, sorted; nothing if there is no such folder."""
        try:
            return sorted(os.listdir(self.root / folder.lstrip("/")))
        except OSError:
            return []

    def has(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        return (self.root / path.lstrip("/")).exists()

    def find(self, program: str) -> str | None:
        """The program's absolute path, if it is on PATH."""
        return shutil.which(program, path=self.variables.get("PATH"))

    def run(self, program: str, *arguments: str) -> str | None:
        """What a command printed, to stderr if nothing to stdout, as some do with versions and lists.

        None if there is no such program, which is no problem, or if it failed.
        """
        found = self.find(program)
        if not found:
            return None
        try:
            done = subprocess.run(
                [found, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=COMMAND_SECONDS,
                env={**self.variables, "LC_ALL": "C"},
            )
            if not done.returncode:
                return done.stdout or done.stderr
            said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
            why = f"exit status {done.returncode}, {said}"
        except subprocess.TimeoutExpired:
            why = f"no answer within {COMMAND_SECONDS:.0f} s"
        except OSError as error:
            why = error.strerror or "cannot be started"
        self.problems.append(redact(f"{Path(program).name} {' '.join(arguments)}: {why}"))
        return None


_CPUS = "/sys/devices/system/cpu"
_NUMA_NODES = "/sys/devices/system/node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """Cores are physical ones, whether or not this process may use them; None: not found."""

    num_cores: int
    num_cpus: int  # hardware threads
    num_allowed: int  # of the hardware threads, those this process may run on
    threads_per_core: int | None = None  # None also if cores differ
    num_sockets: int | None = None
    numa_domains: int | None = None
    model: str | None = None
    model_source: str = "cpu"
    frequency: str | None = None
    memory_gib: float | None = None


def read_cpu(host: Host) -> Cpu:
    """This node's processors and memory."""
    about = host.text("/proc/cpuinfo") or ""
    online = parse_list(host.text(f"{_CPUS}/online") or "") or list(range(count_processors(about)))
    cores: dict[str, int] = {}  # the threads of a core -> how many they are
    sockets = set()
    for cpu in online:
        topology = f"{_CPUS}/cpu{cpu}/topology"
        threads = host.text(f"{topology}/core_cpus_list") or host.text(f"{topology}/thread_siblings_list")
        cores[threads or str(cpu)] = len(parse_list(threads)) if threads else 0
        sockets.add(host.text(f"{topology}/physical_package_id"))
    widths = set(cores.values())
    model = model_in(about)
    numa = parse_list(host.text(f"{_NUMA_NODES}/has_cpu") or host.text(f"{_NUMA_NODES}/online") or "")
    return Cpu(
        num_cores=max(1, len(cores)),
        num_cpus=max(1, len(online)),
        num_allowed=host.num_allowed,
        threads_per_core=widths.pop() or None if len(widths) == 1 else None,
        num_sockets=None if None in sockets else len(sockets) or None,
        numa_domains=len(numa) or None,
        model=model or model_in(host.run("lscpu") or ""),
        model_source="cpu" if model else "lscpu",
        frequency=_frequency(host),
        memory_gib=memory_in(host.text("/proc/meminfo") or ""),
    )


def parse_list(text: str) -> list[int]:
    """The numbers in the kernel's 0-3,8: [0, 1, 2, 3, 8]. Nothing where it is not such a list."""
    numbers: list[int] = []
    for word in text.strip().split(","):
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", word)
        if not found:
            return []
        numbers += range(int(found[1]), int(found[2] or found[1]) + 1)
    return numbers


def count_processors(about: str) -> int:
    """Hardware threads in the text of /proc/cpuinfo."""
    return len(re.findall(r"^processor\s*:", about, re.MULTILINE))


def model_in(about: str) -> str | None:
    """The processor's name in /proc/cpuinfo (x86, POWER) or in what lscpu prints (which knows ARM's names)."""
    found = re.search(r"^(?:model name|Model name|cpu)[ \t]*:[ \t]*(\S.*)$", about, re.MULTILINE)
    return " ".join(found[1].split()) if found else None


def memory_in(about: str) -> float | None:
    """GiB of memory in the text of /proc/meminfo."""
    found = re.search(r"^MemTotal:\s+(\d+) kB", about, re.MULTILINE)
    return int(found[1]) / 2**20 if found else None


def gib(amount: float) -> str:
    """GiB as a quantity: 251.4 GiB."""
    return f"{amount:.1f} GiB"


def _frequency(host: Host) -> str | None:
    kilohertz = host.text(f"{_CPUS}/cpu0/cpufreq/base_frequency") or ""
    megahertz = host.text(f"{_CPUS}/cpu0/acpi_cppc/nominal_freq") or ""
    if kilohertz.isdigit() and int(kilohertz):
        return f"{int(kilohertz) / 1e6:g} GHz"
    return f"{int(megahertz) / 1e3:g} GHz" if megahertz.isdigit() and int(megahertz) else None


NVIDIA = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
AMD = ("rocm-smi", "--showproductname", "--showmeminfo", "vram", "--json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU; memory in GiB."""

    model: str
    memory_gib: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """A node's GPUs by the model that most of them are of. `told_by` is the command that listed them."""

    count: int
    gpu: Gpu
    told_by: str
    others: tuple[str, ...] = ()  # models of the rest, which are counted too


def read_gpus(host: Host) -> Gpus | None:
    """The GPUs of this node; None if no tool lists any."""
    tools: tuple[tuple[tuple[str, ...], Callable[[str], list[Gpu]]], ...] = (
        (NVIDIA, parse_nvidia),
        (AMD, parse_amd),
    )
    for command, parse in tools:
        if found := parse(host.run(*command) or ""):
            (most, _), *rest = Counter(found).most_common()
            others = sorted({gpu.model for gpu, _ in rest} - {most.model})
            return Gpus(count=len(found), gpu=most, told_by=" ".join(command), others=tuple(others))
    return None


def parse_nvidia(output: str) -> list[Gpu]:
    """GPUs in lines such as "NVIDIA A100-SXM4-40GB, 40960" (MiB)."""
    found = []
    for line in output.splitlines():
        model, comma, memory = line.rpartition(",")
        if comma and model.strip():
            mebibytes = memory.strip()
            size = int(mebibytes) / 1024 if mebibytes.isdigit() and int(mebibytes) else None
            found.append(Gpu(model=model.strip(), memory_gib=size))
    return found


def parse_amd(output: str) -> list[Gpu]:
    """GPUs in rocm-smi's JSON, which has one card per GPU that frameworks see: two per MI250X."""
    try:
        cards = json.loads(output[output.index("{") :])  # warnings may come before it
    except ValueError:
        return []
    found = []
    for name, card in cards.items():
        if name.startswith("card") and isinstance(card, dict):
            told = {
                key.lower(): str(text) for key, text in card.items()
            }  # "Card series", later "Card Series"
            memory = told.get("vram total memory (b)", "")
            size = int(memory) / 2**30 if memory.isdigit() and int(memory) else None
            model = told.get("card series") or told.get("card model") or "AMD GPU"
            found.append(Gpu(model=model, memory_gib=size))
    return found


_NET = "/sys/class/net"
_INFINIBAND = "/sys/class/infiniband"
_CXI = "/sys/class/cxi"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interconnect:
    """The network that jobs would use. Bandwidth is of all its interfaces together, in Gb/s per direction."""

    name: str
    interfaces: tuple[str, ...]
    read_in: str
    gigabits: float | None = None


def read_interconnect(host: Host) -> Interconnect | None:
    """The fastest kind of network of this node; None if it has no interface that is up."""
    return _slingshot(host) or _infiniband(host) or _aries(host) or _ethernet(host)


def parse_rate(text: str) -> tuple[float, str] | None:
    """Gb/s and the generation in an InfiniBand port's "200 Gb/sec (4X HDR)"."""
    found = re.match(r"([\d.]+) Gb/sec(?: \(\d+X (\w+)\))?", text)
    return (float(found[1]), found[2] or "") if found else None


def _slingshot(host: Host) -> Interconnect | None:
    """Cassini's devices; the speed is that of the Ethernet interface which each of them has as well."""
    devices = [name for name in host.names(_CXI) if re.fullmatch(r"cxi\d+", name)]
    speeds = []
    for device in devices:
        folder = f"{_CXI}/{device}/device/net"
        speeds += [_speed(host, f"{folder}/{name}") for name in host.names(folder)][:1]
    return _together("Slingshot", devices, speeds, _CXI)


def _infiniband(host: Host) -> Interconnect | None:
    """Ports that are active; without any, those there are, whose rates then say nothing."""
    kinds: dict[str, list[tuple[str, float]]] = {}
    for device in host.names(_INFINIBAND):
        for port in host.names(f"{_INFINIBAND}/{device}/ports"):
            folder = f"{_INFINIBAND}/{device}/ports/{port}"
            rate = parse_rate(host.text(f"{folder}/rate") or "")
            if rate and "ACTIVE" in (host.text(f"{folder}/state") or ""):
                ethernet = host.text(f"{folder}/link_layer") == "Ethernet"
                kind = (
                    "RoCE"
                    if ethernet
                    else "Omni-Path"
                    if device.startswith("hfi")
                    else f"InfiniBand {rate[1]}"
                )
                kinds.setdefault(kind.strip(), []).append((device, rate[0]))
    if not kinds:
        return None
    kind = max(kinds, key=lambda name: (name != "RoCE", sum(speed for _, speed in kinds[name])))
    devices = sorted({device for device, _ in kinds[kind]})
    return _together(kind, devices, [speed for _, speed in kinds[kind]], _INFINIBAND)


def _aries(host: Host) -> Interconnect | None:
    return _together("Aries", host.names("/sys/class/gni"), [], "/sys/class/gni")


def _ethernet(host: Host) -> Interconnect | None:
    """The fastest interface alone: several would be used together only as a bond, which is one interface."""
    speeds: dict[str, float] = {}
    for name in host.names(_NET):
        folder = f"{_NET}/{name}"
        real = host.has(f"{folder}/device") or host.has(f"{folder}/bonding")
        if real and not host.has(f"{folder}/bonding_slave") and host.text(f"{folder}/operstate") == "up":
            speeds[name] = _speed(host, folder) or 0.0
    if not speeds:
        return None
    fastest = max(speeds, key=lambda name: speeds[name])
    return _together("Ethernet", [fastest], [speeds[fastest] or None], _NET)


def _speed(host: Host, folder: str) -> float | None:
    """Gb/s of a network interface; the kernel says Mb/s, -1 where it does not know (virtual machines)."""
    megabits = host.text(f"{folder}/speed") or ""
    return int(megabits) / 1000 if megabits.isdigit() and int(megabits) else None


def _together(
    name: str, interfaces: list[str], speeds: list[float] | list[float | None], read_in: str
) -> Interconnect | None:
    if not interfaces:
        return None
    known = [speed for speed in speeds if speed]
    # One that does not say its speed would make the sum wrong.
    complete = len(known) == len(speeds) >= len(interfaces)
    return Interconnect(
        name=name,
        interfaces=tuple(interfaces),
        read_in=read_in,
        gigabits=sum(known) if complete else None,
    )


_VERSIONS = {
    "intelmpi": r"Version (\S+)",
    "mpich": r"Version:\s+(\S+)",
    "openmpi": r"Open MPI\)?,? v?(\d\S*)",
}
_NAMES = {"intelmpi": "Intel MPI", "mpich": "MPICH", "openmpi": "Open MPI"}


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledMpi:
    """An mpiexec: whose it is, and what it calls itself."""

    flavour: Flavour
    title: str  # MPICH 5.0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Modules:
    """A module command and what is loaded by it; names that are paths or name a user are not told."""

    title: str  # Lmod 8.7.32
    loaded: tuple[str, ...]


def read_mpi(host: Host, prefix: Path = Path(sys.prefix)) -> InstalledMpi | None:
    """The MPI of environment `current`: the mpiexec in this Python's folder, or the one on PATH."""
    own = str(prefix / "bin" / "mpiexec")
    said = host.run(own if host.find(own) else "mpiexec", "--version")
    return parse_mpi(said or "")


def parse_mpi(version_text: str) -> InstalledMpi | None:
    """Whose mpiexec printed this for --version; None if it is none that dlscale knows."""
    flavour = flavour_of(version_text)
    if not flavour:
        return None
    version = re.search(_VERSIONS[flavour], version_text)
    return InstalledMpi(flavour=flavour, title=f"{_NAMES[flavour]} {version[1] if version else ''}".strip())


def read_modules(host: Host) -> Modules | None:
    """The module command of this shell; None if there is none."""
    lmod, environment_modules = host.variables.get("LMOD_VERSION"), host.variables.get("MODULESHOME")
    if not (lmod or environment_modules):
        return None
    names = host.variables.get("LOADEDMODULES", "").split(":")
    told = [name for name in names if name and not name.startswith(("/", "~")) and redact(name) == name]
    return Modules(title=f"Lmod {lmod}" if lmod else "Environment Modules", loaded=tuple(told))
