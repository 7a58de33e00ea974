"""Cores, threads, NUMA domains, frequency and memory of this node, as the kernel has them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dlscale.benchmarks.system_probe.host import Host

_CPUS = "/sys/devices/system/cpu"
_NODES = "/sys/devices/system/node"


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
    numa = parse_list(host.text(f"{_NODES}/has_cpu") or host.text(f"{_NODES}/online") or "")
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
