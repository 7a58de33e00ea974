"""Throughput and scaling efficiency of every cell: the table that all other findings begin with.

E(p) = (T(p) / p) / (T(b) / b) with T in samples per second and base cases on b ranks, 1 unless another base is chosen;
the same for weak and strong scaling; 1 is ideal. It is given against backend `none`, without communication, and against
the same backend. The cost of input is measured by the controls `loader` and `synthetic` of the same launches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from dlscale.analysis import statistics, theme
from dlscale.analysis.cells import OWN
from dlscale.analysis.finding import COUNT, ENDS, PLACE, SHARE, Column, Drawing, Finding
from dlscale.analysis.load import MEMORY, Study
from dlscale.analysis.statistics import LEVEL, MIN_BLOCKS, NONE, Interval
from dlscale.analysis.text import days, listed, plural
from dlscale.collectives import CONTROL

BASE_CASE = "base case"  # the method of an efficiency that is 1 by definition
MAX_START_SKEW = 0.01  # of a window
MIN_WINDOWS = 10  # per launch


def scaling(study: Study) -> pd.DataFrame:
    """One row per cell, planned ones without a record too."""
    cells, rates, steps = study.trained, study.wide("rank_rate"), study.wide("step_seconds")
    by_cell = cells.to_dict("index")
    # Where the study has no backend's own base case, nothing is said of them.
    exchanging = cells[cells["is_exchanging"] & cells["base_own"].isin(cells.index)]
    flaws, with_own, found = _flaws(study, cells), {*exchanging["base_family"]}, []
    for key, cell in by_cell.items():
        row = statistics.median_interval(steps[key]).rate(cell["global_batch"]).columns("samples_per_second")
        notes = [*flaws[key]]
        if row["samples_per_second"] > 0 and np.isnan(row["samples_per_second_low"]):
            notes.append(f"fewer than 6 launches: no {100 * LEVEL:.0f} % interval of samples/s")
        for name, base in (("efficiency_none", "base_none"), ("efficiency_backend", "base_own")):
            own = name == "efficiency_backend" and cell["is_exchanging"]
            value, median, why = NONE, np.nan, list[str]()
            if name == "efficiency_none" or cell["base_family"] in with_own:
                value, median, why = _relation(
                    rates, by_cell, key, cell[base if own else "base_none"], own=own
                )
            row |= value.columns(name) | {f"{name}_median": median}
            notes += [note for note in why if note not in notes]
        for name, control in (("input_stall", "loader"), ("input_loss", "synthetic")):
            is_known = cell["control"] == "train" and cell[control] in steps
            share = statistics.ratio(steps[cell[control]], steps[key]) if is_known else NONE
            row |= (share if control == "loader" else share.complement()).columns(name)
        found.append(row | {"notes": "; ".join(notes)})
    frame = pd.DataFrame(found, cells.index, columns=list(found[0]) if found else _NUMBERS)
    given = ["base_ranks", "num_ranks", "num_nodes", "tokens_per_sample"]
    frame = cells[["num_launches", "num_planned", *given]].join(frame)
    for end in ENDS:
        factor = 1 if end == "_n" else frame["num_ranks"] / frame["base_ranks"]
        frame[f"speed_up{end}"] = frame[f"efficiency_none{end}"] * factor
        tokens = frame["tokens_per_sample"].where(frame["tokens_per_sample"] > 0)
        factor = tokens / tokens if end == "_n" else tokens
        frame[f"tokens_per_second{end}"] = frame[f"samples_per_second{end}"] * factor
    frame["node_hours_per_million_samples"] = frame["num_nodes"] * 1e6 / frame["samples_per_second"] / 3600
    frame["launches"] = frame["num_launches"].astype(str) + "/" + frame["num_planned"].astype(str)
    frame = frame.join(study.ranks.groupby("cell")[list(MEMORY)].max())
    return frame.drop(columns=given).reset_index()


_NUMBERS = [
    name + end
    for name in ("samples_per_second", "efficiency_none", "efficiency_backend", "input_stall", "input_loss")
    for end in ("", "_low", "_high", "_n", "_method")
] + ["efficiency_none_median", "efficiency_backend_median", "notes"]


def _relation(
    rates: pd.DataFrame, cells: Mapping[str, Any], key: str, base: str, *, own: bool
) -> tuple[Interval, float, list[str]]:
    """An efficiency, that of the median block, and notes on what it lacks.

    Jobs of different sizes share no block with the base case, but one size with each other. A chain through that size
    is paired at each of its steps; without one, the two ends are unpaired.
    """
    cell = cells[key]
    if cell["control"] != "train" or not rates[key].notna().any():
        return NONE, np.nan, []
    ranks = plural(cell["base_ranks"], "rank")
    relation, named = ("vs same backend", cell["backend"]) if own else (f"vs {ranks}", CONTROL)
    if base not in cells:
        return NONE, np.nan, [f"{relation}: {named} on {ranks} was not measured"]
    if base == key:
        return Interval(1.0, n=rates[key].count(), method=BASE_CASE), np.nan, []
    if not rates[base].notna().any():
        return NONE, np.nan, [f"{relation}: every launch of {named} on {ranks} failed"]
    notes = []
    if cells[base]["evidence"] != cell["evidence"]:
        notes.append(f"{relation}: {named} on {ranks} is {cells[base]['evidence']}, not {cell['evidence']}")
    path = links(rates, cells, key, base)
    if path is None or path:
        via = [f"{cells[one]['backend']} on {plural(cells[one]['num_ranks'], 'rank')}" for one in path or ()]
        how = f"; chained through {listed(via)}, which ran in both jobs" if path else ", so unpaired"
        notes.append(f"{relation}: no block in common with {named} on {ranks}{how}")
    steps = [rates[one] for one in (key, *(path or ()), base)]
    found, median = statistics.ratio(*steps), statistics.block_median(*steps)
    if statistics.disagree(found.center, (found.low, found.high), median):
        by_means = f"{100 * median:.1f} % in the median block, {100 * found.center:.1f} % by geometric means"
        notes.append(f"efficiency {relation} is {by_means}")
    if np.isnan(found.low):
        notes.append(f"{relation}: fewer than {MIN_BLOCKS} blocks, no interval")
    return found, median, notes


def links(rates: pd.DataFrame, cells: Mapping[str, Any], key: str, base: str) -> list[str] | None:
    """The cells that pair two others: none if they share a block, None if nothing links them.

    The shortest chain of trainings, each with 3 blocks or more in common with the next; of the same backend where there
    is one, else of `none`, and never of a third, so that no number decides which chain it is.
    """
    there = rates.notna()
    if (there[key] & there[base]).any():
        return []
    own = [cells[key][name] for name in (*OWN, "split", "num_servers")]
    for backend in dict.fromkeys([cells[key]["backend"], CONTROL]):
        among = [
            other
            for other, cell in cells.items()
            if cell["base_family"] == cells[key]["base_family"]
            and (cell["control"], cell["backend"], cell["evidence"])
            == ("train", backend, cells[key]["evidence"])
            and (backend == CONTROL or [cell[name] for name in (*OWN, "split", "num_servers")] == own)
        ]
        paths: list[list[str]] = [[key]]
        seen = {key}
        while paths:
            path = paths.pop(0)
            last = there[path[-1]]
            if path[-1] != key and (last & there[base]).sum() >= MIN_BLOCKS:
                return path[1:]
            ready = [one for one in among if one not in seen and (there[one] & last).sum() >= MIN_BLOCKS]
            seen.update(ready)
            paths += [[*path, one] for one in ready]
    return None


def _flaws(study: Study, cells: pd.DataFrame) -> dict[str, list[str]]:
    """What makes each cell's launches less trustworthy, in words."""
    good = study.good.assign(
        is_repeated=study.good["num_attempts"] > 1,
        is_resumed=study.good["part"] > 1,
        has_skipped=study.good["skipped"] > 0,
    ).groupby("cell")
    flags = ["is_steady", "is_repeated", "is_resumed", "skipped"]
    sums = good[flags].sum().reindex(cells.index, fill_value=0)
    worst = good.agg(windows=("num_windows", "min"), skew=("skew", "median"), pause=("pause_seconds", "max"))
    worst = worst.reindex(cells.index)
    oversubscribed = set(study.launches.loc[study.launches["is_oversubscribed"], "cell"])
    tried = set(study.launches["cell"])
    found: dict[str, list[str]] = {}
    for key, cell in cells.to_dict("index").items():
        own, num = {**sums.loc[key], **worst.loc[key]}, cell["num_launches"]
        resumed = f"{plural(own['is_resumed'], 'block')} resumed {days(own['pause'])} later"
        reference = f"a reference, never a base case: 1 rank on {cell['cores_per_rank']} cores"
        repeated = f"{plural(own['is_repeated'], 'launch')} repeated after other attempts"
        notes = {
            reference: cell["control"] == "whole_machine",
            f"{plural(cell['num_servers'], 'server')} besides the ranks": cell["num_servers"] > 0,
            "every launch failed" if key in tried else "not run": num == 0,
            f"not steady in {num - own['is_steady']:.0f} of {num} launches": num > own["is_steady"],
            "oversubscribed: more ranks x cores than the machine has": key in oversubscribed,
            f"ranks start {own['skew']:.0%} of a window apart": own["skew"] > MAX_START_SKEW,
            f"a launch of only {own['windows']:.0f} windows": own["windows"] < MIN_WINDOWS,
            repeated: own["is_repeated"] > 0,
            f"{resumed}: launches before and after the pause are not paired": own["is_resumed"] > 0,
            f"{plural(own['skipped'], 'unreadable sample')} left out": own["skipped"] > 0,
        }
        found[key] = [note for note, holds in notes.items() if holds]
    return found


