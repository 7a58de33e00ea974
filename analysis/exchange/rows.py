"""Exchanges as plain rows with stable keys, for `--json` and for the CSV behind the figure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dlscale.analysis.exchange.alone import Size
from dlscale.analysis.exchange.exchanges import Exchange
from dlscale.analysis.exchange.words import GIGA
from dlscale.analysis.frame import options_text
from dlscale.analysis.statistics import Interval
from dlscale.analysis.waterfall.rows import interval_columns


def to_rows(found: Iterable[Exchange]) -> list[dict[str, Any]]:
    """One flat row per exchange and size of bucket.

    `exchange_seconds` is of a whole step, `bucket_seconds` of one bucket. `hidden` is the share of the exchange's own
    time, late ranks left out; `hidden_of_prediction` where the measured step lies between the ends of the prediction,
    0 at `predicted_high_seconds`, 1 at `predicted_low_seconds`.
    """
    return [
        {**_of_step(one), **_of_size(size), "notes": "; ".join(one.alone.notes), "reason": _reason(one)}
        for one in found
        for size in one.alone.sizes
    ]


def _of_step(one: Exchange) -> dict[str, Any]:
    alone, step = one.alone, one.step
    return {
        "system": one.family.system,
        **one.cell.model_dump(exclude={"control"}),
        "backend_options": options_text(one.cell),
        "evidence": one.evidence,
        "exchange": one.how or None,
        "step_bytes": alone.num_bytes,
        **interval_columns("exchange_seconds", alone.seconds),
        "step_busbw_gb_per_second": alone.busbw.center * GIGA,
        **interval_columns("computation_seconds", step.computation if step else None),
        **interval_columns("measured_seconds", step.measured if step else None),
        "predicted_low_seconds": step and step.shortest,
        "predicted_high_seconds": step and step.longest,
        **interval_columns("measured_over_sum", step.of_sum if step else None),
        **interval_columns("hidden_of_prediction", step.hidden if step else None),
        **interval_columns("hidden", one.overlap.hidden),
    }


def _of_size(size: Size) -> dict[str, Any]:
    intervals: dict[str, Interval] = {
        "bucket_seconds": size.seconds,
        "algbw_gb_per_second": size.algbw.times(GIGA),
        "busbw_gb_per_second": size.busbw.times(GIGA),
    }
    return {
        "bucket_bytes": size.num_bytes,
        "num_buckets": size.count,
        **{
            key: value
            for name, one in intervals.items()
            for key, value in interval_columns(name, one).items()
        },
    }


def _reason(one: Exchange) -> str | None:
    """Why something is missing."""
    return "; ".join(dict.fromkeys(filter(None, (one.reason, one.overlap.reason)))) or None
