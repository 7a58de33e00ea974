"""Time to solution: the quality of every training while it went on, and what all of them took over ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from dlscale.analysis.curves import curves_of, limits, rates_are_tried
from dlscale.analysis.families import Family
from dlscale.analysis.figures.drawing import (
    DOUBLE_COLUMN_INCHES,
    IDEAL,
    REFERENCE,
    curve_handles,
    draw_curves,
    evidence_handles,
    looks_of,
    rank_axis,
)
from dlscale.analysis.figures.layout import Captioned, figure_with_axes
from dlscale.analysis.findings.learning_curves import drawn_per_training, thinned, thinning_text
from dlscale.analysis.findings.small_print import solution_origin
from dlscale.analysis.findings.solution_table import to_solution_row
from dlscale.analysis.findings.solutions import TimeToSolution, goal_text, metric_name, rules_text, tuned_text
from dlscale.analysis.form import SCREEN, Form
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.statistics import Interval
from dlscale.analysis.text import backend_name

MOST_POINTS = 20_000  # of a panel, over all trainings
ENDS = {"reached": "o", "budget": "x", "diverged": "X"}  # markers of a training's last evaluation


def draw(
    family: Family, rows: Sequence[TimeToSolution], provenance: Provenance, form: Form = SCREEN
) -> tuple[Captioned, list[dict[str, Any]]] | None:
    """The figure of a family and the rows behind it; None if it has no trainings with a target.

    Left the metric of every training over its seconds since the first step, with a mark where it ended; right the
    median time over ranks with its interval, and what ideal scaling would make of the base's.
    """
    own = [row for row in rows if not form.backends or row.cell.backend in form.backends]
    if not own:
        return None
    curves = curves_of(own, _presence)
    target = own[0].target
    most_drawn = drawn_per_training(sum(len(row.trainings) for row in own), most=MOST_POINTS)
    figure, axes = figure_with_axes(
        form=form,
        width=DOUBLE_COLUMN_INCHES,
        num_panels=2,
        title=f"time to {goal_text(target)}: {family.title}",
        warning="",
        subtitle=family.constants,
        handles=[
            *curve_handles(curves),
            Line2D([], [], **REFERENCE | {"label": "target"}),
            *([] if _searched(own) else [Line2D([], [], **IDEAL)]),
            *evidence_handles(curves, form),
        ],
        small_print=_small_print(own, provenance, most_drawn),
        shared=False,
    )
    looks = looks_of(curves)
    for row in own:
        _draw_trainings(
            axes[0],
            row,
            looks[backend_name(row.cell)].color,
            most=max(r.cell.num_ranks for r in own),
            most_drawn=most_drawn,
        )
    axes[0].axhline(target.threshold, **REFERENCE)
    axes[0].set_xlabel("time since the first step [s]")
    axes[0].set_ylabel(f"{metric_name(target)} on held-out samples")
    zoom(axes[0], own)
    rank_axis(axes[1], own)
    draw_curves(axes[1], curves, _seconds, among=curves, form=form)
    _draw_ideal(axes[1], own)
    if shown := [interval for row in own if (interval := row.seconds)]:
        axes[1].set_ylim(0, 1.08 * limits(shown)[1])
    axes[1].yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes[1].set_ylabel("time to solution [s]")
    return figure, [to_solution_row(row) for row in own]


def _presence(row: TimeToSolution) -> Interval:
    """Every cell is in the legend, also one whose median is not known."""
    return row.share


def _seconds(row: TimeToSolution) -> Interval | None:
    return row.seconds


def _draw_trainings(axes: Axes, row: TimeToSolution, color: str, *, most: int, most_drawn: int) -> None:
    """One thin line per training; of a backend's several numbers of ranks the larger ones are darker."""
    alpha = 0.35 + 0.5 * row.cell.num_ranks / most
    name = row.target.metric
    for training in row.trainings:
        known = [evaluation for evaluation in training.solution.evaluations if name in evaluation.metrics]
        values = [evaluation.metrics[name] for evaluation in known]
        places = thinned(values, most_drawn)
        if not places:
            continue
        seconds = [known[place].training_seconds + known[place].evaluating_seconds for place in places]
        axes.plot(seconds, [values[place] for place in places], color=color, linewidth=0.7, alpha=alpha)
        axes.plot(
            seconds[-1:],
            values[-1:],
            color=color,
            marker=ENDS[training.solution.end],
            markersize=3.2,
            alpha=alpha,
        )


def zoom(axes: Axes, rows: Sequence[TimeToSolution]) -> None:
    """Leave out how bad the trainings were at first: at most twelve times the target's distance from the best."""
    metric, target = rows[0].metric, rows[0].target
    best = metric.most if metric.higher_is_better else metric.least
    away = [
        abs(value - best)
        for row in rows
        for training in row.trainings
        for evaluation in training.solution.evaluations
        if (value := evaluation.metrics.get(target.metric)) is not None
    ]
    far = min(1.05 * max(away, default=0.0), 12 * abs(target.threshold - best)) or 1.0
    near, other = best, best - far if metric.higher_is_better else best + far
    margin = 0.02 * (near - other)
    axes.set_ylim(*sorted((other, near + margin)))


def _draw_ideal(axes: Axes, rows: Sequence[TimeToSolution]) -> None:
    """The base's time over the number of ranks."""
    if _searched(rows):  # every rate has a base of its own
        return
    bases = [row for row in rows if row.base == row.cell and row.seconds]
    if bases and bases[0].seconds:
        ranks = sorted({row.cell.num_ranks for row in rows})
        own = bases[0].cell.num_ranks
        axes.plot(ranks, [bases[0].seconds.center * own / count for count in ranks], **IDEAL)


def _searched(rows: Sequence[TimeToSolution]) -> bool:
    return rates_are_tried(row.cell for row in rows)


def _rates_text(rows: Sequence[TimeToSolution]) -> str:
    if _searched(rows):
        return "Curves are named by their learning rates."
    target = rows[0].target
    rules = rules_text(target) or "the same at all sizes"
    rates = f"Learning rate {target.learning_rate:g} at the first size; {rules}; {tuned_text(target)}."
    return f"{rates} Ideal: the time of none on its ranks over the number of ranks."


def _small_print(rows: Sequence[TimeToSolution], provenance: Provenance, most_drawn: int) -> list[str]:
    first = rows[0].trainings[0].solution
    ended = sum(len(row.trainings) - row.num_reached for row in rows)
    text = (
        f"Left: every training, with its own seed, evaluated on {first.num_held_out} held-out samples; circles: target "
        "reached. Right: from the launch to the target, gates left out; medians over trainings with order-statistic "
        "intervals, a training that ended short of the target counts as longer than all others "
        f"({ended} did). {_rates_text(rows)}"
    )
    longest = max(len(training.solution.evaluations) for row in rows for training in row.trainings)
    text = " ".join(filter(None, [text, thinning_text(longest, most_drawn)]))
    return [text, solution_origin(provenance)]
