"""A study's numbers for programs: what `dlscale report --json` prints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dlscale.analysis.finding import Found

SCHEMA = 1  # raised when a key changes its name or meaning; new keys may come at any time


def study_json(found: Iterable[Found]) -> dict[str, Any]:
    """`{"schema": 1, "rows": ..., ...}`, for `json.dumps`; `errors` are of findings that could not be computed."""
    data: dict[str, Any] = {"schema": SCHEMA, "errors": {}}
    for one in found:
        data |= one.data
        if one.error:
            data["errors"][one.finding.name] = one.error
    return data
