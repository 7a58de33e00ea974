"""Productivity: the lines of code that make a single-process training script distributed, counted in `docs/examples`.

Only `--json` and comparisons of frameworks have them. The counts are stored beside this file, because an installation
has no `docs`. They are made by `tests/analysis/findings/count_examples.py`.
"""

from __future__ import annotations

import csv
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path

from dlscale.analysis.finding import Finding
from dlscale.analysis.findings import scaling

STORED = Path(__file__).with_suffix(".csv")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The difference between a framework's `single.py` and the script of one backend, in lines of code."""

    framework: str
    backend: str
    added: int
    changed: int
    removed: int
    script: str  # FRAMEWORK/FILE under docs/examples


def stored_changes(pairs: Collection[tuple[str, str]] | None = None) -> list[Change]:
    """The stored counts, in order; only those of the given (framework, backend) pairs if there are any."""
    with STORED.open(newline="") as lines:
        changes = [
            Change(
                framework=row["framework"],
                backend=row["backend"],
                added=int(row["added"]),
                changed=int(row["changed"]),
                removed=int(row["removed"]),
                script=row["script"],
            )
            for row in csv.DictReader(lines)
        ]
    return [change for change in changes if pairs is None or (change.framework, change.backend) in pairs]


FINDINGS = (
    Finding(
        name="productivity",
        title="Lines of code per backend",
        compute=lambda study: stored_changes(
            {(row.cell.framework, row.cell.backend) for row in scaling.FINDING.of(study)}
        ),
        data=lambda changes: {"productivity": list(map(asdict, changes))},
    ),
)
