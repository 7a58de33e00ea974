"""Network interfaces and what their links can carry, as /sys/class says it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dlscale.benchmarks.system_probe.host import Host

_NET = "/sys/class/net"
_INFINIBAND = "/sys/class/infiniband"
_CXI = "/sys/class/cxi"


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The network that jobs would use. Bandwidth is of all its interfaces together, in Gb/s per direction."""

    name: str
    interfaces: tuple[str, ...]
    read_in: str
    gigabits: float | None = None


def read_network(host: Host) -> Network | None:
    """The fastest kind of network of this node; None if it has no interface that is up."""
    return _slingshot(host) or _infiniband(host) or _aries(host) or _ethernet(host)


def parse_rate(text: str) -> tuple[float, str] | None:
    """Gb/s and the generation in an InfiniBand port's "200 Gb/sec (4X HDR)"."""
    found = re.match(r"([\d.]+) Gb/sec(?: \(\d+X (\w+)\))?", text)
    return (float(found[1]), found[2] or "") if found else None


def _slingshot(host: Host) -> Network | None:
    """Cassini's devices; the speed is that of the Ethernet interface which each of them has as well."""
    devices = [name for name in host.names(_CXI) if re.fullmatch(r"cxi\d+", name)]
    speeds = []
    for device in devices:
        folder = f"{_CXI}/{device}/device/net"
        speeds += [_speed(host, f"{folder}/{name}") for name in host.names(folder)][:1]
    return _together("Slingshot", devices, speeds, _CXI)


def _infiniband(host: Host) -> Network | None:
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


def _aries(host: Host) -> Network | None:
    return _together("Aries", host.names("/sys/class/gni"), [], "/sys/class/gni")


def _ethernet(host: Host) -> Network | None:
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
) -> Network | None:
    if not interfaces:
        return None
    known = [speed for speed in speeds if speed]
    # One that does not say its speed would make the sum wrong.
    complete = len(known) == len(speeds) >= len(interfaces)
    return Network(
        name=name,
        interfaces=tuple(interfaces),
        read_in=read_in,
        gigabits=sum(known) if complete else None,
    )
