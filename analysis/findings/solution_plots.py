"""Trainings to a target as plots: the way of each one, and the time over ranks; for the page, and for files."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from dlscale.analysis.curves import curves_of, limits, rates_are_tried
from dlscale.analysis.declare import tags_of
from dlscale.analysis.families import Family, on_most_ranks
from dlscale.analysis.findings.curve_plots import plain_series, rank_axis
from dlscale.analysis.findings.learning_curves import (
    PROGRESS,
    Quantity,
    drawn_per_training,
    drawn_points,
    measures,
    thinning_text,
)
from dlscale.analysis.findings.small_print import solution_origin
from dlscale.analysis.findings.solutions import (
    TimeToSolution,
    fastest_first,
    goal_text,
    rules_text,
)
from dlscale.analysis.findings.trainings import Training
from dlscale.analysis.plots import Axis, Figure, Guide, Plot, Point, Series, TrainingLine
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.statistics import Interval
from dlscale.analysis.text import (
    backend_name,
    interval_note,
    plural,
    training_title,
    with_limits,
    workload_title,
)

TABLE = "time-to-solution"
MOST_POINTS = 5000  # of a plot, over all trainings


def cell_sentences(rows: Sequence[TimeToSolution]) -> tuple[str, ...]:
    """One per cell, the fastest first; where there are several trainings each says which it is about."""
    several = len({row.family for row in rows}) > 1
    return tuple(
        f"{training_title_of([row])}: {row.text}" if several else row.text for row in fastest_first(rows)
    )


def solution_plots(rows: Sequence[TimeToSolution]) -> Iterator[Plot]:
    """Plots of one kind follow each other, so that those of two frameworks stand side by side."""
    families = sorted({row.family for row in rows})
    plots = [
        (*learning_plots(own, place), *time_plots(own, place), *samples_plots(own, place))
        for place, family in enumerate(families)
        if (own := [row for row in rows if row.family == family])
    ]
    for kind in dict.fromkeys(_kind(plot) for own in plots for plot in own):
        yield from (plot for own in plots for plot in own if _kind(plot) == kind)


def _kind(plot: Plot) -> str:
    """The plot's name without the number of its family."""
    return plot.name.rpartition("-")[0]


def learning_plots(rows: Sequence[TimeToSolution], place: int) -> Iterator[Plot]:
    """Metric and loss of all trainings of a family against time, epochs and steps; `rows` is not empty."""
    for measure in measures(rows):
        for progress in PROGRESS:
            plot = _learning_plot(rows, measure, progress, name=f"{measure.name}-{progress.name}-{place}")
            if any(series.points for series in plot.series):
                yield plot


def _learning_plot(
    rows: Sequence[TimeToSolution],
    measure: Quantity,
    progress: Quantity,
    *,
    name: str,
    most_points: int = MOST_POINTS,
) -> Plot:
    trainings = [training for row in rows for training in row.trainings]
    most = drawn_per_training(len(trainings), most=most_points)
    longest = max(len(training.solution.evaluations) for training in trainings)
    target, most_ranks = rows[0].target, max(row.cell.num_ranks for row in rows)
    return Plot(
        name=name,
        title=f"{training_title_of(rows)}: {measure.title} against {progress.name}",
        says=f"The way of every training to {goal_text(target)}.",
        x=Axis(title=progress.title),
        y=Axis(title=measure.title),
        series=tuple(
            Series(
                name=backend_name(row.cell),
                look=backend_name(row.cell),
                evidence=row.evidence,
                points=tuple(_points(row, training, measure, progress, most)),
                tags=tags_of(row.cell),
                joined=True,
                training=TrainingLine(
                    shade=0.35 + 0.5 * row.cell.num_ranks / most_ranks, end=training.solution.end
                ),
            )
            for row in rows
            for training in row.trainings
        ),
        guides=(Guide(label="target", y=target.threshold),) if measure.name == "quality" else (),
        notes=tuple(filter(None, [thinning_text(longest, most)])),
        table=TABLE,
    )


def _points(
    row: TimeToSolution, training: Training, measure: Quantity, progress: Quantity, most: int
) -> Iterator[Point]:
    who = f"{backend_name(row.cell)}, {plural(row.cell.num_ranks, 'rank')}, seed {training.seed}"
    for x, y, evaluation in drawn_points(training, progress, measure, most=most):
        yield Point(x=x, y=y, lines=(f"{who}: {y:.4g} at step {evaluation.step}",))


