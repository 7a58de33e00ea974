"""The way of every training to its target: metric and loss against time, epochs and steps; frameworks side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from dlscale.analysis.curves import Curve, curves_of, limits
from dlscale.analysis.families import Family
from dlscale.analysis.figures.drawing import (
    DOUBLE_COLUMN_INCHES,
    REFERENCE,
    curve_handles,
    draw_curves,
    evidence_handles,
    looks_of,
    rank_axis,
)
from dlscale.analysis.figures.layout import Captioned, figure_with_axes
from dlscale.analysis.figures.solution import ENDS, zoom
from dlscale.analysis.findings.learning_curves import (
    PROGRESS,
    Measure,
    Progress,
    drawn_per_training,
    drawn_points,
    measures,
    thinning_text,
)
from dlscale.analysis.findings.small_print import solution_origin
from dlscale.analysis.findings.solution_table import to_solution_row
from dlscale.analysis.findings.solutions import TimeToSolution, goal_text
from dlscale.analysis.form import SCREEN, Form
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.render.theme import Look
from dlscale.analysis.statistics import Interval
from dlscale.analysis.text import backend_name, plural

MOST_POINTS = 20_000  # of a panel, over all trainings
TIME, EPOCHS, STEPS = PROGRESS


def draw(
    family: Family, rows: Sequence[TimeToSolution], provenance: Provenance, form: Form = SCREEN
) -> tuple[Captioned, list[dict[str, Any]]] | None:
    """The figure of a family, whose rows are those of `evaluation_rows`; None if it has no trainings with a target.

    One line per training, with a mark where it ended: metric above, loss below; against time since the launch, epochs
    and steps. Epochs are left out if no record says how many samples they have.
    """
    own = [row for row in rows if form.draws(row.cell)]
    if not own:
        return None
    columns = [progress for progress in PROGRESS if _drawable(own, progress)]
    panels = list(product(measures(own), columns))
    curves = curves_of(own, _presence)
    figure, axes = figure_with_axes(
        form=form,
        width=DOUBLE_COLUMN_INCHES,
        num_panels=len(panels),
        num_rows=2,
        title=f"way to {goal_text(own[0].target)}: {family.title}",
        warning="",
        subtitle=family.constants,
        handles=_handles(curves, form),
        small_print=[
            f"{_small_print(own)} Time since the launch: gates are left out.",
            solution_origin(provenance),
        ],
        shared=False,
    )
    for place, (measure, progress) in zip(axes, panels, strict=True):
        draw_trainings(place, own, measure, progress, looks_of(curves))
    return figure, []


def draw_frameworks(
    families: Mapping[Family, Sequence[TimeToSolution]],
    provenance: Provenance,
    form: Form = SCREEN,
    *,
    warning: str = "",
    verdict: str = "",
) -> tuple[Captioned, list[dict[str, Any]]] | None:
    """The same training in several frameworks, a column each with the scales of all; None if fewer have one.

    From above: loss against epochs and against steps of every training, then the seconds of an epoch and of a step
    over ranks. `warning` and `verdict` say whether both train the same network. What no record knows has no panels.
    """
    chosen = [[row for row in rows if form.draws(row.cell)] for rows in families.values()]
    if len(chosen) < 2 or not all(chosen):
        return None
    every = [row for rows in chosen for row in rows]
    _, loss = measures(every)
    curves = curves_of(every, _presence)
    looks = looks_of(curves)
    ways = [progress for progress in (EPOCHS, STEPS) if _drawable(every, progress)]
    costs = [(label, value) for label, value in COSTS.items() if any(value(row) for row in every)]
    first = next(iter(families))
    figure, axes = figure_with_axes(
        form=form,
        width=DOUBLE_COLUMN_INCHES,
        num_panels=len(chosen) * (len(ways) + len(costs)),
        num_rows=len(ways) + len(costs),
        title=f"{' and '.join(family.framework for family in families)}: {first.workload} {first.preset}, "
        f"{first.scaling_mode} scaling on {first.system}",
        warning=warning,
        subtitle=first.constants,
        handles=_handles(curves, form, target=False),
        small_print=[
            " ".join(filter(None, [_small_print(every), COSTS_TEXT, verdict])),
            solution_origin(provenance),
        ],
        shared=False,
    )
    panels = iter(axes)
    for progress in ways:
        row_axes = [next(panels) for _ in chosen]
        for place, rows in zip(row_axes, chosen, strict=True):
            draw_trainings(place, rows, loss, progress, looks, title=rows[0].cell.framework)
        _share(row_axes)
    for label, value in costs:
        row_axes = [next(panels) for _ in chosen]
        for place, rows in zip(row_axes, chosen, strict=True):
            rank_axis(place, every)
            draw_curves(place, curves_of(rows, value), value, among=curves, form=form)
            place.set_ylabel(f"{rows[0].cell.framework}: {label}")
            place.set_ylim(0, 1.08 * limits([interval for row in every if (interval := value(row))])[1])
    return figure, [to_solution_row(row) for row in every]


def draw_trainings(
    axes: Axes,
    rows: Sequence[TimeToSolution],
    measure: Measure,
    progress: Progress,
    looks: Mapping[str, Look],
    *,
    title: str = "",
) -> None:
    """One thin line per training; of a backend's several numbers of ranks the larger ones are darker."""
    most = drawn_per_training(sum(len(row.trainings) for row in rows), most=MOST_POINTS)
    most_ranks = max(row.cell.num_ranks for row in rows)
    for row in rows:
        look: dict[str, Any] = {
            "color": looks[backend_name(row.cell)].color,
            "alpha": 0.35 + 0.5 * row.cell.num_ranks / most_ranks,
        }
        for training in row.trainings:
            points = drawn_points(training, progress, measure, most=most)
            if points:
                axes.plot([point.x for point in points], [point.y for point in points], linewidth=0.7, **look)
                end = ENDS[training.solution.end]
                axes.plot([points[-1].x], [points[-1].y], marker=end, markersize=3.2, **look)
    axes.set_xlabel(progress.title)
    axes.set_ylabel(f"{title}: {measure.title}" if title else measure.title)
    if measure.name == "quality":
        axes.axhline(rows[0].target.threshold, **REFERENCE)
        zoom(axes, rows)


