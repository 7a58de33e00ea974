"""Published values and statements about a workload on a system (results/published/anchors.csv).

`compute_time` makes from them how long a training step computes on a system that nobody has measured.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from dlscale.base.errors import UsageError
from dlscale.benchmarks.systems.system import System
from dlscale.models.workload import Preset

ANCHORS_FILE = Path(__file__).resolve().parents[2] / "results" / "published" / "anchors.csv"
ANCHOR_COLUMNS = (
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


def load_anchors(path: Path = ANCHORS_FILE) -> list[Anchor]:
    """All anchors; none where they are not installed. Raises UsageError if the file is invalid."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != ANCHOR_COLUMNS:
            raise UsageError(f"{path}: columns {reader.fieldnames}; expected {', '.join(ANCHOR_COLUMNS)}")
        try:
            return [_anchor(row) for row in reader]
        except (TypeError, ValueError) as error:
            raise UsageError(f"{path}, line {reader.line_num}: {error}; correct it") from None


def _anchor(row: dict[str, str]) -> Anchor:
    words = {name: text for name, text in row.items() if name != "value"}
    return Anchor(value=float(row["value"]) if row["value"] else None, **words)


def sample_seconds(system: str, path: Path = ANCHORS_FILE) -> dict[str, float]:
    """Workload -> published seconds per sample of a node at the published size, where there is such a number."""
    return {
        anchor.workload: anchor.value
        for anchor in load_anchors(path)
        if anchor.system == system and anchor.quantity == "seconds_per_sample" and anchor.value
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """Seconds that a rank computes in a step, and how that is known."""

    seconds: float
    origin: str


def compute_time(
    system: System, workload: str, preset: Preset, *, precision: str, local_batch: int, ranks_per_node: int
) -> Compute | None:
    """A published time per sample at the published size, else FLOPs at the stated peak; None if neither is known.

    No training reaches the peak: steps by FLOPs are too short, which makes the network look worse than it is.
    """
    if preset.name == "paper":
        for anchor in load_anchors():
            if (anchor.system, anchor.workload, anchor.quantity) == (
                system.name,
                workload,
                "seconds_per_sample",
            ) and anchor.value:
                return Compute(
                    seconds=anchor.value * local_batch * ranks_per_node,
                    origin=f"published: {anchor.value * 1e3:g} ms per sample ({anchor.kind}; {anchor.source})",
                )
    owner = system.devices or system.node
    share = 1 if system.devices else ranks_per_node
    if precision not in owner.peak:
        return None
    peak = owner.peak[precision]
    return Compute(
        seconds=3 * preset.forward_flops_per_sample * local_batch * share / peak.number,
        origin=f"3 x forward FLOPs at the stated peak of {peak.value} ({system.sources[peak.source]})",
    )
