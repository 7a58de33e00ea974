"""Tables that are only on the page: step times, outlying launches and windows, failures, unreadable files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from dlscale.analysis.efficiency import ScalingRow
from dlscale.analysis.findings.outliers import outlier_columns
from dlscale.analysis.measured import CellLaunches, good_launches
from dlscale.analysis.outliers import Outliers
from dlscale.analysis.records import why_unusable
from dlscale.analysis.render.tables import (
    CONTROL_NAMES,
    Column,
    Table,
    TableOf,
    Value,
    cell_name,
    shown_number,
    tags_of,
    training_columns,
    workload_title,
)
from dlscale.analysis.render.text import backend_name
from dlscale.benchmarks.records.files import BadFile
from dlscale.benchmarks.records.record import Cell, Record

PERCENTILES = (5, 50, 95, 99)


def _milliseconds(launches: CellLaunches) -> np.ndarray[Any, np.dtype[np.float64]]:
    return 1000 * np.concatenate([case.seconds for case in launches.cases])


def _percentile(percent: int) -> Callable[[CellLaunches], float]:
    return lambda launches: float(np.percentile(_milliseconds(launches), percent))


def _setting(system: str, cell: Cell, evidence: str | None) -> dict[str, Any]:
    return {
        "system": system,
        "workload": cell.workload,
        "preset": cell.preset,
        "framework": cell.framework,
        "backend": backend_name(cell),
        "scaling_mode": cell.scaling_mode,
        "control": cell.control,
        "evidence": evidence,
        "num_ranks": cell.num_ranks,
    }


def _step_data(launches: CellLaunches) -> dict[str, Any]:
    milliseconds = _milliseconds(launches)
    quantiles = np.percentile(milliseconds, PERCENTILES)
    return {
        **_setting(launches.family.system, launches.cell, launches.evidence),
        **{
            f"p{percent}_milliseconds": float(value)
            for percent, value in zip(PERCENTILES, quantiles, strict=True)
        },
        "max_milliseconds": float(milliseconds.max()),
        "num_windows": len(milliseconds),
        "num_launches": len(launches.cases),
    }


STEP_TIMES = TableOf[CellLaunches](
    name="steps",
    caption="Step times",
    columns=(
        *training_columns(lambda launches: launches.family),
        Column("backend", lambda launches: cell_name(launches.cell, launches.evidence), numeric=False),
        Column("ranks", lambda launches: launches.cell.num_ranks),
        *(
            Column("median" if percent == 50 else f"{percent} %", _percentile(percent), unit="ms")
            for percent in PERCENTILES
        ),
        Column("slowest", lambda launches: float(_milliseconds(launches).max()), unit="ms"),
        Column("windows", lambda launches: len(_milliseconds(launches))),
        Column("launches", lambda launches: len(launches.cases)),
    ),
    data=_step_data,
    legend="Each window's time over its steps, the slowest rank's. Slowest: the slowest window of all launches.",
    tags=lambda launches: tags_of(launches.cell),
)


def step_table(measured: Iterable[CellLaunches]) -> Table:
    """Percentiles of the windows' step times, over all launches of a cell."""
    return STEP_TIMES.of(sorted(good_launches(measured), key=_order))


def _order(launches: CellLaunches) -> tuple[object, ...]:
    cell = launches.cell
    return (
        *(launches.family, cell.backend != "none", backend_name(cell)),
        *(cell.control, cell.num_ranks, launches.evidence),
    )


Outlying = tuple[ScalingRow, Outliers]


def _outlying_launches(pair: Outlying) -> Value:
    """`1 of 6: block 3 +12 %`, as excess time."""
    outliers = pair[1]
    text = f"{len(outliers.launches)} of {outliers.num_launches}"
    if outliers.launches:
        blocks = (f"block {out.block[1]} {100 * (out.factor - 1):+.0f} %" for out in outliers.launches)
        text += f": {', '.join(blocks)}"
    return Value(text=text, order=len(outliers.launches))


def _outlying_windows(pair: Outlying) -> Value:
    outliers = pair[1]
    return Value(text=f"{outliers.num_windows_out} of {outliers.num_windows}", order=outliers.num_windows_out)


OUTLIERS = TableOf[Outlying](
    name="outliers",
    caption="Launches and windows that stand out",
    columns=(
        *training_columns(lambda pair: pair[0].family),
        Column("backend", lambda pair: cell_name(pair[0].cell, pair[0].evidence), numeric=False),
        Column("ranks", lambda pair: pair[0].cell.num_ranks),
        Column("rate", lambda pair: pair[1].rate, unit="samples/s"),
        Column("launches out", _outlying_launches, numeric=False),
        Column("rate without them", lambda pair: pair[1].rate_without, unit="samples/s"),
        Column("windows out", _outlying_windows),
        Column(
            "longest",
            lambda pair: shown_number(pair[1].longest if pair[1].num_windows_out else None, "{:.2f}".format),
            unit="times the median",
        ),
        Column(
            "rate without them",
            lambda pair: pair[1].rate_without_windows if pair[1].num_windows_out else None,
            unit="samples/s",
        ),
    ),
    data=lambda pair: {
        **_setting(pair[0].family.system, pair[0].cell, pair[0].evidence),
        "samples_per_second": pair[1].rate,
        "num_launches": pair[1].num_launches,
        **outlier_columns(pair[1]),
    },
    legend=(
        "Nothing is dropped: every number on this page includes them, and this is what a rate would be without. A "
        "launch is compared with the others of its cell, after removing what its block did to all cells; a window "
        "with the others of its launch. Both: beyond 3.5 by the modified z-score, and by 2 % or more. "
        "docs/contrasts.md has the rule, and how often it errs."
    ),
    tags=lambda pair: tags_of(pair[0].cell),
    strong=lambda pair: bool(pair[1].launches),
)


def outlier_table(rows: Iterable[ScalingRow]) -> Table:
    """One row per cell with an outlying launch or window."""
    return OUTLIERS.of(
        (row, row.outliers)
        for row in rows
        if row.outliers and (row.outliers.launches or row.outliers.num_windows_out)
    )


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
        "workload": record.case.cell.workload,
        "framework": record.case.cell.framework,
        "backend": backend_name(record.case.cell),
        "control": record.case.cell.control,
        "num_ranks": record.case.cell.num_ranks,
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
