"""Every evaluation of every training to a target: where it stood after how many steps, samples and seconds.

A training's time counts from its launch: start of the ranks, imports, connecting, building the networks, training,
evaluating. Gates, which only a benchmark has, are left out. Of several launches all starts that count are in it, and
what saving and restoring the state took; work that a killed launch lost is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dlscale.analysis import theme
from dlscale.analysis.finding import Column, Drawing, Finding
from dlscale.analysis.findings.checkpoints import first_step
from dlscale.analysis.load import Study
from dlscale.analysis.text import settings_text
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.record import Record
from dlscale.models.quality.metric import Metric

MOST_POINTS = 5000  # of a drawing
MOST_AWAY = 12  # of a drawing: times the target's distance from the best possible value
TYPES: dict[str, type] = {
    **dict.fromkeys(("seed", "step", "samples", "num_launches"), int),
    **dict.fromkeys(("end", "metric", "metrics"), str),
    **dict.fromkeys(
        ("threshold", "value", "loss", "epoch", "most", "best", "set_up_seconds", "seconds"), float
    ),
    **dict.fromkeys(("training_seconds", "evaluating_seconds", "outside_seconds", "saving_seconds"), float),
}


def evaluations(study: Study) -> pd.DataFrame:
    """One row per evaluation of the good launches that ended by themselves, in the order of their steps.

    `value` is the target's metric. `seconds` are from the launch, evaluations included; those of the others count from
    the first step. `most` is the best value that the metric can have, `best` that of the training.
    """
    attempts: dict[tuple[str, str, str], list[Record]] = {}  # at a case, the latest first
    for record in sorted(study.records, key=lambda one: -one.attempt):
        if record.case.cell.target:
            attempts.setdefault((record.system, record.study, record.case.id), []).append(record)

    def make(record: Record) -> Iterator[dict[str, Any]]:
        if record.solution:
            yield from _evaluations(record, attempts[record.system, record.study, record.case.id])

    return study.rows(make, TYPES)


def _launches(record: Record, attempts: Sequence[Record]) -> list[Record]:
    """The launches of a training, the last first: each went on from a state that the one behind it had saved."""
    found = [record]
    for other in attempts:
        last = found[-1]
        if other.attempt < last.attempt and len(other.windows) and first_step(other) < first_step(last):
            found.append(other)
    return found


def _outside(record: Record) -> tuple[float, float]:
    """A launch's seconds before its first step, without gates, and those of saving and restoring its state."""
    phases, solution = record.phases, record.solution
    set_up: list[float | None] = [solution.set_up_seconds] if solution else (phases.set_up or [None])
    starts = [
        [np.nan if seconds is None else seconds for seconds in phase]
        for phase in (phases.start_up, phases.import_backend, phases.connect, set_up)
    ]
    saving = [one.seconds for one in (*record.checkpoints, record.resumed) if one]
    return sum(float(np.max(phase)) for phase in starts), math.fsum(saving)


def _evaluations(record: Record, attempts: Sequence[Record]) -> Iterator[dict[str, Any]]:
    solution, target = record.solution, record.case.cell.target
    if solution is None or target is None:
        return
    metric = metric_of(record.case.cell)
    most, choose = (metric.most, max) if metric.higher_is_better else (metric.least, min)
    values = [one.metrics[target.metric] for one in solution.evaluations if target.metric in one.metrics]
    launches = [(first_step(own), *_outside(own)) for own in _launches(record, attempts)]
    for one in solution.evaluations:
        counting = [own for own in launches if own[0] < one.step]
        starting, saving = (math.fsum(own[place] for own in counting) for place in (1, 2))
        yield {
            "seed": record.order_seed + record.case.block,
            "end": solution.end,
            "step": one.step,
            "samples": one.samples,
            "epoch": one.samples / solution.num_training if solution.num_training else np.nan,
            "loss": one.loss,
            "metric": target.metric,
            "threshold": target.threshold,
            "value": one.metrics.get(target.metric),
            "metrics": settings_text(one.metrics),
            "most": most,
            "best": choose(values, default=np.nan),
            "set_up_seconds": solution.set_up_seconds,
            "outside_seconds": starting + saving,
            "seconds": starting + saving + one.training_seconds + one.evaluating_seconds,
            "training_seconds": one.training_seconds,
            "evaluating_seconds": one.evaluating_seconds,
            "saving_seconds": saving,
            "num_launches": len(counting),
        }


