"""The machine and the software of a curve in one sentence, from its records alone; what they do not say is named."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dlscale.analysis.text import listed, number, plural
from dlscale.benchmarks.records.record import Record

NAMES = {"torch": "PyTorch", "tensorflow": "TensorFlow", "jax": "JAX"}
PACKAGES = {
    "torch": ("torch",),
    "tensorflow": ("tensorflow", "tensorflow-cpu"),
    "jax": ("jax",),
}  # as versions name them


def machine_sentence(records: Iterable[Record]) -> str:
    """`Nodes: Intel Xeon, 2 usable cores, 24 GiB of memory; ...; software: PyTorch 2.13.0, ...`, if there are records.

    Where records differ all values stand in it.
    """
    records = list(records)
    if not records:
        return ""
    parts = {
        "nodes": listed(_distinct(records, _node)),
        "network between nodes": listed(_distinct(records, _network)),
        "software": listed(_distinct(records, _software)),
    }
    text = "; ".join(f"{name}: {value}" for name, value in parts.items())
    return f"{text[0].upper()}{text[1:]}."


def _distinct(records: Iterable[Record], describe: Callable[[Record], str]) -> list[str]:
    return list(dict.fromkeys(map(describe, records)))


def _node(record: Record) -> str:
    node = record.fingerprint.node
    cores, memory = node.get("num_cores"), node.get("memory_gib")
    parts = [
        str(node.get("cpu_model", "CPU not known")),
        plural(cores, "usable core") if isinstance(cores, int) else "cores not known",
        f"{memory} GiB of memory" if memory is not None else "memory not known",
    ]
    own = next((facts.devices for facts in record.nodes if facts.devices), None)
    gpus = node.get(f"gpus_{record.case.cell.framework}") or own
    if gpus or record.case.cell.device == "gpu":
        parts.append(f"GPUs {gpus or 'not known'}")
    return ", ".join(parts)


def _network(record: Record) -> str:
    if record.case.cell.num_nodes == 1:
        return "none used"
    fabric = record.configuration.fabric if record.configuration else {}
    bandwidth = fabric.get("bandwidth")
    rate = f" with {number(bandwidth / 1e9)} GB/s per node" if isinstance(bandwidth, int | float) else ""
    return f"{fabric['name']}{rate}" if "name" in fabric else "not stated in the system's file"


def _software(record: Record) -> str:
    versions, framework = record.fingerprint.versions, record.case.cell.framework
    built = next((versions[name] for name in PACKAGES[framework] if name in versions), "of unknown version")
    parts = [f"{NAMES[framework]} {built}", versions.get("mpi", "MPI not known")]
    if record.case.cell.backend in versions:  # Horovod's own
        parts.append(f"{record.case.cell.backend} {versions[record.case.cell.backend]}")
    return ", ".join([*parts, f"Python {versions.get('python', 'not known')}"])