def time_plots(rows: Sequence[TimeToSolution], place: int) -> Iterator[Plot]:
    """The median time to solution of a family over ranks, and the ideal; nothing if no median is known."""
    curves = curves_of(rows, lambda row: row.seconds)
    if not curves:
        return
    shown = [row for curve in curves for row in curve.rows]
    known = [row.seconds for row in shown if row.seconds]
    yield Plot(
        name=f"time-to-solution-{place}",
        title=f"{training_title_of(rows)}: time to {goal_text(rows[0].target)}",
        says=" ".join(cell_sentences(rows)),
        x=rank_axis(shown),
        y=Axis(title="time to solution [s]", low=0, high=1.08 * limits(known)[1]),
        series=plain_series(
            curves,
            lambda row: row.seconds,
            lines=lambda curve, row, seconds: (
                f"{curve.name}, {plural(row.cell.num_ranks, 'rank')}",
                f"{with_limits(seconds)} s",
                interval_note(seconds, "training"),
            ),
        ),
        guides=_ideal(rows),
        table=TABLE,
    )


def samples_plots(rows: Sequence[TimeToSolution], place: int) -> Iterator[Plot]:
    """The median samples to the target of a family over the global batch; nothing of fewer than two batches."""
    known = {row.cell.global_batch: row.samples for row in rows if row.samples}
    if len(known) < 2:
        return
    batches, curves = sorted(known), curves_of(rows, lambda row: row.samples)
    series = plain_series(curves, lambda row: row.samples, at=lambda row: float(row.cell.global_batch))
    yield Plot(
        name=f"samples-{place}",
        title=f"{training_title_of(rows)}: samples to {goal_text(rows[0].target)}",
        says="Samples to the target over the global batch: medians with order-statistic intervals.",
        x=Axis(
            title="global batch [samples]",
            kind="log",
            ticks=tuple((float(batch), str(batch)) for batch in batches),
        ),
        y=Axis(title="samples to the target", low=0.0),
        series=series,
        table=TABLE,
    )


def _ideal(rows: Sequence[TimeToSolution]) -> tuple[Guide, ...]:
    base = next((row for row in rows if row.base == row.cell), None)
    if base is None or base.seconds is None:
        return ()
    whole = base.seconds.center * base.cell.num_ranks
    ranks = sorted({row.cell.num_ranks for row in rows})
    return (Guide(label="ideal", points=tuple((float(count), whole / count) for count in ranks)),)


def training_title_of(rows: Sequence[TimeToSolution]) -> str:
    """The workload and the framework of trainings of one family."""
    cell = rows[0].cell
    return f"{workload_title(cell.workload)}, {cell.framework}"


MOST_IN_FILES = 20_000  # points of a panel, over all trainings
_, EPOCHS, STEPS = PROGRESS
TRAINED = Quantity(
    name="training",
    title="time since the first step [s]",
    of=lambda _, evaluation: evaluation.training_seconds + evaluation.evaluating_seconds,
)


def solution_figure(family: Family, rows: Sequence[TimeToSolution], provenance: Provenance) -> Figure:
    """Left the metric of every training over its seconds, right the median time over ranks; `rows` is not empty."""
    target, searched = rows[0].target, rates_are_tried(row.cell for row in rows)
    quality, _ = measures(rows)
    way = _zoomed(_learning_plot(rows, quality, TRAINED, name="way", most_points=MOST_IN_FILES), rows)
    times = next(time_plots(rows, 0), None)
    if times is None:
        times = Plot(name="times", title="", says="no median is known", x=rank_axis(rows), y=TIME, series=())
    elif searched:  # every rate has a base of its own
        times = replace(times, guides=())
    ended = sum(len(row.trainings) - row.num_reached for row in rows)
    rates = "Curves are named by their learning rates."
    if not searched:
        rules = rules_text(target) or "the same at all sizes"
        rates = (
            f"Learning rate {target.learning_rate:g} at the first size; {rules}. Ideal: the time "
            "of none on its ranks over the number of ranks."
        )
    text = (
        f"Left: every training, with its own seed, evaluated on {rows[0].trainings[0].solution.num_held_out} held-out "
        "samples; circles: target reached. Right: from the launch to the target, gates left out; medians over "
        "trainings with order-statistic intervals, a training that ended short of the target counts as longer than "
        f"all others ({ended} did). {rates}"
    )
    return Figure(
        name="time-to-solution",
        title=f"Time to {goal_text(target)}: {training_title(family)}",
        subtitle=family.constants,
        small_print=(" ".join([text, *way.notes]), solution_origin(provenance)),
        panels=(replace(way, title=""), replace(times, title="")),
        rows=(),
    )


