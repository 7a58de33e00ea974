"""Published values and statements about a workload on a system (results/published/anchors.csv)."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from dlscale.models.errors import UsageError

FILE = Path(__file__).resolve().parents[1] / "results" / "published" / "anchors.csv"
COLUMNS = (
    *("system", "workload", "scaling_mode", "quantity", "value", "unit", "backend"),
    *("statement", "kind", "source"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """One published fact. `quantity` is `statement` where the source gives words instead of a number."""

    system: str
    workload: str
    scaling_mode: str
    quantity: str
    value: float | None  # in `unit`
    unit: str
    backend: str  # empty: all, or none in particular
    statement: str
    kind: str  # text, table, source code, figure
    source: str


def load_anchors(path: Path = FILE) -> list[Anchor]:
    """All anchors; none where they are not installed. Raises UsageError if unsound."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise UsageError(f"{path}: columns {reader.fieldnames}; expected {', '.join(COLUMNS)}")
        try:
            return [_anchor(row) for row in reader]
        except (TypeError, ValueError) as error:
            raise UsageError(f"{path}, line {reader.line_num}: {error}; correct it") from None


def _anchor(row: dict[str, str]) -> Anchor:
    words = {name: text for name, text in row.items() if name != "value"}
    return Anchor(value=float(row["value"]) if row["value"] else None, **words)


def sample_seconds(system: str, path: Path = FILE) -> dict[str, float]:
    """Workload -> published seconds per sample of a node, at the published size; of those that are published."""
    return {
        one.workload: one.value
        for one in load_anchors(path)
        if one.system == system and one.quantity == "seconds_per_sample" and one.value
    }
