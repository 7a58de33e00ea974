"""Facts as a system's file has them, each with the key of what it was read from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dlscale.benchmarks.system_probe.machine import Machine
from dlscale.benchmarks.system_probe.toml import Table, Value

HERE = "of the machine that the probe ran on"
FILL_IN = "FILL IN"  # begins every comment that asks a person for something


def fact(value: str | int, source: str, note: str = "") -> dict[str, Value]:
    """Something that was read on this machine."""
    told: dict[str, Value] = {"value": value, "source": source, "kind": "machine"}
    return told | {"note": note} if note else told


def placeholder(value: int) -> dict[str, Value]:
    """What a file must have and nothing told."""
    return {"value": value, "source": "placeholder"}


def sources(machine: Machine, tables: Iterable[Table]) -> dict[str, str]:
    """What each source that the tables' facts name was, on which day."""
    read = {
        "cpu": "/proc/cpuinfo, /sys/devices/system/cpu and /sys/devices/system/node",
        "lscpu": "lscpu",
        "memory": "MemTotal in /proc/meminfo",
        "gpus": machine.gpus.told_by if machine.gpus else "",
        "network": machine.network.read_in if machine.network else "",
        "scheduler": machine.batch.told_by if machine.batch else "",
    }
    told = {key: f"{text}, read on {machine.host.today}" for key, text in read.items()}
    told["placeholder"] = "nothing told it: to be replaced"
    used = {name for table in tables for entry in table.entries for name in _named(entry.value)}
    return {key: text for key, text in told.items() if key in used}


def _named(value: Value) -> Iterable[str]:
    if isinstance(value, Mapping) and isinstance(value.get("source"), str):
        yield str(value["source"])
