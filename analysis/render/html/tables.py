"""The page's tables of numbers: all cells with rates and efficiencies, step times, outliers, failures.

What is shown is rounded, what is downloaded is as in `--json`. Other tables of the page share how values stand
in cells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dlscale.analysis.efficiency import ScalingRow as Measured
from dlscale.analysis.efficiency import scaling_row
from dlscale.analysis.families import Family, family_of
from dlscale.analysis.findings.outliers import Outliers, outlier_columns
from dlscale.analysis.records import why_unusable
from dlscale.analysis.render.html.labels import CONTROLS, tags_of, workload_title
from dlscale.analysis.render.html.model import Column, Datum, Row, Table, Value
from dlscale.analysis.render.html.timeline import MeasuredCase, by_cell
from dlscale.analysis.render.text import backend_name, gibibytes, number, percent, rate
from dlscale.analysis.statistics import LEVEL, Interval
from dlscale.benchmarks.records.files import BadFile
from dlscale.benchmarks.records.record import Cell, Record

NOTHING = Value(text="-")
TRAINING = (Column(label="training", numeric=False), Column(label="mode", numeric=False))


def of_interval(interval: Interval | None, say: Callable[[Interval], str]) -> Value:
    """Said in words, sorted by its centre."""
    return NOTHING if interval is None else Value(text=say(interval), order=finite(interval.center))


def of_number(value: float | None, form: str = "") -> Value:
    """In Python's format `form`; "-" where there is none, or where it is no finite number."""
    known = finite(value)
    return NOTHING if known is None else Value(text=f"{known:{form}}", order=known)


def finite(value: float | None) -> float | None:
    """None for what JSON and a table have no word for."""
    return value if value is not None and math.isfinite(value) else None


def training(family: Family) -> tuple[Value, Value]:
    """What was trained how, under the columns `TRAINING`."""
    name = f"{workload_title(family.workload)} {family.preset}, {family.framework}"
    return Value(text=name), Value(text=f"{family.scaling_mode}, {family.constants}")


def flat(row: Mapping[str, Any]) -> dict[str, Datum]:
    """A row of `rows.py` for CSV and JSON: lists become text, what is not finite becomes empty."""
    return {
        name: "; ".join(map(str, value))
        if isinstance(value, list)
        else finite(value)
        if isinstance(value, float)
        else value
        for name, value in row.items()
    }


def trimmed(table: Table) -> Table:
    """Without what says nothing: empty columns, and `TRAINING` where all rows are alike; the caption says it then."""
    if not table.rows:
        return table
    same = [
        index
        for index, column in enumerate(table.columns)
        if column in TRAINING and len({row.values[index].text for row in table.rows}) == 1
    ]
    said = ", ".join(table.rows[0].values[index].text for index in same)
    empty = [
        index for index in range(len(table.columns)) if not any(row.values[index].text for row in table.rows)
    ]
    left = [index for index in range(len(table.columns)) if index not in {*same, *empty}]
    return replace(
        table,
        caption=f"{table.caption}: {said}" if said else table.caption,
        columns=tuple(table.columns[index] for index in left),
        rows=tuple(replace(row, values=tuple(row.values[index] for index in left)) for row in table.rows),
    )


PERCENTILES = (5, 50, 95, 99)
COLUMNS = (
    *TRAINING,
    Column(label="backend", numeric=False),
    Column(label="ranks"),
    Column(label="nodes"),
    Column(label="throughput", unit="samples/s"),
    Column(label="speed-up (a)"),
    Column(label="efficiency (a)", unit="%"),
    Column(label="efficiency (b)", unit="%"),
    Column(label="cost", unit="node-hours per million samples"),
    Column(label="memory", unit="GiB per rank"),
    Column(label="launches"),
    Column(label="notes", numeric=False),
)
STEP_COLUMNS = (
    *TRAINING,
    Column(label="backend", numeric=False),
    Column(label="ranks"),
    *(Column(label="median" if one == 50 else f"{one} %", unit="ms") for one in PERCENTILES),
    Column(label="slowest", unit="ms"),
    Column(label="windows"),
    Column(label="launches"),
)


def numbers_table(rows: Iterable[Measured]) -> Table:
    """One row per cell and kind of evidence."""
    return trimmed(
        Table(
            name="numbers",
            caption="All cells",
            columns=COLUMNS,
            rows=tuple(_row(row) for row in rows),
            legend=(
                "Throughput: over all ranks, in the slowest rank's time; the median over launches and its "
                "order-statistic interval. Efficiency: (T(p)/p) / (T(1)/1) and its "
                f"{100 * LEVEL:.0f} % t interval over blocks of launches, against (a) 1 rank of none, no communication "
                "layer, and (b) 1 rank of the same backend; speed-up is T(p)/T(1). Launches: those that gave a number, "
                "of those planned."
            ),
        )
    )


