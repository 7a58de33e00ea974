"""Time to a target: how long trainings took to reach it, how many samples, why, and what that costs.

A training that ended short of its target is censored: it counts as longer than all that reached it. Relative to a base
the speed-up of the training is samples per second x 1 / samples to the target, paired by seed. Where ways of training
are compared with synchronous SGD, the verdicts of one number of ranks hold together.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from dlscale.analysis import statistics, theme
from dlscale.analysis.finding import (
    PLACE,
    SHARE,
    Column,
    Drawing,
    Finding,
    frame_of,
    of_trainings,
    on_most_ranks,
)
from dlscale.analysis.findings import cautions, energy, evaluations, servers
from dlscale.analysis.load import Study
from dlscale.analysis.statistics import LEVEL, MIN_BLOCKS, NONE
from dlscale.analysis.text import digits, interval, listed, plural, settings_text
from dlscale.benchmarks.records.cell import Cell, Target, rates_are_tried
from dlscale.collectives.algorithms import SYNC
from dlscale.collectives.capabilities import CONTROL, capabilities
from dlscale.collectives.registry import has_other_updates

# Ratios to another cell: of which value, whether it is the other cell's over this one's, heading, and what it is.
RATIOS = {
    "speed_up": ("seconds", True, "speed-up", "its time over this one's, paired by seed"),
    "training_speed_up": (
        "training_seconds",
        True,
        "",
        "its time in steps over this one's: rate over samples ratio",
    ),
    "rate_ratio": ("samples_per_second", False, "rate", "samples/s over its samples/s"),
    "samples_ratio": ("samples", False, "samples ratio", "samples to the target over its samples"),
}
RELATED = {
    "base": "cell without communication on the base's ranks",
    "synchronous": "synchronous SGD that differs from this algorithm in nothing else",
    "reference": "synchronous SGD on the same number of ranks, where several ways of training are compared",
}
COSTS = {"node_hours": "node-hours", "core_hours": "core-hours", "kilojoules": "energy"}
SOONER, LATER, NOT_SHOWN = "sooner", "later", "not shown"


def solutions(study: Study) -> pd.DataFrame:
    """One row per cell with trainings; medians are NaN where half of them or fewer reached the target."""
    runs = study.once(evaluations.trainings)
    cells = {key: study.measured[key] for key in runs["cell"].unique()}
    places = study.cells.loc[list(cells)]
    named = places[["curve", "num_ranks"]].itertuples()
    names = {key: f"{curve} on {plural(num_ranks, 'rank')}" for key, curve, num_ranks in named}
    wide = {
        value: runs.pivot(index="block", columns="cell", values=value).astype(float)
        for value, *_ in RATIOS.values()
    }
    whole = {key for key, own in runs.groupby("cell") if own["is_reached"].all()}
    joules = energy.FINDING.of(study).set_index("cell")["joules_per_sample"]
    staleness = servers.FINDING.of(study).set_index("cell")[["mean_staleness", "staleness_95"]]
    is_busy, rows = cautions.is_busy(study), []
    for key, (related, level) in _related(cells, places).items():
        target = cells[key].target
        if target is None:  # never of an evaluation
            continue
        own = runs[runs["cell"] == key]
        row = {"cell": key, **_own_numbers(own, cells[key], target, joules.get(key, np.nan))}
        for kind, other in related.items():
            # Nobody knows how long the trainings take that missed the target.
            is_known = key != other and {key, other} <= whole
            for name, (value, is_inverse, *_) in RATIOS.items():
                pair = (other, key) if is_inverse else (key, other)
                found = statistics.ratio(*(wide[value][one] for one in pair)) if is_known else NONE
                row |= found.columns(_ratio_name(kind, name))
            row[kind] = names.get(other, "")
        row["verdict"] = ""
        if other := related["reference"]:
            joint = statistics.ratio(wide["seconds"][other], wide["seconds"][key], level=level)
            missed = (~own["is_reached"]).sum()
            row["verdict"] = (
                "reference" if other == key
                else f"{missed} missed it" if missed
                else "reference missed it" if other not in whole
                else "too few seeds" if np.isnan(joint.low)
                else "busy machine" if is_busy
                else SOONER if joint.low > 1
                else LATER if joint.high < 1
                else NOT_SHOWN
            )  # fmt: skip
        rows.append(row | {"is_busy": is_busy, **staleness.reindex([key]).iloc[0]})
    frame = frame_of(rows, "cell", "metric", "threshold", "seconds", *COSTS)
    return frame.assign(front=_fronts(frame.join(study.cells[["family", "evidence"]], on="cell")))


def _own_numbers(own: pd.DataFrame, cell: Cell, target: Target, joules: float) -> dict[str, Any]:
    """What the trainings of one cell say by themselves."""
    arrived, timed = own["is_reached"], own[own["seconds"].notna()]
    is_higher = evaluations.metric_of(cell).higher_is_better
    row = {
        "metric": target.metric,
        "threshold": target.threshold,
        "rules": _rules(target),
        "evaluate_every": target.evaluate_every,
        "num_trainings": len(own),
        "num_reached": int(arrived.sum()),
        "reached": f"{arrived.sum()}/{len(own)}",
        "closest": own["best"].max() if is_higher else own["best"].min(),
        "num_resumed": int((own["num_launches"] > 1).sum()),
        **own[["evaluating_share", "saving_share"]].median(),
        **statistics.share(int(arrived.sum()), len(own)).columns("reached_share"),
    }
    costs = {
        name: statistics.censored_median(own[name].where(arrived, np.inf)[own[name].notna()])
        for name in ("seconds", "training_seconds", "samples")
    }
    cores = cell.num_processes * cell.cores_per_rank
    costs |= {
        "node_hours": costs["seconds"].times(cell.num_nodes / 3600),
        "core_hours": costs["seconds"].times(cores / 3600),
        "kilojoules": costs["samples"].times(joules / 1000) if joules > 0 else NONE,
    }
    for name, found in costs.items():
        row |= found.columns(name)
    for name in ("seconds_per_step", "seconds_per_epoch", "samples_per_second"):
        row |= (statistics.median_interval(own[name]) if own[name].notna().all() else NONE).columns(name)
    # What fails later may use all its time, after its start.
    limit = target.max_seconds + float(timed["outside_seconds"].mean())
    found = statistics.expected_cost(timed["seconds"], timed["is_reached"], limit=limit)
    return row | found.columns("expected_seconds")


def _rules(target: Target) -> str:
    """How the learning rate of 1 rank scales and changes, and the optimizer; empty if it stays as it is."""
    schedule, optimizer = target.schedule, target.optimizer
    rules = {
        "scaling": target.scaling.replace("none", ""),
        **(schedule.model_dump(exclude={"first_rate"}) if schedule else {}),
        **(optimizer.model_dump(exclude_none=True) if optimizer else {}),
    }
    return settings_text({name: value for name, value in rules.items() if value})


def _related(cells: Mapping[str, Cell], places: pd.DataFrame) -> dict[str, tuple[dict[str, str], float]]:
    """For each cell those that it is compared with, by the names of RELATED, and the level of its verdict.

    `base`: without communication on the base's ranks. `synchronous`: what differs from another algorithm in nothing
    else. `reference`: synchronous SGD on the same number of ranks, over the ring if it is there, servers last, where
    several ways of training are compared. Empty where there is none. Where several learning rates are tried, bases
    have the same one, and nothing else is compared.
    """
    found = {}
    for _, family in places.groupby(["family", "evidence"]):
        own = {key: cells[key] for key in family.index}
        rates, several = family["learning_rate"], rates_are_tried(own.values())
        for key, cell in own.items():
            bases = [
                other
                for other, one in own.items()
                if (one.backend, one.num_ranks) == (CONTROL, family.at[key, "base_ranks"])
                and not (several and rates[other] != rates[key])
            ]
            same = cell.model_copy(update={"algorithm": SYNC, "algorithm_options": {}})
            alike = [other for other, one in own.items() if one == same and one != cell]
            compared = [
                other
                for other, one in own.items()
                if (one.num_ranks, one.num_nodes) == (cell.num_ranks, cell.num_nodes)
                and capabilities(one.backend).exchanges
            ]
            plain = [other for other in compared if _is_synchronous(own[other])]
            if several or key not in compared or len(plain) == len(compared):
                plain = []
            related = {
                "base": min(bases, key=lambda it: (own[it].split != cell.split, own[it].split), default=""),
                "synchronous": next(iter(alike), ""),
                "reference": min(plain, key=lambda other: _plainness(own[other]), default=""),
            }
            found[key] = related, 1 - (1 - LEVEL) / max(len(compared) - 1, 1)
    return found


def _ratio_name(kind: str, name: str) -> str:
    return name if kind == "base" else f"{kind}_{name}"


def _is_synchronous(cell: Cell) -> bool:
    return cell.algorithm == SYNC and not has_other_updates(cell.backend_options)


def _plainness(cell: Cell) -> tuple[bool, bool, str]:
    row = capabilities(cell.backend)
    return not row.reference, row.servers, cell.backend


def _fronts(frame: pd.DataFrame) -> pd.Series:
    """The costs by which no other cell reaches the same target both sooner and cheaper, by medians."""
    found = pd.Series([[] for _ in frame.index], frame.index, dtype=object)
    for _, own in frame.groupby(["family", "evidence", "metric", "threshold"]):
        for name, text in COSTS.items():
            points = own[["seconds", name]].dropna()
            for place, point in points.iterrows():
                if not ((points <= point).all(axis=1) & (points < point).any(axis=1)).any():
                    found[place].append(text)
    return found.map(", ".join)


def sentence(frame: pd.DataFrame) -> str:
    """How many trainings reached each target, and ratios on the most ranks; none without an interval."""
    return " ".join(_said(rows) for _, rows in of_trainings(frame))


def _said(rows: pd.DataFrame) -> str:
    most, num_trainings = on_most_ranks(rows), plural(rows["num_trainings"].sum(), "training")
    reached = f"{rows['num_reached'].sum()} of {num_trainings} reached {rows['target'].iloc[0]}"
    if rows["is_busy"].iloc[0]:
        return f"{reached}; the machine was busy, so times are not compared."
    kind, name = "reference", "reference_speed_up"
    known = most[most["verdict"].isin([SOONER, LATER, NOT_SHOWN])]
    if known.empty:
        kind, name = "base", "speed_up"
        known = most[most["speed_up_low"].notna()].assign(verdict="")
    if len(known):
        place = f" on {plural(known['num_ranks'].iloc[0], 'rank')}" if kind == "base" else ""
        ratios = known.apply(lambda row: f"{row['name']} {interval(row, name, write=digits(2))}", axis=1)
        verdicts = known["verdict"].map(lambda verdict: f" ({verdict})" if verdict else "")
        return f"{reached}. Times as fast{place} as {known[kind].iloc[0]}: {listed(ratios + verdicts)}."
    is_few = rows["num_trainings"].max() < MIN_BLOCKS
    return reached + ("; too few seeds to compare times." if is_few else ".")


def draw_times(rows: pd.DataFrame, axes: theme.Axes) -> None:
    """Time to the target over ranks, and the base's time over the number of ranks."""
    theme.points(axes, rows, "seconds")
    theme.rank_axis(axes, rows)
    base = rows[~rows["is_exchanging"] & (rows["num_ranks"] == rows["base_ranks"])]
    if len(base) == 1:
        ranks = np.array(sorted(set(rows["num_ranks"])))
        whole = (base["seconds"] * base["num_ranks"]).iloc[0]
        axes.plot(ranks, whole / ranks, ":", color="grey", label="ideal")
    axes.set(ylim=(0, None), ylabel=f"time to {rows['target'].iloc[0]} [s]")
    axes.legend()


