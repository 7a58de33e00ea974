"""Asynchronous and backed-up servers: how stale pushed updates were, and which gradients came too late for one.

Servers count for every push how many updates the weights behind it had missed (`collectives.algorithms`). Servers that
take the first gradients to come tell each rank whether its own are in an update
(`collectives.mpi_ps.trainers.BackedUpTrainer`). With several servers each counts for its part. Warm-up and audits are
included.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd

from dlscale.analysis.finding import COUNT, PLACE, SHARE, Column, Finding, frame_of, on_most_ranks
from dlscale.analysis.load import Study
from dlscale.analysis.text import number, plural
from dlscale.benchmarks.records.record import Record

QUANTILES = {"median_staleness": 0.5, "staleness_95": 0.95, "staleness_99": 0.99, "largest_staleness": 1.0}


def servers(study: Study) -> pd.DataFrame:
    """One row per cell of which servers counted something, over all its good launches."""
    rows = []
    for cell, numbers in study.good.groupby("cell", sort=False)["number"]:
        records = [study.records[number] for number in numbers]
        counting = [record for record in records if record.staleness or record.late_gradients]
        if counting:
            row = {"cell": cell, "num_launches": len(counting)}
            rows.append(row | _staleness(counting) | _late_gradients(counting))
    return frame_of(rows, "cell", *COLUMNS)


def _staleness(records: list[Record]) -> dict[str, Any]:
    total: Counter[int] = Counter()
    for record in records:
        total.update(record.staleness)
    if not total:
        return {}
    missed, pushes = np.array(sorted(total.items())).T
    passed = np.cumsum(pushes)
    return {
        "num_pushes": int(passed[-1]),
        "mean_staleness": float((missed * pushes).sum() / passed[-1]),
        **{name: int(missed[np.searchsorted(passed, q * passed[-1])]) for name, q in QUANTILES.items()},
        "histogram": ", ".join(f"{steps}: {count}" for steps, count in zip(missed, pushes, strict=True)),
    }


def _late_gradients(records: list[Record]) -> dict[str, Any]:
    found = [record.late_gradients for record in records if record.late_gradients]
    if not found:
        return {}
    parts = max(records[0].case.cell.num_servers, 1)  # every server gets a part of every gradient
    computed = parts * np.sum([one.computed for one in found])
    dropped = np.sum([one.dropped for one in found], axis=0)
    return {
        "num_computed": int(computed),
        "num_dropped": int(dropped.sum()),
        "dropped_share": float(dropped.sum() / computed),
        "latest_rank": int(np.argmax(dropped)),
    }


def sentence(frame: pd.DataFrame) -> str:
    """Staleness and late gradients on the most ranks."""
    texts = []
    for row in on_most_ranks(frame).to_dict("records"):
        parts = []
        if row["num_pushes"] > 0:
            parts.append(
                f"a push had missed {number(row['mean_staleness'])} updates on average, "
                f"99 % of them at most {row['staleness_99']:.0f}"
            )
        if row["num_computed"] > 0:
            late = f"{100 * row['dropped_share']:.1f} % of the gradients came too late"
            parts.append(late + (f", most of rank {row['latest_rank']:.0f}" if row["num_dropped"] else ""))
        texts.append(f"{row['name']} on {plural(row['num_ranks'], 'rank')}: {'; '.join(parts)}.")
    return " ".join(texts)


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
    "num_computed": Column(
        "gradients for updates that take the first to come", "computed", write=COUNT, is_detail=True
    ),
    "num_dropped": Column("those that came too late", "dropped", write=COUNT, is_detail=True),
    "dropped_share": Column("dropped / computed", "late", **SHARE),
    "latest_rank": Column("rank of which most were dropped", "most of rank", write=COUNT, is_detail=True),
}
FINDING = Finding(
    name="servers",
    title="Staleness and late gradients",
    compute=servers,
    columns={
        **PLACE,
        "num_servers": Column("servers in addition to the ranks", "servers", write=COUNT),
        **COLUMNS,
    },
    sentence=sentence,
    on_screen=True,
)
