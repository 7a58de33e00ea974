"""Where and with what a study was measured. Values that differ between records are separated by `|`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from dlscale.analysis.declare import Column, Shown, Table, TableOf, Tags, Value, shown_number
from dlscale.analysis.finding import Finding
from dlscale.benchmarks.records.record import Record

MANY = 6  # values of one setting that are listed
Entry = tuple[str, str, object, Tags]


Setting = tuple[tuple[str, str, Tags], list[str]]  # what, name and whose; all values
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
    values: dict[tuple[str, str, Tags], set[str]] = {}
    for record in records:
        for what, name, value, tags in _entries(record):
            values.setdefault((what, name, tags), set()).add(_text(value))
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


def _entries(record: Record) -> Iterator[Entry]:
    cell, print_ = record.case.cell, record.fingerprint
    framework = Tags(framework=cell.framework)
    yield "code", "commit", print_.commit, Tags()
    yield "code", "fingerprint", print_.digest, framework
    yield "system", "name", record.system, Tags()
    yield from _group("machine", print_.node, Tags())
    yield "environment", "name", cell.environment, framework
    yield from _group("software", print_.versions, framework)
    if record.allocation:
        for name, value in record.allocation.model_dump(exclude={"nodes"}).items():
            yield "batch job", name, value, Tags()
    if record.configuration:
        yield "study", "digest", record.configuration.study_digest, Tags()
        budget = record.configuration.budget_seconds
        yield "study", "budget", f"{budget:g} s" if budget else "none", Tags()
        yield from _group("rules", record.configuration.rules, Tags())
        yield from _group("fabric", record.configuration.fabric, Tags())
        yield from _group("emulated hosts", record.configuration.emulation, Tags())
    yield "study", "seed of order and weights", record.order_seed, Tags()
    yield "data", cell.workload, cell.data, Tags(workload=cell.workload)
    if cell.slept:
        yield "computation", cell.workload, cell.slept.text, Tags(workload=cell.workload)
        if cell.slept.source:
            yield "profile of the computation", cell.workload, cell.slept.source, Tags(workload=cell.workload)
    if cell.unchecked:
        yield "not checked", cell.workload, cell.unchecked, Tags(workload=cell.workload)
    yield from _group("variables", record.environment_variables, framework)
    if cell.control == "train":
        backend = Tags(framework=cell.framework, backend=cell.backend)
        yield from _group(f"{cell.backend} in {cell.framework}", record.backend_settings, backend)


def _group(what: str, values: Mapping[str, object], tags: Tags) -> Iterator[Entry]:
    for name, value in sorted(values.items()):
        yield what, name, value, tags


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
        folded=True,
    ),
)