def draw_samples(rows: pd.DataFrame, axes: theme.Axes) -> None:
    """Samples to the target over the global batch."""
    theme.points(axes, rows, "samples", x="global_batch")
    theme.rank_axis(axes, rows, x="global_batch", label="global batch [samples]")
    axes.set(ylim=(0, None), ylabel=f"samples to {rows['target'].iloc[0]}")
    axes.legend()


def of_several_batches(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows with samples, of trainings on at least two batches."""
    known = frame[frame["samples"].notna()]
    return known[known.groupby("family")["global_batch"].transform("nunique") > 1]


SECONDS: dict[str, Any] = {"unit": "s", "is_detail": True}
PERCENT = SHARE | {"is_detail": True}
FINDING = Finding(
    name="solution",
    title="Time to a target",
    compute=solutions,
    columns={
        **PLACE,
        "metric": Column("the target's metric, on held-out samples"),
        "threshold": Column("the value that it has to reach"),
        "learning_rate": Column("learning rate that was used", "learning rate", is_detail=True),
        "rules": Column("how the rate scales and changes, and the optimizer", "rules", is_detail=True),
        "evaluate_every": Column("steps between evaluations"),
        "reached": Column("trainings that reached the target / all", "reached"),
        "num_reached": Column("trainings that reached the target"),
        "num_trainings": Column("trainings, each with its own seed"),
        "reached_share": Column("share of trainings that reached the target"),
        "closest": Column("best value of the metric in any training", "closest", is_detail=True),
        "seconds": Column("from launch to target; median, a miss is longest", "time", "s"),
        "training_seconds": Column("the same in steps alone", "training", **SECONDS),
        "expected_seconds": Column("the same if misses are tried again", "expected", **SECONDS),
        "samples": Column("samples to the target, median likewise", "samples", is_detail=True),
        "samples_per_second": Column("samples over seconds in steps", "samples/s", is_detail=True),
        "mean_staleness": Column("updates that a push had missed", "updates missed", is_detail=True),
        "staleness_95": Column("that 95 % of the pushes had missed at most"),
        "seconds_per_step": Column("median step", "step", "ms", factor=1e3, is_detail=True),
        "seconds_per_epoch": Column("an epoch's steps", "epoch", **SECONDS),
        "evaluating_share": Column("evaluations in the time after start", "evaluating", **PERCENT),
        "saving_share": Column("checkpoints in the time", "saving", **PERCENT),
        "num_resumed": Column("trainings of several launches", "resumed", is_detail=True),
        **{kind: Column(about) for kind, about in RELATED.items()},
        **{
            _ratio_name(kind, name): Column(
                f"relative to the {kind}: {about}",
                {"base": label, "reference": "vs reference" * (name == "speed_up")}.get(kind, ""),
                write=digits(2),
                is_detail=name != "speed_up",
            )
            for kind, (name, (*_, label, about)) in product(RELATED, RATIOS.items())
        },
        "verdict": Column("versus the reference, of all curves together", "verdict"),
        "node_hours": Column("time x nodes", "node-hours", is_detail=True),
        "core_hours": Column("time x cores of ranks and servers", "core-hours", is_detail=True),
        "kilojoules": Column("samples x joules per sample", "energy", "kJ", is_detail=True),
        "front": Column("costs by which nothing is sooner and cheaper", "Pareto front", is_detail=True),
    },
    sentence=sentence,
    drawings=(
        Drawing(
            name="time-to-target",
            draw=draw_times,
            rows=lambda frame: frame[frame["seconds"].notna()],
            about="Time to the target over ranks.",
        ),
        Drawing(
            name="samples-to-target",
            draw=draw_samples,
            rows=of_several_batches,
            left=0.75,
            about="Samples to the target over the global batch.",
        ),
    ),
    on_screen=True,
    is_answer=True,
)
