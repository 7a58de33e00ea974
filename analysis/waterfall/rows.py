"""Waterfalls as plain rows with stable keys, for `--json` and for the CSV behind the figure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dlscale.analysis.frame import options_text
from dlscale.analysis.statistics import Interval
from dlscale.analysis.waterfall.waterfall import Waterfall


def to_rows(found: Iterable[Waterfall]) -> list[dict[str, Any]]:
    """One flat row per part, in the order of the staircase; for a cell without parts one with `reason`.

    `loss` is the share of the ideal speed that a part takes, `seconds` that of a step; over the rows of a cell they
    add up to 1 - `efficiency` and to `measured_seconds` - `ideal_seconds`.
    """
    return [row for one in found for row in _rows(one)]


def to_block_rows(found: Iterable[Waterfall]) -> list[dict[str, Any]]:
    """One flat row per part and block: what the intervals are made of. Nothing for unpaired ones."""
    return [
        {**_setting(one), "study": study, "block": block, "part": part.name, "loss": loss}
        for one in found
        for (study, block), losses in one.by_block
        for part, loss in zip(one.parts, losses, strict=True)
    ]


def _rows(one: Waterfall) -> list[dict[str, Any]]:
    common = {
        **_setting(one),
        **interval_columns("efficiency", one.efficiency),
        "ideal_seconds": one.ideal_seconds,
        "measured_seconds": one.measured_seconds,
    }
    about = {"notes": "; ".join(one.notes), "reason": one.reason or None}
    if not one.parts:
        return [
            {
                **common,
                "part": None,
                **interval_columns("loss", None),
                **interval_columns("seconds", None),
                **about,
            }
        ]
    return [
        {
            **common,
            "part": part.name,
            **interval_columns("loss", part.loss),
            **interval_columns("seconds", part.seconds),
            **about,
        }
        for part in one.parts
    ]


def _setting(one: Waterfall) -> dict[str, Any]:
    """What was run, on what: the keys of the table's rows."""
    return {
        "system": one.family.system,
        **one.cell.model_dump(exclude={"control"}),
        "backend_options": options_text(one.cell),
        "evidence": one.evidence,
    }


def interval_columns(name: str, interval: Interval | None) -> dict[str, Any]:
    """An interval as columns that begin with `name`; all None without one."""
    return {
        name: interval and interval.center,
        f"{name}_low": interval and interval.low,
        f"{name}_high": interval and interval.high,
        f"{name}_level": interval and interval.level,
        f"{name}_method": interval and interval.method,
        f"{name}_n": interval and interval.n,
    }
