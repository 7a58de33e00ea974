"""Where and with what a study was measured. Values that differ between records are separated by `|`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from dlscale.analysis.declare import Column, Shown, Table, TableOf, Tags, Value, shown_number
from dlscale.analysis.finding import Finding
from dlscale.benchmarks.records.record import Record

MANY = 6  # values of one setting that are listed
Key = tuple[str, str, Tags]  # what, name and whose
Setting = tuple[Key, list[str]]  # with all of its values
NodeEntry = tuple[str, Mapping[str, object], float | None]  # name, facts, largest load


SETTINGS = TableOf[Setting](
    name="environment",
    caption="Software and settings",
    columns=(
        Column("what", lambda setting: setting[0][0], numeric=False),
        Column("name", lambda setting: setting[0][1], numeric=False),
        Column("value", lambda setting: _joined(setting[1]), numeric=False),
    ),
    data=lambda setting: {"what": setting[0][0], "name": setting[0][1], "value": " | ".join(setting[1])},
    tags=lambda setting: setting[0][2],
)


def settings_table(records: Sequence[Record]) -> Table:
    """Versions, machine, rules, variables, and the decisions of each backend."""
    groups = {  # most are those of many records
        (what, tags, tuple((name, _text(value)) for name, value in settings.items())): None
        for record in records
        for what, settings, tags in _groups(record)
    }
    values: defaultdict[Key, set[str]] = defaultdict(set)
    for what, tags, settings in groups:
        for name, text in settings:
            values[what, name, tags].add(text)
    return SETTINGS.of((key, sorted(known)) for key, known in values.items())


def _fact(name: str) -> Callable[[NodeEntry], Shown]:
    return lambda node: _known(node[1], name)


def _memory(node: NodeEntry) -> Value:
    size = node[1].get("memory_bytes")
    return shown_number(size / 2**30 if isinstance(size, int) else None, "{:.1f}".format)


NODES = TableOf[NodeEntry](
    name="nodes",
    caption="Nodes",
    columns=(
        Column("node", lambda node: node[0], numeric=False),
        Column("CPUs", _fact("num_cpus")),
        Column("memory", _memory, unit="GiB"),
        Column("NUMA domains", _fact("numa_domains")),
        Column("governor", _fact("cpu_governor"), numeric=False),
        Column("devices", _fact("devices"), numeric=False),
        Column("switches", _fact("switch_path"), numeric=False),
        Column("file system", _fact("results_filesystem"), numeric=False),
        Column("largest load before", lambda node: shown_number(node[2], "{:.2f}".format)),
    ),
    data=lambda node: (
        {"node": node[0]} | {key: _text(value) for key, value in node[1].items() if key != "node"}
    ),
)


def node_table(records: Iterable[Record]) -> Table:
    """One row per node that a record names."""
    nodes: dict[str, dict[str, object]] = {}
    loads: dict[str, float] = {}
    for record in records:
        for rank in record.ranks:
            nodes.setdefault(rank.node, {})
        for facts in record.nodes:
            nodes[facts.node] = facts.model_dump(exclude={"rank", "load_before", "load_after"})
            if facts.load_before is not None:
                loads[facts.node] = max(loads.get(facts.node, 0.0), facts.load_before)
    return NODES.of((name, facts, loads.get(name)) for name, facts in sorted(nodes.items()))


def _groups(record: Record) -> Iterator[tuple[str, Mapping[str, object], Tags]]:
    """What a record says of its software and settings: what, names with values, and whose."""
    cell, print_, every = record.case.cell, record.fingerprint, Tags()
    framework, workload = Tags(framework=cell.framework), Tags(workload=cell.workload)
    yield "code", {"commit": print_.commit}, every
    yield "code", {"fingerprint": print_.digest}, framework
    yield "system", {"name": record.system}, every
    yield "machine", _sorted(print_.node), every
    yield "environment", {"name": cell.environment}, framework
    yield "software", _sorted(print_.versions), framework
    if record.allocation:
        yield "batch job", record.allocation.model_dump(exclude={"nodes"}), every
    if own := record.configuration:
        budget = f"{own.budget_seconds:g} s" if own.budget_seconds else "none"
        yield "study", {"digest": own.study_digest, "budget": budget}, every
        yield "rules", _sorted(own.rules), every
        yield "fabric", _sorted(own.fabric), every
    yield "study", {"seed of order and weights": record.order_seed}, every
    yield "data", {cell.workload: cell.data}, workload
    if cell.unchecked:
        yield "not checked", {cell.workload: cell.unchecked}, workload
    yield "variables", _sorted(record.environment_variables), framework
    if cell.control == "train":
        backend = Tags(framework=cell.framework, backend=cell.backend)
        yield f"{cell.backend} in {cell.framework}", _sorted(record.backend_settings), backend


def _sorted(values: Mapping[str, object]) -> Mapping[str, object]:
    return dict(sorted(values.items()))


def _known(facts: Mapping[str, object], name: str) -> Shown:
    value = facts.get(name)
    return value if value is None or isinstance(value, int) else _text(value)


def _text(value: object) -> str:
    if value is None:
        return "not known"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _joined(values: Sequence[str]) -> str:
    if len(values) <= MANY:
        return " | ".join(values)
    return f"{' | '.join(values[:MANY])} | {len(values) - MANY} more"


FINDINGS = (
    Finding(
        name="environment",
        title="Environment",
        compute=lambda study: study.records,
        more=lambda records: (node_table(records), settings_table(records)),
    ),
)
