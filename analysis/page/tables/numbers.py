"""All cells with their rates and efficiencies, and the step times behind them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from dlscale.analysis.family import family_of
from dlscale.analysis.page.launches import Launch, by_cell
from dlscale.analysis.page.model import Column, Datum, Row, Table, Value
from dlscale.analysis.page.series import tags_of
from dlscale.analysis.page.tables.cells import (
    NOTHING,
    TRAINING,
    flat,
    of_interval,
    of_number,
    training,
    trimmed,
)
from dlscale.analysis.page.words import CONTROLS
from dlscale.analysis.rows import to_row
from dlscale.analysis.scaling import Row as Measured
from dlscale.analysis.statistics import LEVEL
from dlscale.analysis.words import backend_name, gibibytes, number, percent, rate
from dlscale.benchmarks.record import Cell

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


def step_table(launches: Sequence[Launch]) -> Table:
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


def _order(one: Launch) -> tuple[object, ...]:
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
    data = {**flat(to_row(row)), "node_hours_per_million_samples": cost}
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


def _step_row(group: Sequence[Launch]) -> Row:
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
