"""Where and with what a study was measured: nodes, software and settings. Values that differ are separated by `|`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from dlscale.analysis.finding import Column, Finding
from dlscale.analysis.load import Study
from dlscale.analysis.text import listed, size_text
from dlscale.benchmarks.records.record import Record

MANY = 6  # values of one setting that are listed
NODES = "nodes"
KEYS = ["what", "framework", "workload", "backend", "setting"]
Group = tuple[str, Mapping[str, Any], dict[str, str]]  # what, its names with values, and whose


def environment(study: Study) -> pd.DataFrame:
    """One row per setting and whose it is, with its distinct values as text and their number.

    A fact of nodes that differ names them: `performance (n1, n2) | powersave (n3)`.
    """
    known: dict[tuple[str, ...], dict[str, None]] = {}
    seen: set[str] = set()  # most groups are those of many records
    for record in study.records:
        for group in _groups(record):
            if (text := repr(group)) not in seen:
                seen.add(text)
                what, settings, whose = group
                for name, value in settings.items():
                    key = (what, *(whose.get(part, "") for part in KEYS[1:4]), name)
                    known.setdefault(key, {})[_text(value)] = None
    rows = [
        *((NODES, "", "", "", name, values) for name, values in _nodes(study)),
        *((*key, sorted(values)) for key, values in known.items()),
    ]
    found = pd.DataFrame(rows, columns=[*KEYS, "values"])
    counts = found["values"].map(len).astype(int)
    return found.assign(value=[_shortened(values, " | ") for values in found["values"]], num_values=counts)


def _groups(record: Record) -> Iterator[Group]:
    """What a record says of its software and settings."""
    cell, print_ = record.case.cell, record.fingerprint
    framework: dict[str, str] = {"framework": cell.framework}
    workload = {"workload": cell.workload}
    yield "code", {"commit": print_.commit}, {}
    yield "code", {"fingerprint": print_.digest}, framework
    yield "system", {"name": record.system}, {}
    yield "machine", _sorted(print_.node), {}
    yield "environment", {"name": cell.environment}, framework
    yield "software", _sorted(print_.versions), framework
    if record.batch_job:
        yield "batch job", {"id": record.batch_job}, {}
    if own := record.configuration:
        budget = f"{own.budget_seconds:g} s" if own.budget_seconds else "none"
        yield "study", {"digest": own.study_digest, "budget": budget}, {}
        yield "rules", _sorted(own.rules), {}
        yield "fabric", _sorted(own.fabric), {}
    yield "study", {"seed of order and weights": record.order_seed}, {}
    yield "data", {cell.workload: cell.data}, workload
    if cell.own and cell.own.unchecked:
        yield "not checked", {cell.workload: cell.own.unchecked}, workload
    yield "variables", _sorted(record.environment_variables), framework
    if cell.control == "train":
        whose = {**framework, "backend": cell.backend}
        yield f"{cell.backend} in {cell.framework}", _sorted(record.backend_settings), whose


def _nodes(study: Study) -> Iterator[tuple[str, list[str]]]:
    """The names of all nodes that a record names, and each of their facts; the load is the largest before a launch."""
    facts: dict[str, dict[str, Any]] = {}
    for record in study.records:
        for rank in record.ranks:
            facts.setdefault(rank.node, {})
        for own in record.nodes:
            before = facts.get(own.node, {}).get("load_before")
            loads = [load for load in (before, own.load_before) if load is not None]
            known = own.model_dump(
                exclude={"rank", "node", "load_after", "throttled_before", "throttled_after"}
            )
            facts[own.node] = known | {"load_before": max(loads, default=None)}
    if facts:
        yield "names", sorted(facts)
    for name in dict.fromkeys(name for own in facts.values() for name in own):
        nodes: dict[str, list[str]] = {}
        for node in sorted(facts):
            value = facts[node].get(name)
            text = size_text(value) if name == "memory_bytes" and value is not None else _text(value)
            nodes.setdefault(text, []).append(node)
        texts = [f"{text} ({_shortened(own)})" if len(nodes) > 1 else text for text, own in nodes.items()]
        if [*nodes] != [_text(None)]:
            yield name.removesuffix("_bytes"), texts


def _sorted(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return dict(sorted(values.items()))


def _text(value: Any) -> str:
    if value is None:
        return "not known"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _shortened(values: list[str], separator: str = ", ") -> str:
    more = [f"{len(values) - MANY} more"] if len(values) > MANY else []
    return separator.join([*values[:MANY], *more])


def differing(frame: pd.DataFrame) -> str:
    """What was not the same everywhere, of machine, software and system; backends and frameworks may differ."""
    own = frame[(frame["num_values"] > 1) & frame["what"].isin(["machine", "system", "software", "code"])]
    names = [f"{row['what']}: {row['setting']}" for row in own.to_dict("records")]
    return f"Not the same in all records: {listed(dict.fromkeys(names))}." if names else ""


FINDING = Finding(
    name="environment",
    title="Environment",
    compute=environment,
    columns={
        "what": Column(
            "nodes, code, system, software, rules, variables, or a backend in a framework", "what"
        ),
        "framework": Column("whose it is, if it is one framework's"),
        "workload": Column("whose it is, if it is one workload's"),
        "backend": Column("whose it is, if it is one backend's"),
        "setting": Column("name of the setting or fact", "setting"),
        "value": Column("its values, separated by | where records or nodes differ", "value"),
        "num_values": Column("how many values there are"),
    },
    sentence=differing,
)
