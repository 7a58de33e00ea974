"""What is missing: failed launches, unreadable files, records that are not used, and what makes numbers doubtful."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from dlscale.analysis.declare import Column, Sentence, TableOf, tags_of
from dlscale.analysis.finding import Finding
from dlscale.analysis.findings import drift, interference, predicted_points, scaling
from dlscale.analysis.measured import Measured
from dlscale.analysis.records import attributes, why_unusable
from dlscale.analysis.text import CONTROL_NAMES, backend_name, listed, plural, workload_title
from dlscale.benchmarks.records.files import BadFile
from dlscale.benchmarks.records.record import Record

NAMED_FILES = 5  # names listed of files that are bad for the same reason


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
        latest = {
            digest: max(record.started_at for record in good if record.fingerprint.digest == digest)
            for digest in counts
        }
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


def left_out(study: Measured) -> list[str]:
    """One sentence per reason why something in the study's folder is not in the report."""
    return [
        *study.left_out,
        *(f"{_files(names)}: {reason}" for reason, names in bad_file_groups(study.bad_files)),
    ]


def _files(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    shown = ", ".join(names[:NAMED_FILES]) + (" ..." if len(names) > NAMED_FILES else "")
    return f"{len(names)} files ({shown})"


def study_warnings(study: Measured) -> tuple[tuple[str, str], ...]:
    """Warnings that affect how to read the numbers, as (sentence, section with details)."""
    rows = scaling.FINDING.of(study)
    warnings = []
    if study.running:
        warnings.append(("The study is still running: this is what it has measured so far.", "failures"))
    systems = study.provenance.systems
    if len(systems) > 1:
        warnings.append(
            (f"Records of {len(systems)} systems: {listed(list(systems))}. Each curve is of one.", "rows")
        )
    kinds = {row.evidence for row in rows if row.evidence} | {
        point.evidence for point in predicted_points.FINDING.of(study)
    }
    if len(kinds) > 1:
        warnings.append((f"Evidence is {listed(sorted(kinds))}: never joined by a line.", "rows"))
    disturbed = [(found.text, "failures") for found in interference.FINDING.of(study) if found.text]
    warnings = disturbed + warnings
    drifted = [one for one in drift.FINDING.of(study) if one.steady is False]
    warnings += [(f"{one.text[0].upper()}{one.text[1:]}.", "failures") for one in drifted]
    if failed := failed_cases(study):
        warnings.append((f"{plural(len(failed), 'case')} failed.", "failures"))
    if left := left_out(study):
        warnings.append((f"Left out: {'; '.join(left[:2])}{' ...' if len(left) > 2 else ''}.", "failures"))
    old = sum(launch.record.gates_version is None for launches in study.cells for launch in launches.good)
    if old:
        warnings.append((f"Audits not asked for by name in {plural(old, 'older record')}.", "failures"))
    return tuple(warnings)


def failed_cases(study: Measured) -> list[Record]:
    """The latest attempt of each case that has failed and gave no number since."""
    measured = _measured_cases(study)
    return list(
        {record.case.id: record for record in study.failures if record.case.id not in measured}.values()
    )


def _repeated(study: Measured) -> list[Record]:
    """Failed attempts at cases that gave a number since, without those that somebody interrupted."""
    measured = _measured_cases(study)
    return [
        record
        for record in study.failures
        if record.case.id in measured and not (record.failure and record.failure.kind == "interrupted")
    ]


def _measured_cases(study: Measured) -> set[str]:
    return {case.record.case.id for launches in study.cells for case in launches.good}


def _failed_rank(record: Record) -> int | None:
    return record.failure.rank if record.failure else None


def _node(record: Record) -> str:
    return next((facts.node for facts in record.ranks if facts.rank == _failed_rank(record)), "")


def _failed_case(record: Record) -> str:
    cell = record.case.cell
    return ", ".join(filter(None, (backend_name(cell), CONTROL_NAMES[cell.control])))


FAILURES = TableOf[Record](
    name="failures",
    caption="Launches that gave no number",
    columns=(
        Column("workload", lambda record: workload_title(record.case.cell.workload), numeric=False),
        Column("framework", lambda record: record.case.cell.framework, numeric=False),
        Column("backend", _failed_case, numeric=False),
        Column("ranks", lambda record: record.case.cell.num_ranks),
        Column("block", lambda record: record.case.block),
        Column("attempt", lambda record: record.attempt),
        Column("node", lambda record: _node(record) or "-", numeric=False),
        Column("why", lambda record: why_unusable(record) or "", numeric=False),
    ),
    data=lambda record: {
        "case": record.case.id,
        **attributes(record.case.cell, "workload framework control num_ranks"),
        "backend": backend_name(record.case.cell),
        "block": record.case.block,
        "attempt": record.attempt,
        "rank": _failed_rank(record),
        "node": _node(record),
        "kind": record.failure.kind if record.failure else None,
        "why": why_unusable(record) or "",
    },
    tags=lambda record: tags_of(record.case.cell),
)
UNREADABLE = TableOf[BadFile](
    name="files",
    caption="Unreadable record files",
    columns=(
        Column("file", lambda bad: bad.path.name, numeric=False),
        Column("why", lambda bad: bad.reason, numeric=False),
    ),
    data=lambda bad: {"file": bad.path.name, "why": bad.reason},
)


def _sentences(study: Measured) -> Iterator[Sentence]:
    rows = scaling.FINDING.of(study)
    silent = sum(row.num_planned - row.num_launches for row in rows)
    if study.running and silent:
        yield Sentence(
            text=f"The study is still running: {silent} planned cases have given no number yet.", strong=True
        )
    if repeated := _repeated(study):
        yield Sentence(text=f"{plural(len(repeated), 'attempt')} failed and succeeded when repeated.")
    yield from (Sentence(text=f"Left out: {sentence}.") for sentence in left_out(study))


def gaps(study: Measured) -> Iterator[str]:
    """The number of cases without a throughput, controls included, and why the first one failed."""
    rows = scaling.FINDING.of(study)
    planned = sum(row.num_planned for row in rows)
    if missing := planned - sum(row.num_launches for row in rows):
        yield f"{missing} of {plural(planned, 'case')} gave no throughput, controls included."
    yield from (one.text for one in drift.FINDING.of(study) if not one.steady)
    for record in failed_cases(study)[:1]:
        cell = record.case.cell
        what = backend_name(cell) if cell.control == "train" else f"{backend_name(cell)} ({cell.control})"
        several = len(study.families) > 1
        training = f"{cell.workload} {cell.framework}, " if several else ""
        yield (
            f"First failure: {training}{what} on {plural(cell.num_ranks, 'rank')}, block {record.case.block}: "
            f"{why_unusable(record)}."
        )


FINDINGS = (
    Finding(
        name="failures",
        title="Missing and failed launches",
        compute=lambda study: study.failures,
        table=FAILURES,
    ),
    Finding(
        name="left_out",
        title="Left out",
        compute=lambda study: tuple(_sentences(study)),
        sentences=lambda sentences: sentences,
        under="failures",
    ),
    Finding(
        name="unreadable",
        title="Unreadable record files",
        compute=lambda study: tuple(study.bad_files),
        table=UNREADABLE,
        under="failures",
    ),
)
