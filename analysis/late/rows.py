"""Lateness as plain rows with stable keys, for `--json`, and the matrix behind a heat-map."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dlscale.analysis.late.matrix import Heat
from dlscale.analysis.late.suspects import Lateness, Suspect
from dlscale.analysis.waterfall.rows import interval_columns


def to_rows(found: Iterable[Lateness]) -> list[dict[str, Any]]:
    """One flat row per suspect. `slower` is a fraction of the others' time; `rank` None means whole hosts."""
    return [_row(one, suspect) for one in found for suspect in one.suspects]


def to_heat_rows(heat: Heat) -> list[dict[str, Any]]:
    """One flat row per cell of a heat-map: a rank in a window of a launch, or in several windows side by side."""
    ends = (*heat.first_columns[1:], heat.values.shape[1])
    return [
        {
            "backend": heat.cell.backend,
            "num_ranks": heat.cell.num_ranks,
            "evidence": heat.evidence,
            "host": heat.hosts[rank] if heat.hosts and not heat.moved else None,
            "rank": rank,
            "block": block,
            "column": column - first,
            "slower": float(heat.values[rank, column]),
        }
        for (_, block), first, end in zip(heat.blocks, heat.first_columns, ends, strict=True)
        for rank in range(len(heat.values))
        for column in range(first, end)
    ]


def _row(one: Lateness, suspect: Suspect) -> dict[str, Any]:
    family = one.family
    return {
        "system": family.system,
        "workload": family.workload,
        "preset": family.preset,
        "framework": family.framework,
        "environment": family.environment,
        "scaling_mode": family.scaling_mode,
        "precision": family.precision,
        "num_ranks": one.num_ranks,
        "num_nodes": one.num_nodes,
        "evidence": one.evidence,
        "backend": suspect.backend,
        "host": ", ".join(suspect.hosts),
        "rank": suspect.rank,
        **interval_columns("slower", suspect.slower),
        "p_value": suspect.p_value,
        "verdict": suspect.verdict,
        "reason": suspect.reason or None,
    }
