"""Every attempt, window and rank as rows: raw numbers for other programs, not only those that count."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dlscale.analysis.attempts import equal_steps
from dlscale.analysis.findings import evaluations
from dlscale.analysis.load import Study
from dlscale.analysis.statistics import Floats
from dlscale.benchmarks.records.cell import WITHOUT_SAMPLES, Cell
from dlscale.benchmarks.records.record import Record
from dlscale.benchmarks.records.windows import Windows

Columns = dict[str, Any]  # arrays of one length
# Columns of `Study.attempts` under the names that tables have.
NAMES = {
    "case": "case_id",
    "id": "cell_id",
    "block_number": "block",
    "why": "reason",
    "step_seconds": "seconds_per_step",
    "skew": "start_skew_of_window",
    "skipped": "num_skipped_samples",
    "is_oversubscribed": "oversubscribed",
    "is_steady": "steady",
}


@cache
def columns(table: str) -> dict[str, str]:
    """The columns of a table of launches, in order, with what they are."""
    found = tomllib.loads(Path(__file__).with_name("tables.toml").read_text(encoding="utf-8"))
    return {**found["key"], **found[table]}


def launches(study: Study) -> pd.DataFrame:
    """One row per attempt; `number` is its record's place, and `counts` says whether the study's numbers have it."""
    rows = study.attempts.rename(columns=NAMES).drop(columns=["num_windows"])
    facts = pd.DataFrame([_facts(study.records[number]) for number in rows["number"]], rows.index, FACTS)
    rows = rows.join(facts.astype(dict.fromkeys(FACTS[4:], float)))
    rate = (rows["global_batch"] / rows["seconds_per_step"]).where(~rows["control"].isin(WITHOUT_SAMPLES))
    tokens = rows["tokens_per_sample"].where(rows["tokens_per_sample"] > 0)
    counts = rows["number"].isin(study.good["number"])
    rows = rows.assign(counts=counts, samples_per_second=rate, tokens_per_second=rate * tokens)
    keys = ["system", "study", "case_id", "attempt"]
    return rows.sort_values(keys)[["number", *columns("launches")]].reset_index(drop=True)


FACTS = [
    *("started_at", "position", "failure_kind", "num_windows", "num_steps", "num_samples"),
    *("peak_rss_bytes", "gpu_allocated_bytes"),
]


def _facts(record: Record) -> tuple[Any, ...]:
    """What launches have of a record that no finding needs: FACTS."""
    cell, windows = record.case.cell, record.counted
    failure = record.failure.kind if record.failure else ""

    def most(value: Callable[[Any], Any]) -> float | None:
        return max(filter(None, map(value, record.ranks)), default=None)

    return (
        *(record.started_at, record.case.position, failure, len(windows)),
        float(windows.num_steps.sum()),
        float(num_samples(windows, cell).sum()),
        most(lambda rank: rank.peak_rss_bytes),
        most(lambda rank: rank.gpu_memory and rank.gpu_memory.allocated_bytes),
    )


def num_samples(windows: Windows, cell: Cell) -> Floats:
    """Samples of each window over all ranks, [W]: those applied if ranks do not step together; 0 without samples."""
    if cell.control in WITHOUT_SAMPLES:
        return np.zeros(len(windows))
    samples: Floats = windows.num_steps * cell.global_batch
    if windows.num_applied is not None:
        applied = windows.num_applied * cell.global_batch // cell.num_ranks
        samples = np.where(np.isnan(applied), samples, applied)
    if windows.num_samples is not None:
        samples = np.where(np.isnan(windows.num_samples), samples, windows.num_samples)
    return samples


def windows(study: Study, attempts: pd.DataFrame) -> pd.DataFrame:
    """One row per window of each attempt, those of the warm-up too; only steady ones count."""
    rows = _of_launches(study, attempts, "windows", _windows)
    return rows.assign(counts=rows["counts"].astype(bool) & (rows["phase"] == "steady"))


def ranks(study: Study, attempts: pd.DataFrame) -> pd.DataFrame:
    """One row per window and rank of each attempt."""
    return _of_launches(study, attempts, "ranks", _ranks)


def _of_launches(
    study: Study, attempts: pd.DataFrame, table: str, make: Callable[[Record], Columns]
) -> pd.DataFrame:
    """The columns that `make` finds in each record, behind those of its launch."""
    parts = [make(study.records[number]) for number in attempts["number"]]
    if not parts:
        return pd.DataFrame(columns=[*columns(table)])
    own = pd.DataFrame({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
    repeated = np.repeat(attempts.index, [len(part["window"]) for part in parts])
    shared = attempts.drop(columns=attempts.columns.intersection(own.columns)).loc[repeated]
    return pd.concat([shared.reset_index(drop=True), own], axis=1)[[*columns(table)]]


def _windows(record: Record) -> Columns:
    cell, own = record.case.cell, record.windows
    unknown = np.full(len(own), np.nan)
    # Without the times of all ranks a window has no world time, as the missing rank may be the slowest.
    sound = np.all((own.seconds > 0) & np.isfinite(own.seconds), axis=1)
    seconds = np.where(sound[:, np.newaxis], own.seconds, np.nan)
    world, samples, steps = seconds.max(axis=1), num_samples(own, cell), equal_steps(own, cell)
    local = record.clocks[0] if record.clocks else []  # other machines' clocks count from other boots
    skews = [np.ptp(own.start_seconds[:, ranks], axis=1) for ranks in record.clocks if len(ranks) > 1]
    return {
        "window": np.arange(len(own)),
        "phase": np.where(own.steady, "steady", "warmup").astype(object),
        "num_steps": own.num_steps,
        "num_applied": unknown if own.num_applied is None else own.num_applied,
        "num_samples": samples,
        "start_seconds": own.start_seconds[:, local].min(axis=1) if local else unknown,
        "start_skew_seconds": np.max(skews, axis=0)
        if skews
        else unknown
        if cell.num_ranks > 1
        else 0 * world,
        "slowest_rank": np.where(sound, own.seconds.argmax(axis=1), np.nan),
        "slowest_rank_seconds": world,
        "mean_rank_seconds": seconds.mean(axis=1),
        "fastest_rank_seconds": seconds.min(axis=1),
        "seconds_per_step": np.divide(world, steps, out=unknown.copy(), where=steps > 0),
        "samples_per_second": unknown if cell.control in WITHOUT_SAMPLES else samples / world,
    }


def _ranks(record: Record) -> Columns:
    own, num_ranks = record.windows, record.case.cell.num_ranks
    steps = own.rank_steps
    if steps is None:
        steps = np.repeat(own.num_steps[:, np.newaxis], num_ranks, axis=1)
    return {
        "window": np.repeat(np.arange(len(own)), num_ranks),
        "rank": np.tile(np.arange(num_ranks), len(own)),
        "num_steps": steps.ravel(),
        "start_seconds": own.start_seconds.ravel(),
        "seconds": own.seconds.ravel(),
    }


def trainings(study: Study, attempts: pd.DataFrame) -> pd.DataFrame:
    """One row per training that counts and ended by itself; `seconds` are from the launch to its end."""
    names = {"step": "num_steps", "samples": "num_samples", "epoch": "num_epochs", "is_reached": "reached"}
    own = evaluations.trainings(study).rename(columns=names)
    new = names.values()
    kept = [name for name in columns("trainings") if name in own and (name not in attempts or name in new)]
    shared = attempts.drop(columns=attempts.columns.intersection(kept))
    return shared.merge(own[["number", *kept]], on="number")[[*columns("trainings")]]