def step_table(launches: Sequence[MeasuredCase]) -> Table:
    """Percentiles of the windows' step times, over all launches of a cell."""
    groups = sorted(by_cell(launches).values(), key=lambda group: _order(group[0]))
    return trimmed(
        Table(
            name="steps",
            caption="Step times",
            columns=STEP_COLUMNS,
            rows=tuple(_step_row(group) for group in groups),
            legend=(
                "Each window's time over its steps, the slowest rank's. Slowest: the slowest window of all launches."
            ),
        )
    )


def label(cell: Cell, evidence: str | None) -> Value:
    """The backend, and what is not usual about it: a control, a kind of evidence."""
    kind = "" if evidence in (None, "measured") else str(evidence)
    return Value(text=", ".join(filter(None, (backend_name(cell), CONTROLS.get(cell.control, ""), kind))))


def _order(one: MeasuredCase) -> tuple[object, ...]:
    family = family_of(one.cell, system=one.system)
    return (
        family,
        one.cell.backend != "none",
        backend_name(one.cell),
        one.cell.control,
        one.cell.num_ranks,
        one.evidence,
    )


def _row(row: Measured) -> Row:
    cell = row.cell
    cost = None if row.throughput is None else cell.num_nodes * 1e6 / row.throughput.center / 3600
    data = {**flat(scaling_row(row)), "node_hours_per_million_samples": cost}
    return Row(
        values=(
            *training(row.family),
            label(cell, row.evidence),
            of_number(cell.num_ranks),
            of_number(cell.num_nodes),
            of_interval(row.throughput, rate),
            of_interval(row.speed_up, rate),
            of_interval(row.efficiency_none, lambda one: percent(one, unit="")),
            of_interval(row.efficiency_backend, lambda one: percent(one, unit="")),
            NOTHING if cost is None else Value(text=number(cost), order=cost),
            Value(text=gibibytes(row.peak_rss_bytes), order=row.peak_rss_bytes),
            Value(text=f"{row.num_launches}/{row.num_planned}", order=row.num_launches),
            Value(text="; ".join(row.notes)),
        ),
        data=data,
        tags=tags_of(cell),
    )


def _step_row(group: Sequence[MeasuredCase]) -> Row:
    first = group[0]
    cell = first.cell
    milliseconds = 1000 * np.concatenate([one.seconds for one in group])
    quantiles = np.percentile(milliseconds, PERCENTILES)
    named: Mapping[str, Datum] = {
        f"p{one}_milliseconds": float(value) for one, value in zip(PERCENTILES, quantiles, strict=True)
    }
    return Row(
        values=(
            *training(family_of(cell, system=first.system)),
            label(cell, first.evidence),
            of_number(cell.num_ranks),
            *(Value(text=number(float(value)), order=float(value)) for value in quantiles),
            Value(text=number(float(milliseconds.max())), order=float(milliseconds.max())),
            of_number(len(milliseconds)),
            of_number(len(group)),
        ),
        data={
            "system": first.system,
            "workload": cell.workload,
            "preset": cell.preset,
            "framework": cell.framework,
            "backend": backend_name(cell),
            "scaling_mode": cell.scaling_mode,
            "control": cell.control,
            "evidence": first.evidence,
            "num_ranks": cell.num_ranks,
            **named,
            "max_milliseconds": float(milliseconds.max()),
            "num_windows": len(milliseconds),
            "num_launches": len(group),
        },
        tags=tags_of(cell),
    )


OUTLIER_COLUMNS = (
    *TRAINING,
    Column(label="backend", numeric=False),
    Column(label="ranks"),
    Column(label="rate", unit="samples/s"),
    Column(label="launches out", numeric=False),
    Column(label="rate without them", unit="samples/s"),
    Column(label="windows out"),
    Column(label="longest", unit="times the median"),
    Column(label="rate without them", unit="samples/s"),
)
OUTLIER_LEGEND = (
    "Nothing is dropped: every number on this page holds them all, and this is what a rate would be without. A launch "
    "is held against the others of its cell, with what its block did to all cells taken out; a window against the "
    "others of its launch. Both: beyond 3.5 by the modified z-score, and by 2 % or more. docs/contrasts.md has the "
    "rule, and how often it errs."
)