def learning_figure(family: Family, rows: Sequence[TimeToSolution], provenance: Provenance) -> Figure:
    """Metric above, loss below, against time, epochs and steps; `rows` is not empty.

    Epochs are left out if no record says how many samples they have.
    """
    columns = [progress for progress in PROGRESS if _is_known(rows, progress)]
    plots = [
        _learning_plot(rows, measure, progress, name=progress.name, most_points=MOST_IN_FILES)
        for measure, progress in product(measures(rows), columns)
    ]
    plots = [_zoomed(plot, rows) if plot.guides else plot for plot in plots]
    return Figure(
        name="learning-curves",
        title=f"Way to {goal_text(rows[0].target)}: {training_title(family)}",
        subtitle=family.constants,
        small_print=(
            " ".join([WAYS_TEXT, *plots[0].notes, "Time since the launch: gates are left out."]),
            solution_origin(provenance),
        ),
        panels=tuple(replace(plot, title="") for plot in plots),
        num_rows=2,
        rows=(),
    )


def frameworks_figure(families: Mapping[Family, Sequence[TimeToSolution]], provenance: Provenance) -> Figure:
    """The same training in several frameworks, a column each with the scales of all.

    From above: loss against epochs and against steps of every training, then the seconds of an epoch and of a step
    over ranks. What no record knows has no panels.
    """
    every = [row for rows in families.values() for row in rows]
    _, loss = measures(every)
    ways = [progress for progress in (EPOCHS, STEPS) if _is_known(every, progress)]
    costs = [(label, value) for label, value in COSTS.items() if any(value(row) for row in every)]
    notes = _learning_plot(every, loss, STEPS, name="all", most_points=MOST_IN_FILES).notes
    plots: list[Plot] = []
    for progress in ways:
        plots += _alike(
            [
                _learning_plot(rows, loss, progress, name=progress.name, most_points=MOST_IN_FILES)
                for rows in families.values()
            ]
        )
    for label, value in costs:
        high = 1.08 * limits([interval for row in every if (interval := value(row))])[1]
        for rows in families.values():
            series = plain_series(curves_of(rows, value), value)
            axis = Axis(title=label, low=0, high=high)
            plots.append(Plot(name=label, title="", says="", x=rank_axis(every), y=axis, series=series))
    first = next(iter(families))
    panels = [
        replace(plot, title="", y=replace(plot.y, title=f"{framework}: {plot.y.title}"))
        for plot, framework in zip(
            plots, [family.framework for family in families] * (len(ways) + len(costs)), strict=True
        )
    ]
    return Figure(
        name="frameworks",
        title=f"{' and '.join(family.framework for family in families)}: {first.workload} {first.preset}, "
        f"{first.scaling_mode} scaling on {first.system}",
        subtitle=first.constants,
        small_print=(
            " ".join(filter(None, [WAYS_TEXT, *notes, COSTS_TEXT])),
            solution_origin(provenance),
        ),
        panels=tuple(panels),
        num_rows=len(ways) + len(costs),
        rows=(),
    )


def compared_ways(rows: Sequence[TimeToSolution]) -> list[TimeToSolution]:
    """The ways of training that are compared with a reference, on the most ranks, the fastest first."""
    return fastest_first(on_most_ranks([row for row in rows if row.reference]))


def ways_figure(family: Family, own: Sequence[TimeToSolution], provenance: Provenance) -> Figure | None:
    """The compared ways of training: the median time of each, the soonest at the top, and what it is made of.

    Samples against samples/s: their ratio, the time of the training, is the same along each line. None where ways of
    training are not compared.
    """
    if len(own) < 2:
        return None
    ended = sum(len(row.trainings) - row.num_reached for row in own)
    text = (
        "Medians over trainings with order-statistic intervals; one that ended short of the target counts as longer "
        f"than all others ({ended} did). Left: from the launch, gates left out. Right: a training takes samples "
        f"over samples/s, equal along a line; evaluations and start are not in it."
    )
    return Figure(
        name="algorithms",
        title=f"Time to {goal_text(own[0].target)} on {own[0].cell.num_ranks} ranks: {training_title(family)}",
        subtitle=family.constants,
        small_print=(text, solution_origin(provenance)),
        panels=(_ranking(own), _product(own)),
        rows=(),
    )


