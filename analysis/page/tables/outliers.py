"""Launches and windows that stand out, with what the rate would be without them."""

from __future__ import annotations

from collections.abc import Iterable

from dlscale.analysis.outliers.cells import Outliers
from dlscale.analysis.outliers.rows import columns
from dlscale.analysis.page.model import Column, Row, Table, Value
from dlscale.analysis.page.series import tags_of
from dlscale.analysis.page.tables.cells import NOTHING, TRAINING, flat, of_number, training, trimmed
from dlscale.analysis.page.tables.numbers import label
from dlscale.analysis.scaling import Row as Measured
from dlscale.analysis.words import backend_name, number

COLUMNS = (
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
LEGEND = (
    "Nothing is dropped: every number on this page holds them all, and this is what a rate would be without. A launch "
    "is held against the others of its cell, with what its block did to all cells taken out; a window against the "
    "others of its launch. Both: beyond 3.5 by the modified z-score, and by 2 % or more. docs/contrasts.md has the "
    "rule, and how often it errs."
)


def outlier_table(rows: Iterable[Measured]) -> Table | None:
    """One row per cell in which a launch or a window stands out; None where none does."""
    found = tuple(
        _row(row, row.outliers)
        for row in rows
        if row.outliers and (row.outliers.launches or row.outliers.num_windows_out)
    )
    caption = "Launches and windows that stand out"
    table = Table(name="outliers", caption=caption, columns=COLUMNS, rows=found, legend=LEGEND)
    return trimmed(table) if found else None


def _row(row: Measured, one: Outliers) -> Row:
    some = one.num_windows_out > 0
    return Row(
        values=(
            *training(row.family),
            label(row.cell, row.evidence),
            of_number(row.cell.num_ranks),
            _rate(one.rate),
            Value(text=_launches(one), order=len(one.launches)),
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
            **flat(columns(one)),
        },
        tags=tags_of(row.cell),
        strong=bool(one.launches),
    )


def _launches(one: Outliers) -> str:
    """`1 of 6: block 3 +12 %`, in time."""
    if not one.launches:
        return f"0 of {one.num_launches}"
    told = ", ".join(f"block {out.block[1]} {100 * (out.factor - 1):+.0f} %" for out in one.launches)
    return f"{len(one.launches)} of {one.num_launches}: {told}"


def _rate(value: float | None) -> Value:
    return NOTHING if value is None else Value(text=number(value), order=value)