def of_trainings_with(value: str) -> Any:
    """A choice of the rows of trainings that have this value."""
    return lambda frame: frame[(frame["control"] == "train") & frame[value].notna()]


def draw_efficiency(rows: pd.DataFrame, axes: theme.Axes) -> None:
    """Efficiency against `none` over ranks."""
    theme.points(axes, rows, "efficiency_none", factor=100)
    theme.rank_axis(axes, rows)
    axes.axhline(100, color="grey", linestyle=":", linewidth=0.8)
    axes.set(ylim=(0, None), ylabel="scaling efficiency [%]")
    axes.legend()


def draw_throughput(rows: pd.DataFrame, axes: theme.Axes) -> None:
    """Throughput over ranks, with the ideal line through the base case."""
    theme.points(axes, rows, "samples_per_second")
    theme.rank_axis(axes, rows)
    base = rows[~rows["is_exchanging"] & (rows["num_ranks"] == rows["base_ranks"])]
    if len(base):
        ranks = np.array(sorted(set(rows["num_ranks"])))
        ideal = ranks * (base["samples_per_second"] / base["num_ranks"]).iloc[0]
        axes.plot(ranks, ideal, ":", color="grey", label="ideal")
    theme.log_axis(axes.yaxis)
    axes.set_ylabel("throughput [samples/s]")
    axes.legend()


