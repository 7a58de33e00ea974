"""Productivity: the lines of code that make a single-process training script distributed, counted in `docs/examples`.

The counts are stored beside this file, because an installation has no `docs`. They are made by
`tests/analysis/findings/count_examples.py`.
"""

from __future__ import annotations

import csv
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path

from dlscale.analysis.declare import Column, TableOf, Tags
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


PRODUCTIVITY = TableOf[Change](
    name="productivity",
    caption="Lines to make a single-process script distributed",
    columns=(
        Column("framework", lambda change: change.framework, numeric=False),
        Column("backend", lambda change: change.backend, numeric=False),
        Column("added", lambda change: change.added, unit="lines"),
        Column("changed", lambda change: change.changed, unit="lines"),
        Column("removed", lambda change: change.removed, unit="lines"),
        Column("script", lambda change: change.script, numeric=False),
    ),
    data=asdict,
    legend=(
        "Lines of code between single.py and that script, both under docs/examples; blank lines, comments and "
        "docstrings do not count. docs/measurements/productivity.md has all of them."
    ),
    tags=lambda change: Tags(framework=change.framework, backend=change.backend),
    group=lambda change: change.framework,
)


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
        table=PRODUCTIVITY,
    ),
)
