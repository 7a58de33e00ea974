"""What a rehearsal assumes of a network where the system's file does not state it, each in words.

Only `dlscale run` elsewhere than on the system takes this: `dlscale predict` refuses, and names the missing key. Rates
of links are never assumed.
"""

from __future__ import annotations

from typing import Any

from dlscale.base.quantities import Quantity
from dlscale.benchmarks.systems.system import System, load_system

MODEL = "cori"  # the system of the catalogue with all facts of a network


def with_assumed(system: System) -> tuple[System, tuple[str, ...]]:
    """The system with what its predictions lack, and each assumption; itself where it states everything."""
    texts: list[str] = []
    model = load_system(MODEL)
    changes: dict[str, Any] = {}
    fabric, node = system.fabric, system.node
    if system.num_nodes is None and system.partitions:
        changes["num_nodes"] = max(
            (part.num_nodes for part in system.partitions.values()), key=lambda it: it.value
        )
    if node.memory_bandwidth is None and model.node.memory_bandwidth:
        memory = model.node.memory_bandwidth
        changes["node"] = node.model_copy(update={"memory_bandwidth": _of_model(memory)})
        texts.append(f"memory of a node at {memory.value}, as on {MODEL}: not stated")
    if fabric:
        own: dict[str, Any] = {}
        if fabric.latency is None and model.fabric and model.fabric.latency:
            own["latency"] = _of_model(model.fabric.latency)
            texts.append(f"latency of {model.fabric.latency.text}, as on {MODEL}: not stated")
        grouped = fabric.groups is not None or "dragonfly" in (
            fabric.topology.value if fabric.topology else ""
        )
        if grouped and not (fabric.groups and fabric.nodes_per_group and fabric.bisection):
            own |= {"topology": None, "groups": None}
            texts.append("no congestion between groups of nodes: their links are not stated")
        if own:
            changes["fabric"] = fabric.model_copy(update=own)
    if not changes:
        return system, ()
    sources = system.sources | {MODEL: f"assumed, as on {MODEL}"}
    return system.model_copy(update=changes | {"sources": sources}), tuple(texts)


def _of_model(fact: Quantity) -> Quantity:
    return fact.model_copy(update={"source": MODEL})
