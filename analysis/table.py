"""A scaling table for the terminal: numbers, a sentence per backend in plain words, and what went wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from dlscale.analysis.family import Family
from dlscale.analysis.frame import why_unusable
from dlscale.analysis.scaling import Row, ScalingTable
from dlscale.analysis.statistics import LEVEL
from dlscale.analysis.words import backend_name, number, percent, rate, summary
from dlscale.benchmarks.record_files import BadFile

CONTROL_NAMES = {
    "train": "",
    "synthetic": "synthetic",
    "loader": "loader",
    "whole_machine": "whole machine",
}


def render(table: ScalingTable, *, bad_files: Sequence[BadFile] = ()) -> RenderableType:
    """Everything a person should see after a study, for `rich.console.Console.print`."""
    parts: list[RenderableType] = []
    for family in table.families:
        parts += _render_family(table.of(family), family)
    if not table.rows:
        parts.append("No records: nothing has been measured yet.")
    parts += _problems(table, bad_files)
    return Group(*parts)


def _render_family(rows: Sequence[Row], family: Family) -> Iterator[RenderableType]:
    notes: dict[str, int] = {}
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    grid.add_column("backend", min_width=9)
    for name in ("ranks", "samples/s", "efficiency\n(a) [%]", "efficiency\n(b) [%]", "n"):
        grid.add_column(escape(name), justify="right", no_wrap=True)
    grid.add_column("notes", no_wrap=True)
    for (whole_machine, name), group in groupby(
        rows, key=lambda row: (row.cell.control == "whole_machine", backend_name(row.cell))
    ):
        previous = ""
        for row in group:
            control = CONTROL_NAMES[row.cell.control]
            label = control if whole_machine else control or name
            grid.add_row(escape("" if label == previous else label), *_cells(row, notes))
            previous = label
        grid.add_section()
    # Otherwise rich shortens it silently where the terminal is narrow.
    grid.columns[-1].min_width = max(len(cell) for cell in map(str, grid.columns[-1].cells))
    yield f"[bold]{escape(family.title)}[/bold]"
    yield escape(family.constants)
    yield grid
    for note, mark in notes.items():
        yield f"{mark:>2}  {escape(note)}"
    if notes:
        yield ""
    for _, group in groupby(rows, key=lambda row: (row.cell.control, backend_name(row.cell), row.evidence)):
        if sentence := summary(list(group)):
            yield escape(sentence)
    yield f"[dim]{escape(_legend(rows))}[/dim]"
    yield ""


def _cells(row: Row, notes: dict[str, int]) -> Iterator[str]:
    """The columns after the backend; a note is printed once below the table and numbered here."""
    yield number(row.cell.num_ranks)
    yield rate(row.throughput)
    for efficiency in (row.efficiency_none, row.efficiency_backend):
        yield "-" if efficiency is None else percent(efficiency, unit="")
    yield f"{row.num_launches}/{row.num_planned}"
    kind = [] if row.evidence in (None, "measured") else [f"{row.evidence}, not measured"]
    yield " ".join(str(notes.setdefault(note, len(notes) + 1)) for note in (*kind, *row.notes))


def _legend(rows: Sequence[Row]) -> str:
    methods = {row.throughput.level for row in rows if row.throughput and row.throughput.low is not None}
    levels = ", ".join(f"{100 * level:.1f} %" for level in sorted(methods))
    throughput = f"its distribution-free interval ({levels})" if levels else "no interval"
    return (
        "n: launches that gave a number, of those planned. samples/s: over all ranks, in the slowest rank's "
        f"time; the median over launches and {throughput}. Efficiency: (T(p)/p) / (T(1)/1) and its "
        f"{100 * LEVEL:.0f} % t interval over blocks of launches, against (a) 1 rank of none, no "
        "communication layer, and (b) 1 rank of the same backend."
    )


def _problems(table: ScalingTable, bad_files: Iterable[BadFile]) -> Iterator[str]:
    for index, record in enumerate(table.failures):
        if index == 0:
            yield "[bold]Failed launches[/bold]"
        cell = record.case.cell
        what = ", ".join(filter(None, (backend_name(cell), CONTROL_NAMES[cell.control])))
        where = f"{what}, {cell.num_ranks} ranks" if cell.num_ranks > 1 else f"{what}, 1 rank"
        reason = why_unusable(record)
        yield escape(f"  {where}, block {record.case.block}, attempt {record.attempt}: {reason}")
    for index, bad in enumerate(bad_files):
        if index == 0:
            yield "[bold]Files that are not records[/bold]"
        yield escape(f"  {bad.path}: {bad.reason}")
