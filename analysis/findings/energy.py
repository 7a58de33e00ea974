"""Energy: joules per sample, for launches with readable energy counters on every node.

    joules per sample = joules of all machines over the windows after the warm-up / samples of these windows

The joules include all that a counter measures on a node, whoever used it, and the time between windows. Nodes that
share a machine share its counters, which are counted once. A launch with a machine without a reading has no number: the
sum over the others would be too small.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from dlscale.analysis.attempts import equal_steps
from dlscale.analysis.finding import COUNT, PLACE, Column, Finding, frame_of
from dlscale.analysis.load import Study
from dlscale.analysis.statistics import NONE, median_interval
from dlscale.analysis.text import listed, plural
from dlscale.benchmarks.records.record import Record

TYPES: dict[str, type] = {"joules_per_sample": float, "watts": float, "sources": str, "reason": str}
COUNTED = {"rapl": "processors and memory", "pm_counters": "whole nodes", "nvml": "GPUs"}
# Counters that add up, whole nodes before their parts.
WHOLE, PARTS = ("pm_counters",), ("rapl", "nvml")


def energy(study: Study) -> pd.DataFrame:
    """One row per training that gave a number; without a reading, `reason` says why."""
    readings = study.rows(_reading, TYPES)
    rows = [_training(key, own) for key, own in readings.groupby("cell", sort=False)]
    return frame_of(rows, "cell", *NONE.columns("joules_per_sample"), "watts", "num_launches", *TEXTS)


TEXTS = ("sources", "counted", "reason")


def _training(key: str, readings: pd.DataFrame) -> dict[str, Any]:
    """Launches with different counters are not averaged: the most common set of counters is kept."""
    known = readings[readings["sources"] != ""]
    sources = known["sources"].value_counts().sort_index().sort_values(ascending=False, kind="stable")
    own = known[known["sources"] == (sources.index[0] if len(sources) else "")]
    names = sources.index[0].split(", ") if len(sources) else []
    return {
        "cell": key,
        **median_interval(own["joules_per_sample"]).columns("joules_per_sample"),
        "watts": own["watts"].median(),
        "num_launches": len(own),
        "sources": ", ".join(names),
        "counted": ", ".join(COUNTED[name] for name in names),
        "reason": "" if len(own) else readings["reason"].iloc[0],
    }


def _reading(record: Record) -> Iterator[dict[str, Any]]:
    """The sum of all machines' counters, or in a few words why there is no number."""
    machines = {rank.rank: rank.boot_id for rank in (*record.ranks, *record.servers)}
    by_source: dict[str, dict[str, tuple[float, float]]] = {}
    for entry in record.energy:
        if entry.source and entry.joules is not None and entry.seconds and entry.rank in machines:
            known, machine = by_source.setdefault(entry.source, {}), machines[entry.rank]
            # If nodes share a machine, the longest reading counts.
            known[machine] = max(known.get(machine, (0.0, 0.0)), (entry.seconds, entry.joules))
    whole = {source: known for source, known in by_source.items() if known.keys() == set(machines.values())}
    sources = [source for source in (WHOLE if WHOLE[0] in whole else PARTS) if source in whole]
    if not sources:
        yield {"joules_per_sample": np.nan, "watts": np.nan, "sources": "", "reason": _why_nothing(record)}
        return
    parts = [part for source in sources for part in whole[source].values()]
    cell = record.case.cell
    samples = (equal_steps(record.counted, cell) * cell.global_batch).sum()
    yield {
        "joules_per_sample": sum(joules for _, joules in parts) / samples,
        "watts": sum(joules / seconds for seconds, joules in parts),
        "sources": ", ".join(sources),
        "reason": "",
    }


def _why_nothing(record: Record) -> str:
    reasons = dict.fromkeys(f"{one.source or one.node}: {one.reason}" for one in record.energy if one.reason)
    return "; ".join(reasons) or "no counter was read"


def unknown(frame: pd.DataFrame) -> str:
    """Why energy is not known, and of how many trainings; empty if it is known of all."""
    reasons = frame.loc[frame["joules_per_sample"].isna(), "reason"]
    if reasons.empty:
        return ""
    some = "" if len(reasons) == len(frame) else f" of {plural(len(reasons), 'training')} of {len(frame)}"
    return f"Energy per sample{some} is not known: {listed(dict.fromkeys(reasons))}."


FINDING = Finding(
    name="energy",
    title="Energy",
    compute=energy,
    columns={
        **PLACE,
        "joules_per_sample": Column(
            "joules of all nodes over the windows after the warm-up, per sample", "energy", "J/sample"
        ),
        "watts": Column("joules over seconds of all nodes, median launch", "power", "W", write=COUNT),
        "counted": Column("what the counters count, whoever used it", "counted"),
        "sources": Column("counters that every machine had in every launch"),
        "num_launches": Column(
            "launches whose energy is known", "launches", write=lambda count: f"{count:.0f}" * (count > 0)
        ),
        "reason": Column("why there is no number"),
    },
    sentence=unknown,
)
