"""Findings for programs and for other documents: JSON, CSV, Parquet, markdown and LaTeX."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pandas as pd

from dlscale.analysis.frames.finding import Finding
from dlscale.analysis.frames.load import Study


def as_data(study: Study, findings: Iterable[Finding]) -> dict[str, Any]:
    """What `--json` has: one list of rows per finding, under its name, with the frame's columns as keys."""
    found = {
        finding.name: rows_of(finding.exported(finding.of(study))) for finding in findings if finding.columns
    }
    return {"schema": 2, **found}


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame as JSON has them: None for what is missing or not finite."""
    columns = {name: [_plain(value) for value in frame[name].tolist()] for name in frame}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return None if value is None or value is pd.NaT or value is pd.NA else value


def as_csv(frame: pd.DataFrame) -> str:
    """A frame as CSV. Text that a spreadsheet would take for a formula begins with an apostrophe."""
    safe = frame.copy()
    for name in safe:
        if not pd.api.types.is_numeric_dtype(safe[name]):
            texts = safe[name].map(lambda value: value if isinstance(value, str) else "")
            safe[name] = safe[name].where(~texts.str.match(r"[=+\-@\t\r]"), "'" + texts)
    return str(safe.to_csv(index=False, lineterminator="\n"))