FINDING = Finding(
    name="scaling",
    title="Throughput and efficiency",
    compute=scaling,
    columns={
        **PLACE,
        "num_nodes": Column("nodes of ranks and servers", "nodes", write=COUNT, is_detail=True),
        "samples_per_second": Column(
            "samples over the slowest rank's time, median launch", "throughput", "samples/s"
        ),
        "tokens_per_second": Column("throughput in tokens, where samples are sequences", "tokens/s"),
        "speed_up": Column("T(p) / T(b) against none on b ranks", "speed-up", is_detail=True),
        "efficiency_none": Column(
            "(T(p)/p) / (T(b)/b) against none on b ranks, 1 unless --base says otherwise",
            "vs 1 rank",
            **SHARE,
        ),
        "efficiency_none_median": Column("efficiency against none in the median block"),
        "efficiency_backend": Column(
            "efficiency against the same backend on b ranks", "vs same backend", **SHARE
        ),
        "input_stall": Column(
            "share of a step that fetching alone takes (control loader)",
            "input stall",
            is_detail=True,
            **SHARE,
        ),
        "input_loss": Column(
            "share of a step saved with resident data (control synthetic)",
            "input loss",
            is_detail=True,
            **SHARE,
        ),
        "node_hours_per_million_samples": Column(
            "node-hours for a million samples", "cost", "node-hours/million", is_detail=True
        ),
        "launches": Column("launches that gave a number / planned", "n"),
        "num_launches": Column("launches that gave a number"),
        "num_planned": Column("planned launches"),
        "base_ranks": Column("ranks of the base cases"),
        **{name: Column("the most bytes of any rank") for name in MEMORY},
        "notes": Column("what makes the number less trustworthy", "notes", is_detail=True),
    },
    drawings=(
        Drawing(
            name="efficiency",
            draw=draw_efficiency,
            rows=of_trainings_with("efficiency_none"),
            about="Scaling efficiency over ranks.",
        ),
        Drawing(
            name="throughput",
            draw=draw_throughput,
            rows=of_trainings_with("samples_per_second"),
            about="Throughput over ranks.",
        ),
    ),
    on_screen=True,
    brief=lambda frame: frame[(frame["control"] == "train") & (frame["target"] == "")],
    is_answer=True,
)
