"""Rules about what is told: subsets, factors, bounds, lines."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from dlscale.analysis.frame import APART
from dlscale.analysis.page.model import Verdict
from dlscale.analysis.page.rules.facts import Facts, examples
from dlscale.analysis.page.words import plural
from dlscale.benchmarks.record import Record

UNKNOWN = "unknown"


def subsets(facts: Facts) -> tuple[Verdict, str]:
    """Rule 2: every planned launch gave a number, or something says why it did not."""
    planned = sum(row.num_planned for row in facts.table.rows)
    numbers = sum(row.num_launches for row in facts.table.rows)
    if not planned:
        return "not applicable", "Nothing was planned or measured."
    good = {(one.system, one.study, one.cell.id, one.block) for one in facts.launches}
    failed = {
        (record.system, record.study, record.case.cell.id, record.case.block)
        for record in facts.table.failures
        if record.case.cell.control not in APART
    } - good
    unread = {bad.path.name.rsplit(".", 2)[0] for bad in facts.bad_files}
    silent = planned - numbers - len(failed) - len(unread)
    if facts.study.running:
        return (
            "not met",
            f"The study is still running: {numbers} of {planned} planned launches gave a number so far.",
        )
    if silent > 0:
        return (
            "not met",
            f"{silent} of {planned} planned launches left neither a number nor a reason; resume the study.",
        )
    reasons = (
        f"; the reasons of {plural(len(failed) + len(unread), 'other')} are listed"
        if failed or unread
        else ""
    )
    return "pass", f"{numbers} of {planned} planned launches gave a number{reasons}."


def factors(facts: Facts) -> tuple[Verdict, str]:
    """Rule 9: code, versions, settings and nodes are in the records."""
    if not facts.records:
        return "not applicable", "There are no records."
    records = facts.records
    problems: dict[str, Callable[[Record], bool]] = {
        "from an unknown commit": lambda record: record.fingerprint.commit == UNKNOWN,
        "from a changed checkout": lambda record: "+dirty" in record.fingerprint.commit,
        "without versions": lambda record: not record.fingerprint.versions,
        "without configuration": lambda record: record.configuration is None,
        "without facts of their nodes": lambda record: record.failure is None and not record.nodes,
    }
    said = [
        f"{count} {what}"
        for what, wrong in problems.items()
        if (count := sum(wrong(record) for record in records))
    ]
    if said:
        return "not met", f"Of {plural(len(records), 'record')}: {', '.join(said)}."
    versions = max(len(record.fingerprint.versions) for record in records)
    nodes = {facts.node for record in records for facts in record.nodes}
    return "pass", (
        f"{plural(len(records), 'record')} with commit, {versions} versions, resolved configuration and facts of "
        f"{plural(len(nodes), 'node')}."
    )


def bounds(facts: Facts) -> tuple[Verdict, str]:
    """Rule 11: a line above which nothing real can lie, in each efficiency plot, besides the ideal one."""
    if not facts.efficiency:
        return "not applicable", "There is no efficiency to bound."
    bare = [plot.title for plot in facts.efficiency if not any(guide.bound for guide in plot.guides)]
    if bare:
        return (
            "not met",
            f"Only the ideal line: {examples(bare)}. Wire, memory and loader are not known there.",
        )
    return (
        "pass",
        f"{plural(len(facts.efficiency), 'efficiency plot')}, each with the bounds that are known beside the ideal.",
    )


def lines(facts: Facts) -> tuple[Verdict, str]:
    """Rule 12: a line joins points of one kind of evidence only, each on more ranks than the one before."""
    if not facts.plots:
        return "not applicable", "There are no plots."
    joined = [series for plot in facts.plots for series in plot.series if series.joined]
    wrong = [
        series.name for series in joined if not all(one.x < other.x for one, other in pairwise(series.points))
    ]
    if wrong:
        return "not met", f"A line joins what is not in order: {examples(wrong)}."
    return "pass", (
        f"{plural(len(facts.plots), 'plot')}; {plural(len(joined), 'line')}, each over more and more ranks, of one "
        "kind of evidence and one backend."
    )
