"""Asynchronous servers: how stale pushed updates were.

Servers count for every push how many updates the weights behind it had missed (`collectives.algorithms`). With several
servers each counts for its part. Warm-up and audits are included.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd

from dlscale.analysis.finding import COUNT, PLACE, Column, Finding, frame_of, on_most_ranks
from dlscale.analysis.load import Study
from dlscale.analysis.text import number, plural

QUANTILES = {"median_staleness": 0.5, "staleness_95": 0.95, "staleness_99": 0.99, "largest_staleness": 1.0}


def servers(study: Study) -> pd.DataFrame:
    """One row per cell of which servers counted something, over all its good launches."""
    rows = []
    for cell, numbers in study.good.groupby("cell", sort=False)["number"]:
        counting = [found for each in numbers if (found := study.records[each].staleness)]
        if counting:
            rows.append({"cell": cell, "num_launches": len(counting), **_staleness(counting)})
    return frame_of(rows, "cell", *COLUMNS)


def _staleness(histograms: list[dict[int, int]]) -> dict[str, Any]:
    total: Counter[int] = Counter()
    for histogram in histograms:
        total.update(histogram)
    missed, pushes = np.array(sorted(total.items())).T
    passed = np.cumsum(pushes)
    return {
        "num_pushes": int(passed[-1]),
        "mean_staleness": float((missed * pushes).sum() / passed[-1]),
        **{name: int(missed[np.searchsorted(passed, q * passed[-1])]) for name, q in QUANTILES.items()},
        "histogram": ", ".join(f"{steps}: {count}" for steps, count in zip(missed, pushes, strict=True)),
    }


def sentence(frame: pd.DataFrame) -> str:
    """Staleness on the most ranks."""
    return " ".join(
        f"{row['name']} on {plural(row['num_ranks'], 'rank')}: a push had missed {number(row['mean_staleness'])} "
        f"updates on average, 99 % of them at most {row['staleness_99']:.0f}."
        for row in on_most_ranks(frame).to_dict("records")
    )


COLUMNS = {
    "num_launches": Column("launches in which servers counted"),
    "num_pushes": Column("pushes, over all servers and launches", "pushes", write=COUNT),
    "mean_staleness": Column(
        "updates between the weights that a push was computed with and the push", "missed", "updates"
    ),
    "median_staleness": Column("half of the pushes had missed at most", "half", write=COUNT),
    "staleness_95": Column("95 % had missed at most", "95 %", write=COUNT),
    "staleness_99": Column("99 % had missed at most", "99 %", write=COUNT),
    "largest_staleness": Column("the most that a push had missed", "all", write=COUNT),
    "histogram": Column("updates that were missed: pushes"),
}
FINDING = Finding(
    name="servers",
    title="Staleness",
    compute=servers,
    columns={
        **PLACE,
        "num_servers": Column("servers in addition to the ranks", "servers", write=COUNT),
        **COLUMNS,
    },
    sentence=sentence,
    on_screen=True,
)
