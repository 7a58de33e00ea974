"""What stands for facts that a system's file does not state: a user's numbers, else those of another machine.

Nothing that a file states is replaced. The rate of links is never taken from another machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from dlscale.base.definitions import first_problem
from dlscale.base.errors import UsageError, did_you_mean
from dlscale.base.quantities import Quantity, TextFact
from dlscale.benchmarks.systems.system import Fabric, System, load_system

COMPLETE = "cori"  # the system of the catalogue with all facts of a network, from which others are assumed
GIVEN = "--assume"

FACTS = (
    *("num_nodes", "node.memory_bandwidth", "node.peak.fp32"),
    *("devices.link", "devices.memory_bandwidth", "devices.peak.fp32"),
    *("fabric.bandwidth", "fabric.latency", "fabric.groups", "fabric.nodes_per_group", "fabric.bisection"),
)
"""What predictions follow from, as keys of a system's file."""


def with_given(system: System, given: Mapping[str, str]) -> tuple[System, tuple[str, ...]]:
    """The system with these values of facts that its file does not state, and each in words. Raises UsageError."""
    for key, value in given.items():
        system = _with_fact(system, key, value)
    return system, tuple(f"{key} {value} ({GIVEN})" for key, value in given.items())


def _with_fact(system: System, key: str, value: str) -> System:
    if key not in FACTS:
        raise UsageError(
            f"{GIVEN} {key}: predictions have no such fact{did_you_mean(key, FACTS)}; choose one of: "
            f"{', '.join(FACTS)}"
        )
    section, _, name = key.rpartition(".")
    section, _, table = section.partition(".")  # node.peak.fp32
    owner: Any = getattr(system, section) if section else system
    if section == "fabric" and owner is None:
        owner = Fabric(name=TextFact(value="a network", source=GIVEN))
    if owner is None:
        raise UsageError(f"{GIVEN} {key}: nodes of {system.name} have no {section}; leave it out")
    entries = getattr(owner, table) if table else {name: getattr(owner, name)}
    if stated := entries.get(name):
        raise UsageError(
            f"{GIVEN} {key}={value}: {system.name} states {stated.value}; leave it out, or give --system a file of "
            "your own that states another"
        )
    kind = type(owner).model_fields[table or name].annotation
    counted = value.isdigit() and name in ("num_nodes", "groups", "nodes_per_group")
    content = {"value": int(value) if counted else value, "source": GIVEN}
    try:
        fact = TypeAdapter(kind).validate_python({name: content} if table else content)
    except ValidationError as error:
        raise UsageError(f"{GIVEN} {key}={value}: {first_problem(error)}") from None
    owner = owner.model_copy(update={table: entries | fact} if table else {name: fact})
    sources = {"sources": system.sources | {GIVEN: f"given by {GIVEN}"}}
    return (owner if not section else system.model_copy(update={section: owner})).model_copy(update=sources)


def with_assumed(system: System, given: Mapping[str, str] | None = None) -> tuple[System, tuple[str, ...]]:
    """The system with what its predictions lack, and each assumption; itself where it states everything.

    Raises UsageError for what is `given` and cannot be.
    """
    system, stated = with_given(system, given or {})
    texts = list(stated)
    model = load_system(COMPLETE)
    changes: dict[str, Any] = {}
    fabric, node = system.fabric, system.node
    if system.num_nodes is None and system.partitions:
        changes["num_nodes"] = max(
            (part.num_nodes for part in system.partitions.values()), key=lambda it: it.value
        )
    if node.memory_bandwidth is None and model.node.memory_bandwidth:
        memory = model.node.memory_bandwidth
        changes["node"] = node.model_copy(update={"memory_bandwidth": _of_model(memory)})
        texts.append(f"memory bandwidth of a node {memory.value}, as on {COMPLETE} (missing in the file)")
    if fabric:
        own: dict[str, Any] = {}
        if fabric.latency is None and model.fabric and model.fabric.latency:
            own["latency"] = _of_model(model.fabric.latency)
            texts.append(f"latency {model.fabric.latency.text}, as on {COMPLETE} (missing in the file)")
        grouped = fabric.groups is not None or "dragonfly" in (
            fabric.topology.value if fabric.topology else ""
        )
        if grouped and not (fabric.groups and fabric.nodes_per_group and fabric.bisection):
            own |= {"topology": None, "groups": None}
            texts.append("no congestion between groups of nodes (their links are missing in the file)")
        if own:
            changes["fabric"] = fabric.model_copy(update=own)
    if changes:
        sources = system.sources | {COMPLETE: f"assumed, as on {COMPLETE}"}
        system = system.model_copy(update=changes | {"sources": sources})
    return system, tuple(texts)


def _of_model(fact: Quantity) -> Quantity:
    return fact.model_copy(update={"source": COMPLETE})