def trainings(study: Study) -> pd.DataFrame:
    """One row per training that ended by itself: its last evaluation, and what its launch says."""
    last = FINDING.of(study).drop_duplicates("number", keep="last")
    rows = last.merge(study.good[["number", "step_seconds"]], on="number")
    spent = rows["evaluating_seconds"] + rows["training_seconds"]
    return rows.assign(
        is_reached=rows["end"] == "reached",
        evaluating_share=rows["evaluating_seconds"] / spent,
        saving_share=(rows["saving_seconds"] / rows["seconds"]).where(rows["saving_seconds"] > 0),
        samples_per_second=rows["samples"] / rows["training_seconds"],
        seconds_per_step=rows["step_seconds"],
        seconds_per_epoch=rows["step_seconds"] * rows["samples"] / rows["epoch"] / rows["global_batch"],
    )


def metric_of(cell: Cell) -> Metric:
    """The metric of a cell's target; one without limits if its workload is of another version."""
    try:
        found: Metric = cell.facts.quality().METRICS[cell.target.metric if cell.target else ""]
    except (UsageError, ImportError, KeyError):
        found = Metric(text="", least=-math.inf, most=math.inf)
    return found


def draw_curves(rows: pd.DataFrame, axes: theme.Axes) -> None:
    """The metric of every training over time, darker on more ranks; an end at the target is a dot, any other a cross.

    What is far worse than the target is cut off: every training begins there.
    """
    most_ranks = rows["num_ranks"].max()
    for curve, own, look in theme.curves(rows):
        label = curve
        for _, training in own.sort_values(["num_ranks", "step"]).groupby("number", sort=False):
            line = {"color": look["color"], "alpha": 0.35 + 0.55 * training["num_ranks"].iloc[0] / most_ranks}
            drawn = thinned(training, max(20, MOST_POINTS // rows["number"].nunique()))
            axes.plot(drawn["seconds"], drawn["value"], linewidth=0.8, label=label, **line)
            end = training.iloc[-1]
            axes.plot(end["seconds"], end["value"], "o" if end["end"] == "reached" else "x", **line)
            label = "_"  # one entry per curve
    threshold, best = rows["threshold"].iloc[0], rows["most"].iloc[0]
    axes.axhline(threshold, color="grey", linestyle=":", linewidth=0.8, label="target")
    if math.isfinite(best):
        values = rows["value"]
        far = min(1.05 * (values - best).abs().max(), MOST_AWAY * abs(threshold - best)) or 1.0
        away = far if threshold > best else -far
        axes.set_ylim(*sorted((best + away, best - 0.02 * away)))
    axes.set(
        xlim=(0, None),
        xlabel="time since the launch [s]",
        ylabel=f"{metric_name(rows['metric'].iloc[0])} on held-out samples",
    )
    axes.legend()


def thinned(training: pd.DataFrame, most: int) -> pd.DataFrame:
    """About `most` evaluations: the ends, and the worst and the best of equal groups, so that no peak is lost."""
    if len(training) <= most:
        return training
    places = training.reset_index(drop=True)
    groups = places.groupby(places.index // math.ceil(2 * len(training) / most))["value"]
    kept = {0, len(training) - 1, *groups.idxmin(), *groups.idxmax()}
    return training.iloc[sorted(kept)]


def metric_name(metric: str) -> str:
    """`AUC`, `signal efficiency`."""
    return metric.replace("auc", "AUC").replace("_", " ")


FINDING = Finding(
    name="evaluations",
    title="Learning curves",
    compute=evaluations,
    columns={  # thousands of rows: for programs
        "seed": Column("seed of the training: weights and order of samples"),
        "end": Column("how the training ended: reached, budget or diverged"),
        "step": Column("steps until the evaluation"),
        "samples": Column("samples until the evaluation, over all ranks"),
        "epoch": Column("passes over the training samples"),
        "seconds": Column("seconds since the launch, without gates"),
        "training_seconds": Column("seconds in steps, slowest rank"),
        "evaluating_seconds": Column("seconds in evaluations, this one included"),
        "loss": Column("training loss of the step's batch, mean over ranks"),
        "metric": Column("the target's metric"),
        "value": Column("the metric on held-out samples"),
        "metrics": Column("all metrics on held-out samples"),
    },
    drawings=(
        Drawing(
            name="learning-curves",
            draw=draw_curves,
            rows=lambda frame: frame[frame["value"].notna() & frame["seconds"].notna()],
            about="Metric on held-out samples over time, one line per training, darker on more ranks; of many "
            "evaluations the worst and the best of equal groups.",
        ),
    ),
)
