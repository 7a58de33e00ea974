"""Productivity: the lines of code that make a single-process training script distributed, counted in `docs/examples`.

The counts are stored next to this file, because an installation has no `docs`. They are made by
`tests/analysis/findings/count_examples.py`.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from dlscale.analysis.finding import COUNT, Column, Finding
from dlscale.analysis.load import Study

STORED = Path(__file__).with_suffix(".csv")


def changes(study: Study) -> pd.DataFrame:
    """One row per backend's script for the study's frameworks and backends, against the single-process script."""
    stored = pd.read_csv(STORED, keep_default_na=False)
    return stored.merge(study.trained[["framework", "backend"]].drop_duplicates())


FINDING = Finding(
    name="productivity",
    title="Lines of code per backend",
    compute=changes,
    columns={
        "framework": Column("framework of the script", "framework"),
        "backend": Column("backend of the script", "backend"),
        "added": Column("lines of code added to the single-process script", "added", write=COUNT),
        "changed": Column("lines of it that are changed", "changed", write=COUNT),
        "removed": Column("lines of it that are removed", "removed", write=COUNT),
        "script": Column("the script in docs/examples", "script"),
    },
)