def _per_epoch(row: TimeToSolution) -> Interval | None:
    return row.seconds_per_epoch


def _per_step(row: TimeToSolution) -> Interval | None:
    return row.seconds_per_step.times(1000)


COSTS: dict[str, Callable[[TimeToSolution], Interval | None]] = {
    "time per epoch [s]": _per_epoch,
    "time per step [ms]": _per_step,
}
COSTS_TEXT = (
    "Time per epoch and step: steps alone, medians over trainings of each one's median over windows, bars: "
    "order-statistic intervals."
)


def _presence(row: TimeToSolution) -> Interval:
    return row.share


def _drawable(rows: Sequence[TimeToSolution], progress: Progress) -> bool:
    return any(progress.at(training, training.last) is not None for row in rows for training in row.trainings)


def _handles(curves: Sequence[Curve], form: Form, *, target: bool = True) -> list[Line2D]:
    goal = [Line2D([], [], **REFERENCE | {"label": "target"})] if target else []
    return [*curve_handles(curves), *goal, *evidence_handles(curves, form)]


def _share(panels: Sequence[Axes]) -> None:
    """Give panels of a row the widest of their scales."""
    for limits_of, set_limits in ((Axes.get_xlim, Axes.set_xlim), (Axes.get_ylim, Axes.set_ylim)):
        lows, highs = zip(*(limits_of(axes) for axes in panels), strict=True)
        for axes in panels:
            set_limits(axes, min(lows), max(highs))


def _since_launch(rows: Sequence[TimeToSolution]) -> str:
    unknown = sum(training.seconds is None for row in rows for training in row.trainings)
    left_out = f"; left out where it is not known, of {plural(unknown, 'training')}" if unknown else ""
    return f"Time since the launch: without gates{left_out}."


def _small_print(rows: Sequence[TimeToSolution]) -> str:
    trainings = [training for row in rows for training in row.trainings]
    most = drawn_per_training(len(trainings), most=MOST_POINTS)
    longest = max(len(training.solution.evaluations) for training in trainings)
    return " ".join(
        filter(
            None,
            [
                "Every line is a training with its own seed, darker on more ranks; circles: target reached, crosses: "
                "not. The loss is that of a step's batch, mean over ranks.",
                thinning_text(longest, most),
            ],
        )
    )
