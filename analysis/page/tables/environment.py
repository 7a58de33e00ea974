"""Where and with what it was measured: software, nodes, settings. What differs between records is listed with `|`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from dlscale.analysis.page.model import Column, Row, Table, Value
from dlscale.analysis.page.plot_model import Tags
from dlscale.analysis.page.tables.cells import NOTHING, of_number
from dlscale.benchmarks.record import Record

MANY = 6  # values of one setting that are written out
COLUMNS = (
    Column(label="what", numeric=False),
    Column(label="name", numeric=False),
    Column(label="value", numeric=False),
)
NODE_COLUMNS = (
    Column(label="node", numeric=False),
    Column(label="CPUs"),
    Column(label="memory", unit="GiB"),
    Column(label="NUMA domains"),
    Column(label="governor", numeric=False),
    Column(label="devices", numeric=False),
    Column(label="switches", numeric=False),
    Column(label="file system", numeric=False),
    Column(label="largest load before"),
)

Entry = tuple[str, str, object, Tags]


def settings_table(records: Sequence[Record]) -> Table | None:
    """Versions, machine, rules, variables, and what each backend decided; None without records."""
    values: dict[tuple[str, str, Tags], set[str]] = {}
    for record in records:
        for what, name, value, tags in _entries(record):
            values.setdefault((what, name, tags), set()).add(_text(value))
    rows = tuple(
        Row(
            values=(Value(text=what), Value(text=name), Value(text=_joined(found))),
            data={"what": what, "name": name, "value": " | ".join(sorted(found))},
            tags=tags,
        )
        for (what, name, tags), found in values.items()
    )
    table = Table(name="environment", caption="Software and settings", columns=COLUMNS, rows=rows)
    return table if rows else None


def node_table(records: Iterable[Record]) -> Table | None:
    """One row per node that a record tells of; None where none does."""
    nodes: dict[str, dict[str, object]] = {}
    loads: dict[str, float] = {}
    for record in records:
        for rank in record.ranks:
            nodes.setdefault(rank.node, {})
        for facts in record.nodes:
            nodes[facts.node] = facts.model_dump(exclude={"rank", "load_before", "load_after"})
            if facts.load_before is not None:
                loads[facts.node] = max(loads.get(facts.node, 0.0), facts.load_before)
    rows = tuple(_node(name, facts, loads.get(name)) for name, facts in sorted(nodes.items()))
    table = Table(name="nodes", caption="Nodes", columns=NODE_COLUMNS, rows=rows)
    return table if rows else None


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
        yield "study", "budget", f"{record.configuration.budget_seconds:g} s", Tags()
        yield from _group("rules", record.configuration.rules, Tags())
        yield from _group("fabric", record.configuration.fabric, Tags())
    yield "study", "seed of order and weights", record.order_seed, Tags()
    yield "data", cell.workload, cell.data, Tags(workload=cell.workload)
    yield from _group("variables", record.environment_variables, framework)
    if cell.control == "train":
        backend = Tags(framework=cell.framework, backend=cell.backend)
        yield from _group(f"{cell.backend} in {cell.framework}", record.backend_settings, backend)


def _group(what: str, values: Mapping[str, object], tags: Tags) -> Iterator[Entry]:
    for name, value in sorted(values.items()):
        yield what, name, value, tags


def _node(name: str, facts: Mapping[str, object], load: float | None) -> Row:
    memory = facts.get("memory_bytes")
    size = memory / 2**30 if isinstance(memory, int) else None
    return Row(
        values=(
            Value(text=name),
            _known(facts, "num_cpus"),
            of_number(size, ".1f"),
            _known(facts, "numa_domains"),
            _known(facts, "cpu_governor"),
            _known(facts, "devices"),
            _known(facts, "switch_path"),
            _known(facts, "results_filesystem"),
            of_number(load, ".2f"),
        ),
        data={"node": name, **{key: _text(value) for key, value in facts.items() if key != "node"}},
    )


def _known(facts: Mapping[str, object], name: str) -> Value:
    value = facts.get(name)
    if value is None:
        return NOTHING
    return Value(text=_text(value), order=float(value) if isinstance(value, int) else None)


def _text(value: object) -> str:
    if value is None:
        return "not known"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _joined(found: Iterable[str]) -> str:
    values = sorted(found)
    if len(values) <= MANY:
        return " | ".join(values)
    return f"{' | '.join(values[:MANY])} | {len(values) - MANY} more"
