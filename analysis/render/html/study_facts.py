"""The study as a whole: the records that its report uses and leaves out; where, when and how they were measured.

Nothing is dropped without a note. In the tables of nodes and settings, differing values are separated by `|`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from dlscale.analysis.declare import Column, Shown, Table, TableOf, Tags, Value, shown_number
from dlscale.analysis.efficiency import ScalingTable
from dlscale.analysis.records import start_time, why_unusable
from dlscale.analysis.text import EVIDENCE, listed, plural, workload_title
from dlscale.benchmarks.records.files import BadFile
from dlscale.benchmarks.records.record import Record

NAMED_FILES = 5  # names listed of files that are bad for the same reason


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFacts:
    """Facts about a study that are not in its records. `plan` is its size in words, empty without a plan."""

    name: str = ""
    running: bool = False
    plan: str = ""
    left_out: tuple[str, ...] = ()


def of_one_fingerprint(records: Iterable[Record]) -> tuple[list[Record], list[str]]:
    """The records that may share a curve, and a sentence for each fingerprint that was left out.

    For each system, environment and framework, the fingerprint with the most good cases stays; the most recent one
    wins a tie. Failed cases of the others stay, too: they are reported, but are on no curve.
    """
    records = list(records)
    groups: defaultdict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for record in records:
        groups[(record.system, record.case.cell.environment, record.case.cell.framework)].append(record)
    dropped: set[int] = set()
    sentences = []
    for key, group in sorted(groups.items()):
        if len({record.fingerprint.digest for record in group}) == 1:
            continue
        good = [record for record in group if why_unusable(record) is None]
        counts = Counter(record.fingerprint.digest for record in good)
        latest: dict[str, str] = {}
        for record in good:
            digest = record.fingerprint.digest
            latest[digest] = max(latest.get(digest, ""), record.started_at)
        ordered = sorted(counts, key=lambda digest: (counts[digest], latest[digest], digest), reverse=True)
        for digest in ordered[1:]:
            dropped.update(id(record) for record in good if record.fingerprint.digest == digest)
            sentences.append(
                f"{plural(counts[digest], 'case')} of {' / '.join(key)} with fingerprint {digest}: code, versions or "
                f"node changed, so they do not belong on one curve with the {counts[ordered[0]]} of {ordered[0]}"
            )
    return [record for record in records if id(record) not in dropped], sentences


def bad_file_groups(bad_files: Iterable[BadFile]) -> list[tuple[str, tuple[str, ...]]]:
    """Bad files as (reason, file names), the most frequent reason first."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for bad in bad_files:
        groups[bad.reason].append(bad.path.name)
    return sorted(
        ((reason, tuple(sorted(names))) for reason, names in groups.items()),
        key=lambda group: (-len(group[1]), group[0]),
    )


def left_out(study: StudyFacts, bad_files: Iterable[BadFile]) -> list[str]:
    """One sentence per reason why something in the study's folder is not in the report."""
    sentences = list(study.left_out)
    for reason, names in bad_file_groups(bad_files):
        sentences.append(f"{_files(names)}: {reason}")
    return sentences


def _files(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    shown = ", ".join(names[:NAMED_FILES]) + (" ..." if len(names) > NAMED_FILES else "")
    return f"{len(names)} files ({shown})"


NAMED_NODES = 4


def page_title(table: ScalingTable) -> str:
    """`How HEP-CNN and CosmoGAN scale on local`."""
    workloads = sorted({workload_title(family.workload) for family in table.families})
    systems = sorted({family.system for family in table.families} - {"unknown"})
    if not workloads:
        return "Nothing measured yet"
    where = f" on {listed(systems)}" if systems else ""
    return f"How {listed(workloads)} scale{'s' * (len(workloads) == 1)}{where}"


def heading_facts(
    table: ScalingTable, records: Sequence[Record], study: StudyFacts
) -> tuple[tuple[str, str], ...]:
    """The known facts of the page's heading, as (name, value)."""
    ranks = sorted({row.cell.num_ranks for row in table.rows})
    nodes = sorted({rank.node for record in records for rank in record.ranks})
    numbers = sum(row.num_launches for row in table.rows)
    planned = sum(row.num_planned for row in table.rows)
    facts = {
        "Study": study.name or ", ".join(table.provenance.studies),
        "When": _span([record.started_at for record in records]),
        "Scaling": listed(sorted({family.scaling_mode for family in table.families})),
        "Frameworks": listed(sorted({family.framework for family in table.families})),
        "Ranks": ", ".join(map(str, ranks)),
        "Nodes": _nodes(nodes),
        "Plan": study.plan,
        "Cases": f"{numbers} of the {planned} with a throughput gave it" if planned else "",
    }
    return tuple((name, value) for name, value in facts.items() if value)


def evidence_note(table: ScalingTable) -> str:
    """A note on the kinds of evidence in the table."""
    shown = {row.evidence for row in table.rows} | {point.evidence for point in table.predicted}
    kinds = [kind for kind in EVIDENCE if kind in shown]
    return "; ".join(EVIDENCE[kind] for kind in kinds)


def study_warnings(
    table: ScalingTable, study: StudyFacts, bad_files: Sequence[BadFile]
) -> tuple[tuple[str, str], ...]:
    """Warnings that affect how to read the numbers, as (sentence, section with details)."""
    warnings = []
    if study.running:
        warnings.append(("The study is still running: this is what it has measured so far.", "gaps"))
    verdicts = {row.pair.verdict for row in table.rows if row.pair and not row.pair.comparable}
    warnings += [(f"{verdict}.", "numbers") for verdict in sorted(verdicts)]
    systems = table.provenance.systems
    if len(systems) > 1:
        warnings.append(
            (f"Records of {len(systems)} systems: {listed(list(systems))}. Each curve is of one.", "numbers")
        )
    kinds = {row.evidence for row in table.rows if row.evidence} | {
        point.evidence for point in table.predicted
    }
    if len(kinds) > 1:
        warnings.append((f"Evidence is {listed(sorted(kinds))}: never joined by a line.", "numbers"))
    if table.interference and table.interference.text:
        warnings.insert(0, (table.interference.text, "gaps"))
    drifted = [drift for drift in table.drifts if drift.steady is False]
    warnings += [(f"{drift.text[0].upper()}{drift.text[1:]}.", "gaps") for drift in drifted]
    if table.failures:
        warnings.append((f"{plural(len(table.failures), 'failed attempt')} at a case.", "gaps"))
    if left := left_out(study, bad_files):
        warnings.append((f"Left out: {'; '.join(left[:2])}{' ...' if len(left) > 2 else ''}.", "gaps"))
    return tuple(warnings)


def _span(started: Sequence[str]) -> str:
    """`22 Nov 2026, 02:10 to 03:40 UTC`."""
    moments = sorted(moment for text in started if (moment := start_time(text)))
    if not moments:
        return ""
    first, last = moments[0], moments[-1]
    if first.date() == last.date():
        return f"{_day(first)}, {first:%H:%M} to {last:%H:%M} UTC"
    return f"{_day(first)}, {first:%H:%M} to {_day(last)}, {last:%H:%M} UTC"


def _day(moment: datetime) -> str:
    months = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
    return f"{moment.day} {months[moment.month - 1]} {moment.year}"  # independent of the locale


def _nodes(nodes: Sequence[str]) -> str:
    if not nodes:
        return ""
    more = f", {len(nodes) - NAMED_NODES} more" if len(nodes) > NAMED_NODES else ""
    return f"{len(nodes)} ({', '.join(nodes[:NAMED_NODES])}{more})"


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
