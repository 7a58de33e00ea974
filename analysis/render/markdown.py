"""A study's table as GitHub's markdown: numbers with intervals and n, a sentence per backend, all failures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from dlscale.analysis.efficiency import ScalingRow, ScalingTable, efficiency_summary, input_cost
from dlscale.analysis.families import Family
from dlscale.analysis.findings import energy
from dlscale.analysis.findings.energy import Energy
from dlscale.analysis.records import why_unusable
from dlscale.analysis.render.terminal_table import CONTROL_NAMES
from dlscale.analysis.render.text import backend_name, gibibytes, number, percent, rate
from dlscale.analysis.statistics import LEVEL
from dlscale.benchmarks.records.files import BadFile

COLUMNS = (
    *("backend", "ranks", "nodes", "samples/s", "efficiency (a) [%]", "efficiency (b) [%]"),
    *("memory [GiB]", "n", "notes"),
)
WORDS = ("backend", "notes")  # columns that are not numbers
# Emphasis, code, HTML, tables, mathematics, entities and links; an interval in brackets is none of them.
_MARKUP = re.compile(r"([\\`*<|~$]|(?<!\w)_|_(?!\w)|&(?=#?\w+;)|\](?=[(\[:]))")


def escape_markdown(text: str) -> str:
    """Text from records as it is: nothing in it is markup, and it stays on one line."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))


def markdown_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, words: Sequence[str] = WORDS
) -> list[str]:
    """The lines of a table; cells are plain text, and those that are not `words` stand to the right."""
    lines = ["| " + " | ".join(map(escape_markdown, columns)) + " |"]
    lines.append("| " + " | ".join("---" if name in words else "---:" for name in columns) + " |")
    return lines + ["| " + " | ".join(map(escape_markdown, cells)) + " |" for cells in rows]


def study_markdown(
    table: ScalingTable, *, bad_files: Sequence[BadFile] = (), left_out: Sequence[str] = ()
) -> str:
    """The terminal's main table, and what went wrong; `left_out` says which records are not in it and why."""
    lines: list[str] = []
    for family in table.families:
        lines += _family(table.of(family), family)
    lines += (
        [escape_markdown(_legend()), ""] if table.rows else ["No records: nothing has been measured yet.", ""]
    )
    lines += _energy(table.energies)
    lines += _problems(table, bad_files, left_out)
    if table.rows:
        lines += [escape_markdown(f"Origin: {table.provenance.short_line()}."), ""]
    return "\n".join(lines).rstrip() + "\n"


def _family(rows: Sequence[ScalingRow], family: Family) -> Iterator[str]:
    notes: dict[str, int] = {}
    cells = [_cells(row, notes) for row in rows]
    yield f"### {escape_markdown(family.title)}"
    yield ""
    yield escape_markdown(family.constants)
    yield ""
    if pair := rows[0].pair:
        yield escape_markdown(pair.verdict) if pair.comparable else f"**{escape_markdown(pair.verdict)}**"
        yield ""
    yield from markdown_table(COLUMNS, cells)
    yield ""
    for note, mark in notes.items():
        yield f"{mark}. {escape_markdown(note)}"
    if notes:
        yield ""
    groups = groupby(rows, key=lambda row: (row.cell.control, backend_name(row.cell), row.evidence))
    for sentence in filter(
        None, [*(efficiency_summary(list(group)) for _, group in groups), *map(input_cost, rows)]
    ):
        yield f"* {escape_markdown(sentence)}"
    yield ""


def _cells(row: ScalingRow, notes: dict[str, int]) -> list[str]:
    control = CONTROL_NAMES[row.cell.control]
    name = backend_name(row.cell)
    kind = [] if row.evidence in (None, "measured") else [f"{row.evidence}, not measured"]
    efficiencies = (row.efficiency_none, row.efficiency_backend)
    return [
        f"{name}, {control}" if control else name,
        number(row.cell.num_ranks),
        number(row.cell.num_nodes),
        rate(row.throughput),
        *("-" if one is None else percent(one, unit="") for one in efficiencies),
        gibibytes(row.peak_rss_bytes),
        f"{row.num_launches}/{row.num_planned}",
        ", ".join(str(notes.setdefault(note, len(notes) + 1)) for note in (*kind, *row.notes)),
    ]


def _legend() -> str:
    return (
        "n: launches that gave a number, of those planned. samples/s: over all ranks, in the slowest rank's time; the "
        "median over launches and, from 6 on, its order-statistic interval. Efficiency: (T(p)/p) / (T(1)/1) and its "
        f"{100 * LEVEL:.0f} % t interval over blocks of launches, against (a) 1 rank without a communication layer, "
        "and (b) 1 rank of the same backend."
    )


def _energy(found: Sequence[Energy]) -> Iterator[str]:
    """A table where any launch's energy is known; nothing otherwise."""
    known = [one for one in found if one.joules_per_sample]
    if known:
        yield "### Energy"
        yield ""
        names = [name.replace("\n", " ") for name in energy.ENERGY_COLUMNS]
        yield from markdown_table(
            names, map(energy.energy_cells, known), words=("framework", "backend", "counted")
        )
        yield ""


def _problems(table: ScalingTable, bad_files: Sequence[BadFile], left_out: Sequence[str]) -> Iterator[str]:
    failures = [f"{one.case.id}, attempt {one.attempt}: {why_unusable(one)}" for one in table.failures]
    for title, found in (
        ("Drift of the nodes while jobs ran", [drift.text for drift in table.drifts]),
        ("Failed launches", failures),
        ("Left out", left_out),
        ("Files that are not records", [f"{bad.path.name}: {bad.reason}" for bad in bad_files]),
    ):
        if found:
            yield f"### {title}"
            yield ""
            yield from (f"* {escape_markdown(one)}" for one in found)
            yield ""
