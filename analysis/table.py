"""A scaling table for the terminal: numbers, a sentence per backend in plain words, and what went wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.markup import escape

from dlscale.analysis import (
    backends_table,
    bounds_words,
    checkpoints,
    energy_table,
    productivity,
    productivity_table,
    startup,
)
from dlscale.analysis.exchange import table as exchange_table
from dlscale.analysis.family import Family
from dlscale.analysis.frame import why_unusable
from dlscale.analysis.grid import Grid
from dlscale.analysis.late import words as late_words
from dlscale.analysis.scaling import Row, ScalingTable
from dlscale.analysis.statistics import LEVEL
from dlscale.analysis.waterfall import table as waterfall_table
from dlscale.analysis.words import backend_name, gibibytes, input_cost, number, percent, rate, summary
from dlscale.benchmarks.record_files import BadFile

CONTROL_NAMES = {
    "train": "",
    "synthetic": "synthetic",
    "loader": "loader",
    "exchange": "exchange only",
    "alone": "alone",
    "whole_machine": "whole machine",
    "canary": "canary",
}
COLUMNS = (
    *("backend", "ranks", "samples/s", "efficiency\n(a) [%]", "efficiency\n(b) [%]"),
    *("memory\n[GiB]", "n", "notes"),
)


def render(table: ScalingTable, *, bad_files: Sequence[BadFile] = ()) -> RenderableType:
    """Everything a person should see after a study, for `rich.console.Console.print`."""
    parts: list[RenderableType] = []
    for family in table.families:
        parts += _render_family(table.of(family), family)
        for comparison in table.comparisons_of(family):
            parts += [*backends_table.render_comparison(comparison), ""]
        parts += waterfall_table.render(table.waterfalls_of(family))
        parts += exchange_table.render(table.exchanges_of(family))
        parts += late_words.render(table.lateness_of(family))
    if table.rows:
        parts += [f"[dim]{escape(_legend(table.rows))}[/dim]", ""]
    else:
        parts.append("No records: nothing has been measured yet.")
    if table.comparisons:
        parts += [f"[dim]{escape(backends_table.LEGEND)}[/dim]", ""]
    if table.waterfalls:
        parts += [f"[dim]{escape(waterfall_table.LEGEND)}[/dim]", ""]
    if table.exchanges:
        parts += [f"[dim]{escape(exchange_table.LEGEND)}[/dim]", ""]
    parts += startup.render(table.start_ups)
    parts += checkpoints.render(table.savings)
    parts += energy_table.render(table.energies)
    parts += productivity_table.render(productivity.stored(table.pairs))
    parts += _problems(table, bad_files)
    return Group(*parts)


def _render_family(rows: Sequence[Row], family: Family) -> Iterator[RenderableType]:
    notes: dict[str, int] = {}
    sections = [
        [(label, *_cells(row, notes)) for label, row in _labelled(group)]
        for _, group in groupby(
            rows, key=lambda row: (row.cell.control == "whole_machine", backend_name(row.cell))
        )
    ]
    yield f"[bold]{escape(family.title)}[/bold]"
    yield escape(family.constants)
    if pair := rows[0].pair:
        yield escape(pair.verdict) if pair.comparable else f"[bold]{escape(pair.verdict)}[/bold]"
    yield Grid(COLUMNS, sections)
    for note, mark in notes.items():
        yield f"{mark:>2}  {escape(note)}"
    if notes:
        yield ""
    for _, group in groupby(rows, key=lambda row: (row.cell.control, backend_name(row.cell), row.evidence)):
        if sentence := summary(list(group)):
            yield escape(sentence)
    for row in rows:
        if sentence := input_cost(row):
            yield escape(sentence)
    for row in _on_most_ranks(rows):
        yield escape(bounds_words.sentence(row.cell, row.limits))
    yield ""


def _on_most_ranks(rows: Iterable[Row]) -> Iterable[Row]:
    """Of each backend that exchanges gradients the row of the most ranks; the last one that was measured."""
    bounded = [row for row in rows if row.limits and row.cell.backend != "none"]
    return {(backend_name(row.cell), row.evidence): row for row in bounded}.values()


def _labelled(rows: Iterable[Row]) -> Iterator[tuple[str, Row]]:
    """Each row with its backend or control, where that is not the row's before."""
    previous = ""
    for row in rows:
        label = CONTROL_NAMES[row.cell.control] or backend_name(row.cell)
        yield "" if label == previous else label, row
        previous = label


def _cells(row: Row, notes: dict[str, int]) -> Iterator[str]:
    """The columns after the backend; a note is printed once below the table and numbered here."""
    yield number(row.cell.num_ranks)
    yield rate(row.throughput)
    for efficiency in (row.efficiency_none, row.efficiency_backend):
        yield "-" if efficiency is None else percent(efficiency, unit="")
    yield gibibytes(row.peak_rss_bytes)
    yield f"{row.num_launches}/{row.num_planned}"
    kind = [] if row.evidence in (None, "measured") else [f"{row.evidence}, not measured"]
    yield " ".join(str(notes.setdefault(note, len(notes) + 1)) for note in (*kind, *row.notes))


def _legend(rows: Sequence[Row]) -> str:
    methods = {row.throughput.level for row in rows if row.throughput and row.throughput.low is not None}
    levels = ", ".join(f"{100 * level:.1f} %" for level in sorted(methods))
    throughput = f"its order-statistic interval ({levels})" if levels else "no interval"
    return (
        "n: launches that gave a number, of those planned. samples/s: over all ranks, in the slowest rank's "
        f"time; the median over launches and {throughput}. Efficiency: (T(p)/p) / (T(1)/1) and its "
        f"{100 * LEVEL:.0f} % t interval over blocks of launches, against (a) 1 rank of none, no "
        "communication layer, and (b) 1 rank of the same backend. Memory: the most that a rank's process "
        "held until then."
    )


def _problems(table: ScalingTable, bad_files: Iterable[BadFile]) -> Iterator[str]:
    for index, drift in enumerate(table.drifts):
        if index == 0:
            yield "[bold]Drift of the nodes while jobs ran[/bold]"
        yield f"  {escape(drift.text)}" if drift.steady else f"  [bold]{escape(drift.text)}[/bold]"
    for index, record in enumerate(table.failures):
        if index == 0:
            yield "[bold]Failed launches[/bold]"
        cell = record.case.cell
        whose = f"{cell.workload} {cell.framework}" if len(table.families) > 1 else ""
        what = ", ".join(filter(None, (whose, backend_name(cell), CONTROL_NAMES[cell.control])))
        where = f"{what}, {cell.num_ranks} ranks" if cell.num_ranks > 1 else f"{what}, 1 rank"
        reason = why_unusable(record)
        yield escape(f"  {where}, block {record.case.block}, attempt {record.attempt}: {reason}")
    for index, bad in enumerate(bad_files):
        if index == 0:
            yield "[bold]Files that are not records[/bold]"
        yield escape(f"  {bad.path}: {bad.reason}")
