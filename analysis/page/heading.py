"""What stands below the page's title: what was measured where, when, and what a reader must know first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from dlscale.analysis.page.sound import StudyFacts, left_out
from dlscale.analysis.page.words import EVIDENCE, listed, moment, plural, workload_title
from dlscale.analysis.scaling import ScalingTable
from dlscale.benchmarks.record import Record
from dlscale.benchmarks.record_files import BadFile

NAMED_NODES = 4


def title(table: ScalingTable) -> str:
    """`How HEP-CNN and CosmoGAN scale on local`."""
    workloads = sorted({workload_title(family.workload) for family in table.families})
    systems = sorted({family.system for family in table.families} - {"unknown"})
    if not workloads:
        return "Nothing measured yet"
    where = f" on {listed(systems)}" if systems else ""
    return f"How {listed(workloads)} scale{'s' * (len(workloads) == 1)}{where}"


def facts(table: ScalingTable, records: Sequence[Record], study: StudyFacts) -> tuple[tuple[str, str], ...]:
    """(what, which), without those that nothing is known of."""
    ranks = sorted({row.cell.num_ranks for row in table.rows})
    nodes = sorted({rank.node for record in records for rank in record.ranks})
    numbers = sum(row.num_launches for row in table.rows)
    planned = sum(row.num_planned for row in table.rows)
    found = {
        "Study": study.name or ", ".join(table.provenance.studies),
        "When": _span([record.started_at for record in records]),
        "Scaling": listed(sorted({family.scaling_mode for family in table.families})),
        "Frameworks": listed(sorted({family.framework for family in table.families})),
        "Ranks": ", ".join(map(str, ranks)),
        "Nodes": _nodes(nodes),
        "Launches": f"{numbers} of {planned} planned gave a number" if planned else "",
    }
    return tuple((name, value) for name, value in found.items() if value)


def evidence(table: ScalingTable) -> str:
    """The kinds of evidence in words."""
    kinds = [kind for kind in EVIDENCE if any(row.evidence == kind for row in table.rows)]
    return "; ".join(EVIDENCE[kind] for kind in kinds)


def warnings(
    table: ScalingTable, study: StudyFacts, bad_files: Sequence[BadFile]
) -> tuple[tuple[str, str], ...]:
    """(sentence, name of the section that has more) of what changes how the numbers are read."""
    said = []
    if study.running:
        said.append(("The study is still running: this is what it has measured so far.", "gaps"))
    verdicts = {row.pair.verdict for row in table.rows if row.pair and not row.pair.comparable}
    said += [(f"{verdict}.", "numbers") for verdict in sorted(verdicts)]
    systems = table.provenance.systems
    if len(systems) > 1:
        said.append(
            (f"Records of {len(systems)} systems: {listed(list(systems))}. Each curve is of one.", "numbers")
        )
    kinds = {row.evidence for row in table.rows if row.evidence}
    if len(kinds) > 1:
        said.append((f"Evidence is {listed(sorted(kinds))}: never joined by a line.", "numbers"))
    drifted = [one for one in table.drifts if one.steady is False]
    said += [(f"{one.text[0].upper()}{one.text[1:]}.", "gaps") for one in drifted]
    if table.failures:
        said.append((f"{plural(len(table.failures), 'launch')} gave no number.", "gaps"))
    if left := left_out(study, bad_files):
        said.append((f"Left out: {'; '.join(left[:2])}{' ...' if len(left) > 2 else ''}.", "gaps"))
    return tuple(said)


def _span(started: Sequence[str]) -> str:
    """`22 Nov 2026, 02:10 to 03:40 UTC`."""
    moments = sorted(found for one in started if (found := moment(one)))
    if not moments:
        return ""
    first, last = moments[0], moments[-1]
    if first.date() == last.date():
        return f"{_day(first)}, {first:%H:%M} to {last:%H:%M} UTC"
    return f"{_day(first)}, {first:%H:%M} to {_day(last)}, {last:%H:%M} UTC"


def _day(one: datetime) -> str:
    months = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
    return f"{one.day} {months[one.month - 1]} {one.year}"  # whatever the locale


def _nodes(nodes: Sequence[str]) -> str:
    if not nodes:
        return ""
    more = f", {len(nodes) - NAMED_NODES} more" if len(nodes) > NAMED_NODES else ""
    return f"{len(nodes)} ({', '.join(nodes[:NAMED_NODES])}{more})"
