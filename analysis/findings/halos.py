"""What ranks that share samples exchange in a step: how often, how much, and how long it takes.

A rank sends halos of rows to its neighbours, adds sums to those of its replica, and gathers maps. Seconds of an
exchange have what a rank waits in it for its neighbours: of the rank that spends least as little as any, yet ranks may
wait in turns. Control `halos` exchanges the same without computing: what it takes is no waiting for computation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pandas as pd

from dlscale.analysis.finding import COUNT, MILLISECONDS, PLACE, SHARE, Column, Finding, each_said, frame_of
from dlscale.analysis.load import Study
from dlscale.analysis.statistics import NONE, ratio
from dlscale.analysis.text import digits, interval, plural, size_text
from dlscale.benchmarks.records.record import Record

OPERATIONS = ("exchange", "sum", "gather")  # of a record's calls: their first words
VALUES = ("least", "most", "bytes")
COUNTS = [f"num_{operation}s" for operation in OPERATIONS]


def halos(study: Study) -> pd.DataFrame:
    """One row per training whose ranks share samples, if all launches say what they exchange: medians over launches."""
    launches = study.rows(_of_launch, dict.fromkeys(VALUES, float))
    split = study.cells["split"]
    launches = launches[launches["cell"].map(split) > 1]
    steps, most = study.wide("step_seconds"), study.ranks.groupby("cell").max(numeric_only=True)
    peaks = most[["peak_rss_bytes"]].reindex(study.cells.index)
    halos_only = study.cells.loc[study.cells["control"] == "halos", "train"]
    alone, rows = {train: key for key, train in halos_only.items()}, []
    for key, own in launches.groupby("cell", sort=False):
        if own["bytes"].isna().any():
            continue
        calls: list[str] = max(study.records[own["number"].iloc[-1]].halo_calls, key=len, default=[])
        counts = Counter(call.partition(" ")[0] for call in calls)
        least = own.set_index("block")["least"].reindex(steps.index)
        rows.append(
            {
                "cell": key,
                **{name: counts[operation] for name, operation in zip(COUNTS, OPERATIONS, strict=True)},
                "halo_bytes": own["bytes"].median(),
                "halo_seconds": own["least"].median(),
                "halo_seconds_of_the_last": own["most"].median(),
                "halo_seconds_alone": steps[alone[key]].median() if key in alone else np.nan,
                **ratio(least, steps[key]).columns("halo_share"),
                **peaks.loc[key],
                "calls": calls,
            }
        )
    return frame_of(rows, "cell", *NONE.columns("halo_share"))


def _of_launch(record: Record) -> Iterable[dict[str, float]]:
    seconds, sent = record.halo_seconds, record.halo_bytes
    if len(seconds) == len(sent) == record.case.cell.num_ranks:
        yield {"least": min(seconds), "most": max(seconds), "bytes": max(sent)}
    else:
        yield dict.fromkeys(VALUES, np.nan)


def cost(rows: pd.DataFrame) -> str:
    """What sharing samples costs on the most ranks of each training."""
    first = rows.loc[rows["halo_bytes"].astype(float).idxmax()]
    shares = [
        f"{row['curve']}: {interval(row, 'halo_share', factor=100, write=digits(1), unit=' %')}"
        for row in rows.to_dict("records")
    ]
    calls = plural(len(first["calls"]), "call")
    what = f"{size_text(round(first['halo_bytes']))} in {calls} per step and rank"
    return f"Halos on {plural(first['num_ranks'], 'rank')}, {what}, take of a step: {'; '.join(shares)}."


FINDING = Finding(
    name="halos",
    title="Rows that ranks exchange",
    compute=halos,
    columns={
        **PLACE,
        "num_exchanges": Column("exchanges of halos per step", "halos", "per step", write=COUNT),
        "num_sums": Column("sums over a replica's ranks per step", "sums", "per step", write=COUNT),
        "num_gathers": Column("gathers of maps per step", "gathers", "per step", write=COUNT),
        "halo_bytes": Column("given to them per step, the most of any rank", "sent", "KiB", factor=2.0**-10),
        "halo_seconds": Column("in them per step, the rank that spends least", "least", **MILLISECONDS),
        "halo_seconds_of_the_last": Column("the same, of the rank that spends most", "most", **MILLISECONDS),
        "halo_seconds_alone": Column(
            "step of control halos, which computes nothing", "alone", **MILLISECONDS
        ),
        "halo_share": Column("least over the step", "of the step", **SHARE),
        "peak_rss_bytes": Column("most bytes of a process", "peak", "GiB", factor=2.0**-30, write=digits(2)),
        "calls": Column("calls of one rank in order, with bytes up and down"),
    },
    sentence=lambda frame: each_said(frame, cost),
)
