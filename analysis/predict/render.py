"""Predicted curves as a table, as flat rows for programs, and in words."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dlscale.analysis.declare import Column, Table, TableOf
from dlscale.analysis.predict.loggp import ENGINE, ENGINE_VERSION
from dlscale.analysis.predict.prediction import (
    PredictedCurve,
    PredictedPoint,
    prediction_record,
    prediction_records,
)
from dlscale.analysis.predict.scenario import Scenario, noise_texts
from dlscale.analysis.records import prediction_row
from dlscale.analysis.text import number
from dlscale.benchmarks.records.prediction import ENDING, PredictionRecord

LEGEND = "low and high: 5 to 95 % of the replicates' efficiencies"


def prediction_table(curves: Sequence[PredictedCurve]) -> Table:
    """A row per backend and number of nodes."""
    return records_table(list(prediction_records(curves)))


def records_table(records: Sequence[PredictionRecord]) -> Table:
    """A row per prediction; all are of one training."""
    return TableOf[PredictionRecord](
        name="prediction",
        caption=_setting(records[0]),
        columns=(
            Column("backend", lambda record: record.backend, numeric=False),
            Column("nodes", lambda record: record.num_nodes),
            Column("ranks", lambda record: record.num_ranks),
            Column("servers", lambda record: record.num_servers or ""),
            Column("samples/s", lambda record: number(record.samples_per_second.center)),
            Column("efficiency", lambda record: _percent(record.efficiency.center), unit="%"),
            Column("low", lambda record: _percent(record.efficiency.low), unit="%"),
            Column("high", lambda record: _percent(record.efficiency.high), unit="%"),
        ),
        data=prediction_row,
        legend=LEGEND,
        group=lambda record: record.backend,
    ).of(records)


def prediction_rows(curves: Sequence[PredictedCurve]) -> list[dict[str, Any]]:
    """The table's rows for programs; `low` and `high` are the efficiency's."""
    return [_row(curve, point) for curve in curves for point in curve.points]


def rows_digest(curves: Sequence[PredictedCurve]) -> str:
    """SHA-256 of the rows, which a figure and a CSV of them state as the hash of their data."""
    return hashlib.sha256(json.dumps(prediction_rows(curves), sort_keys=True).encode()).hexdigest()


def is_written(curves: Sequence[PredictedCurve], stem: Path) -> bool:
    """Whether the figure, the CSV and the records at `stem` are there, and of these rows."""
    try:
        text = Path(f"{stem}.csv").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return rows_digest(curves) in text and all(
        Path(f"{stem}{ending}").is_file() for ending in (".png", ".pdf", ".svg", ENDING)
    )


def _row(curve: PredictedCurve, point: PredictedPoint) -> dict[str, Any]:
    return prediction_row(prediction_record(curve, point))


def first_line(scenario: Scenario) -> str:
    """What every reader has to know before the numbers."""
    profile = scenario.profile
    return (
        f"predicted, nothing was measured on {scenario.network.name} here: {profile.evidence} profile, "
        f"{profile.source}; engine {ENGINE} {ENGINE_VERSION}"
    )


def profile_lines(scenario: Scenario) -> Iterator[str]:
    """What disturbs steps and was measured, what was not, and what of the profile is derived, one line each.

    The jitter of messages on a calibrated network is its backend's, and not in these lines.
    """
    measured, not_measured = noise_texts(scenario, of_messages=scenario.calibrated_nodes is None)
    yield from (f"noise: {text}" for text in measured)
    if not_measured:
        yield f"noise, not measured: {'; '.join(not_measured)}"
    for text in scenario.profile.derived:
        yield f"derived: {text}"


def explanation(curve: PredictedCurve) -> Iterator[str]:
    """Where the last point loses its efficiency, and what other inputs would give it."""
    point, rule = curve.points[-1], curve.scenario.rule
    where = f"{rule.backend} on {point.num_nodes} nodes"
    parts = ", ".join(f"{name} {_points(share)}" for name, share in point.parts.items())
    yield (
        f"{where}: efficiency {_percent(point.efficiency.center)} %; of the predicted step of "
        f"{number(1e3 * point.step_seconds.center)} ms are lost, in percent: {parts}"
    )
    if not curve.sensitivity:
        return
    as_it_is = curve.sensitivity["as it is"]
    others = [
        f"{name} {_percent(efficiency)} % ({100 * (efficiency - as_it_is):+.1f})"
        for name, efficiency in curve.sensitivity.items()
        if name != "as it is"
    ]
    yield f"{where}, efficiency with {'; '.join(others)}"


def title(scenario: Scenario) -> str:
    """The heading of a figure."""
    profile, mode = scenario.profile, scenario.scaling_mode
    return f"{profile.workload} {profile.preset}, {mode} scaling on {scenario.network.name}"


def _setting(record: PredictionRecord) -> str:
    what = f"{record.workload} {record.preset}, {record.scaling_mode} scaling on {record.system}"
    per_node = record.num_ranks // record.num_nodes
    ranks = f"{per_node} rank{'s' * (per_node > 1)} per node"
    batch = f"{record.batch} samples per {'rank' if record.scaling_mode == 'weak' else 'step'}"
    return f"{what}, {record.framework}, {batch}, {ranks}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def _points(share: float) -> str:
    return f"{round(100 * share, 1) + 0.0:.1f}"