def _ranking(rows: Sequence[TimeToSolution]) -> Plot:
    names = []
    for place, row in enumerate(rows, start=1):
        missed = len(row.trainings) - row.num_reached
        # An interval without an upper end has no whisker there: this says why.
        why = f"\n{row.num_reached} of {len(row.trainings)} reached it" if missed else ""
        names.append(f"{backend_name(row.cell)}  {place}{why}")
    known = [row.seconds for row in rows if row.seconds]
    return Plot(
        name="ranking",
        title="",
        says="no median is known",
        x=Axis(title=TIME.title, low=0, high=1.08 * limits(known)[1] if known else 1),
        y=Axis(title="", kind="names", ticks=tuple((float(place), name) for place, name in enumerate(names))),
        series=tuple(
            _way(row, Point(x=time.center, y=float(place), left=time.low, right=time.high))
            for place, row in enumerate(rows)
            if (time := row.seconds)
        ),
    )


def _product(rows: Sequence[TimeToSolution]) -> Plot:
    drawn = [
        (place, row, row.samples, row.samples_per_second)
        for place, row in enumerate(rows, start=1)
        if row.samples and row.samples_per_second
    ]
    fastest = 1.12 * limits([speed for *_, speed in drawn])[1] if drawn else 1.0
    most = 1.12 * limits([samples for _, _, samples, _ in drawn])[1] if drawn else 1.0
    series, guides = [], []
    for place, row, samples, speed in drawn:
        times = ((0.0, 0.0), (fastest, fastest * samples.center / speed.center))
        guides.append(Guide(label="equal time of training", points=times))
        point = Point(x=speed.center, y=samples.center, low=samples.low, high=samples.high)
        series.append(_way(row, replace(point, left=speed.low, right=speed.high, label=str(place))))
    return Plot(
        name="product",
        title="",
        says="no speed is known",
        x=Axis(title="samples/s of training", low=0, high=fastest),
        y=Axis(title="samples to the target", low=0, high=most),
        series=tuple(series),
        guides=tuple(guides),
    )


def _way(row: TimeToSolution, point: Point) -> Series:
    name = backend_name(row.cell)
    return Series(name=name, look=name, evidence=row.evidence, points=(point,), tags=tags_of(row.cell))


TIME = Axis(title="time to solution [s]", low=0)
COSTS: dict[str, Callable[[TimeToSolution], Interval | None]] = {
    "time per epoch [s]": lambda row: row.seconds_per_epoch,
    "time per step [ms]": lambda row: row.seconds_per_step.times(1000),
}
WAYS_TEXT = (
    "Every line is a training with its own seed, darker on more ranks; circles: target reached, crosses: not. The loss "
    "is that of a step's batch, mean over ranks."
)
COSTS_TEXT = (
    "Time per epoch and step: steps alone, medians over trainings of each one's median over windows, bars: "
    "order-statistic intervals."
)


def _is_known(rows: Sequence[TimeToSolution], progress: Quantity) -> bool:
    return any(progress.of(training, training.last) is not None for row in rows for training in row.trainings)


def _zoomed(plot: Plot, rows: Sequence[TimeToSolution]) -> Plot:
    """Without how bad the trainings were at first: at most twelve times the target's distance from the best."""
    metric, target = rows[0].metric, rows[0].target
    best = metric.most if metric.higher_is_better else metric.least
    reached = [target.threshold, *(point.y for series in plot.series for point in series.points)]
    if not math.isfinite(best):  # a metric of the user's has no limits: the best of what is drawn
        best = max(reached) if metric.higher_is_better else min(reached)
    away = [abs(value - best) for value in reached[1:]]
    far = min(1.05 * max(away, default=0.0), 12 * abs(target.threshold - best)) or 1.0
    near, other = best, best - far if metric.higher_is_better else best + far
    low, high = sorted((other, near + 0.02 * (near - other)))
    return replace(plot, y=replace(plot.y, low=low, high=high))


def _alike(plots: Sequence[Plot]) -> list[Plot]:
    """The plots with the widest of their scales, with a margin."""
    every = [point for plot in plots for series in plot.series for point in series.points]
    if not every:
        return list(plots)
    ends = []
    for values in ([point.x for point in every], [point.y for point in every]):
        margin = 0.05 * (max(values) - min(values) or 1.0)
        ends.append((min(values) - margin, max(values) + margin))
    (left, right), (low, high) = ends
    return [
        replace(plot, x=replace(plot.x, low=left, high=right), y=replace(plot.y, low=low, high=high))
        for plot in plots
    ]