def outlier_table(rows: Iterable[Measured]) -> Table | None:
    """One row per cell in which a launch or a window stands out; None where none does."""
    found = tuple(
        _outlier_row(row, row.outliers)
        for row in rows
        if row.outliers and (row.outliers.launches or row.outliers.num_windows_out)
    )
    caption = "Launches and windows that stand out"
    table = Table(
        name="outliers", caption=caption, columns=OUTLIER_COLUMNS, rows=found, legend=OUTLIER_LEGEND
    )
    return trimmed(table) if found else None


def _outlier_row(row: Measured, one: Outliers) -> Row:
    some = one.num_windows_out > 0
    return Row(
        values=(
            *training(row.family),
            label(row.cell, row.evidence),
            of_number(row.cell.num_ranks),
            _rate(one.rate),
            Value(text=_outlying_launches(one), order=len(one.launches)),
            _rate(one.rate_without),
            Value(text=f"{one.num_windows_out} of {one.num_windows}", order=one.num_windows_out),
            of_number(one.longest if some else None, ".2f"),
            _rate(one.rate_without_windows if some else None),
        ),
        data={
            "system": row.family.system,
            "workload": row.cell.workload,
            "preset": row.cell.preset,
            "framework": row.cell.framework,
            "backend": backend_name(row.cell),
            "scaling_mode": row.cell.scaling_mode,
            "control": row.cell.control,
            "num_ranks": row.cell.num_ranks,
            "evidence": row.evidence,
            "samples_per_second": one.rate,
            "num_launches": one.num_launches,
            **flat(outlier_columns(one)),
        },
        tags=tags_of(row.cell),
        strong=bool(one.launches),
    )


def _outlying_launches(one: Outliers) -> str:
    """`1 of 6: block 3 +12 %`, in time."""
    if not one.launches:
        return f"0 of {one.num_launches}"
    told = ", ".join(f"block {out.block[1]} {100 * (out.factor - 1):+.0f} %" for out in one.launches)
    return f"{len(one.launches)} of {one.num_launches}: {told}"


def _rate(value: float | None) -> Value:
    return NOTHING if value is None else Value(text=number(value), order=value)


FAILURE_COLUMNS = (
    Column(label="workload", numeric=False),
    Column(label="framework", numeric=False),
    Column(label="backend", numeric=False),
    Column(label="ranks"),
    Column(label="block"),
    Column(label="attempt"),
    Column(label="node", numeric=False),
    Column(label="why", numeric=False),
)
FILE_COLUMNS = (Column(label="file", numeric=False), Column(label="why", numeric=False))


def failure_table(failures: Iterable[Record]) -> Table | None:
    """All attempts that gave no number; None without any."""
    rows = tuple(_failure_row(record) for record in failures)
    table = Table(name="failures", caption="Launches that gave no number", columns=FAILURE_COLUMNS, rows=rows)
    return table if rows else None


def file_table(bad_files: Iterable[BadFile]) -> Table | None:
    """Files that are no sound records; None without any."""
    rows = tuple(
        Row(
            values=(Value(text=bad.path.name), Value(text=bad.reason)),
            data={"file": bad.path.name, "why": bad.reason},
        )
        for bad in bad_files
    )
    table = Table(name="files", caption="Files that were left out", columns=FILE_COLUMNS, rows=rows)
    return table if rows else None


def _failure_row(record: Record) -> Row:
    cell = record.case.cell
    rank = record.failure.rank if record.failure else None
    node = next((facts.node for facts in record.ranks if facts.rank == rank), "")
    reason = why_unusable(record) or ""
    name = ", ".join(filter(None, (backend_name(cell), CONTROLS.get(cell.control, ""))))
    return Row(
        values=(
            Value(text=workload_title(cell.workload)),
            Value(text=cell.framework),
            Value(text=name),
            of_number(cell.num_ranks),
            of_number(record.case.block),
            of_number(record.attempt),
            Value(text=node or "-"),
            Value(text=reason),
        ),
        data={
            "case": record.case.id,
            "workload": cell.workload,
            "framework": cell.framework,
            "backend": backend_name(cell),
            "control": cell.control,
            "num_ranks": cell.num_ranks,
            "block": record.case.block,
            "attempt": record.attempt,
            "rank": rank,
            "node": node,
            "kind": record.failure.kind if record.failure else None,
            "why": reason,
        },
        tags=tags_of(cell),
    )
