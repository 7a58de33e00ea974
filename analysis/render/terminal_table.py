"""A scaling table in the terminal: numbers, a sentence per backend, the findings, and what went wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.markup import escape

from dlscale.analysis.efficiency import ScalingRow, ScalingTable, efficiency_summary, input_cost
from dlscale.analysis.families import Family
from dlscale.analysis.findings import backends, bounds, checkpoints, energy, productivity, startup
from dlscale.analysis.findings import communication as exchange_table
from dlscale.analysis.findings import stragglers as late_words
from dlscale.analysis.findings import waterfall as waterfall_table
from dlscale.analysis.records import why_unusable
from dlscale.analysis.render.text import Grid, backend_name, gibibytes, number, percent, rate
from dlscale.analysis.statistics import LEVEL
from dlscale.benchmarks.records.files import BadFile

CONTROL_NAMES = {
    "train": "",
    "synthetic": "synthetic",
    "loader": "loader",
    "exchange": "exchange only",
    "alone": "alone",
    "whole_machine": "whole machine",
    "canary": "canary",
}
SCALING_COLUMNS = (
    *("backend", "ranks", "samples/s", "efficiency\n(a) [%]", "efficiency\n(b) [%]"),
    *("memory\n[GiB]", "n", "notes"),
)


def render_scaling(table: ScalingTable, *, bad_files: Sequence[BadFile] = ()) -> RenderableType:
    """Everything a person should see after a study, for `rich.console.Console.print`."""
    parts: list[RenderableType] = []
    for family in table.families:
        parts += _render_family(table.of(family), family)
        for comparison in table.comparisons_of(family):
            parts += [*backends.render_comparison(comparison), ""]
        parts += waterfall_table.render_waterfalls(table.waterfalls_of(family))
        parts += exchange_table.render_communication(table.exchanges_of(family))
        parts += late_words.render_stragglers(table.lateness_of(family))
    if table.rows:
        parts += [f"[dim]{escape(_legend(table.rows))}[/dim]", ""]
    else:
        parts.append("No records: nothing has been measured yet.")
    if table.comparisons:
        parts += [f"[dim]{escape(backends.BACKEND_LEGEND)}[/dim]", ""]
    if table.waterfalls:
        parts += [f"[dim]{escape(waterfall_table.WATERFALL_LEGEND)}[/dim]", ""]
    if table.exchanges:
        parts += [f"[dim]{escape(exchange_table.COMMUNICATION_LEGEND)}[/dim]", ""]
    parts += startup.render_startup(table.start_ups)
    parts += checkpoints.render_checkpoints(table.savings)
    parts += energy.render_energy(table.energies)
    parts += productivity.render_productivity(productivity.stored_changes(table.pairs))
    parts += _problems(table, bad_files)
    return Group(*parts)


def _render_family(rows: Sequence[ScalingRow], family: Family) -> Iterator[RenderableType]:
    notes: dict[str, int] = {}
    sections = [
        [(label, *_row_cells(row, notes)) for label, row in _labelled(group)]
        for _, group in groupby(
            rows, key=lambda row: (row.cell.control == "whole_machine", backend_name(row.cell))
        )
    ]
    yield f"[bold]{escape(family.title)}[/bold]"
    yield escape(family.constants)
    if pair := rows[0].pair:
        yield escape(pair.verdict) if pair.comparable else f"[bold]{escape(pair.verdict)}[/bold]"
    yield Grid(SCALING_COLUMNS, sections)
    for note, mark in notes.items():
        yield f"{mark:>2}  {escape(note)}"
    if notes:
        yield ""
    for _, group in groupby(rows, key=lambda row: (row.cell.control, backend_name(row.cell), row.evidence)):
        if sentence := efficiency_summary(list(group)):
            yield escape(sentence)
    for row in rows:
        if sentence := input_cost(row):
            yield escape(sentence)
    for row in _on_most_ranks(rows):
        yield escape(bounds.bound_sentence(row.cell, row.limits))
    yield ""


def _on_most_ranks(rows: Iterable[ScalingRow]) -> Iterable[ScalingRow]:
    """Of each backend that exchanges gradients the row of the most ranks; the last one that was measured."""
    bounded = [row for row in rows if row.limits and row.cell.backend != "none"]
    return {(backend_name(row.cell), row.evidence): row for row in bounded}.values()


def _labelled(rows: Iterable[ScalingRow]) -> Iterator[tuple[str, ScalingRow]]:
    """Each row with its backend or control, where that is not the row's before."""
    previous = ""
    for row in rows:
        label = CONTROL_NAMES[row.cell.control] or backend_name(row.cell)
        yield "" if label == previous else label, row
        previous = label


def _row_cells(row: ScalingRow, notes: dict[str, int]) -> Iterator[str]:
    """The columns after the backend; a note is printed once below the table and numbered here."""
    yield number(row.cell.num_ranks)
    yield rate(row.throughput)
    for efficiency in (row.efficiency_none, row.efficiency_backend):
        yield "-" if efficiency is None else percent(efficiency, unit="")
    yield gibibytes(row.peak_rss_bytes)
    yield f"{row.num_launches}/{row.num_planned}"
    kind = [] if row.evidence in (None, "measured") else [f"{row.evidence}, not measured"]
    yield " ".join(str(notes.setdefault(note, len(notes) + 1)) for note in (*kind, *row.notes))


def _legend(rows: Sequence[ScalingRow]) -> str:
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
