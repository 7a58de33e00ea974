"""Contrasts as plain rows with stable keys, for `--json`."""

from __future__ import annotations

from typing import Any

from dlscale.analysis.contrasts.contrast import Contrast, Contrasts
from dlscale.analysis.contrasts.declare import Side
from dlscale.analysis.contrasts.words import sentence
from dlscale.analysis.frame import options_text
from dlscale.analysis.waterfall.rows import interval_columns

SCHEMA = 1  # raised when a key changes its name or meaning; new keys may come at any time


def to_json(found: Contrasts) -> dict[str, Any]:
    """`{"schema": 1, "factor": ..., "rows": [...]}`, ready for `json.dumps`."""
    return {
        "schema": SCHEMA,
        "factor": found.factor,
        "num_declared": len(found.found),
        "blocks_needed": found.blocks_needed,
        "left_out": list(found.left_out),
        "rows": to_rows(found),
    }


def to_rows(found: Contrasts) -> list[dict[str, Any]]:
    """One flat row per comparison. `ratio` is of throughputs, the contender's over the reference's."""
    return [_row(one, found.factor) for one in found.found]


def _row(one: Contrast, factor: str) -> dict[str, Any]:
    return {
        "factor": factor,
        "contender": one.contender.name,
        "reference": one.reference.name,
        **_setting(one.contender),
        "evidence": one.contender.evidence,
        "num_blocks": one.num_blocks,
        **interval_columns("ratio", one.ratio),
        **interval_columns("ratio_without_outliers", one.without),
        **interval_columns("effect", one.standardised),
        "p_value": one.p_value,
        "p_adjusted": one.p_adjusted,
        "verdict": one.verdict,
        "reason": one.reason or None,
        "text": sentence(one),
    }


def _setting(side: Side) -> dict[str, Any]:
    """The contender's cell, and where it ran."""
    cell = side.cell.model_dump(exclude={"control"})
    return {"system": side.family.system, **cell, "backend_options": options_text(side.cell)}
