"""Efficiency over ranks: a plot per family, a figure with both base cases, and the trainings of one screen."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from dlscale.analysis.curves import Value, curves_of, missing_from
from dlscale.analysis.declare import Column, Sentence, Table, brief, family_tags
from dlscale.analysis.families import Family, on_most_ranks
from dlscale.analysis.finding import Finding
from dlscale.analysis.findings import memory, predicted_points, scaling, solution_table
from dlscale.analysis.findings.contrasts import study_contrasts
from dlscale.analysis.findings.curve_plots import (
    IDEAL,
    against_backend,
    against_none,
    rank_axis,
    says,
    series_of,
    wall,
    without_point,
)
from dlscale.analysis.findings.memory import MemoryUse, state_column
from dlscale.analysis.findings.predicted_points import PlacedPrediction, predicted_notes, predicted_series
from dlscale.analysis.findings.scaling import SCALING, ScalingRow, base_text, rows_of
from dlscale.analysis.findings.small_print import family_figure, scaling_lines, span
from dlscale.analysis.findings.verdict import on_one_rank, verdict
from dlscale.analysis.form import SCREEN, Form
from dlscale.analysis.measured import Measured
from dlscale.analysis.metrics import BASE_CASE, VERSUS_BACKEND, VERSUS_NONE, base_of
from dlscale.analysis.plots import Axis, Block, Figure, Plot
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.statistics import LEVEL, Interval
from dlscale.analysis.text import RATIO_LIMITS, backend_name, percent, plural, rate, training_title
from dlscale.collectives.sharding import NONE as NOT_SHARDED

NONE, BACKEND = "{} without communication", "{} of the same backend"
PANELS = ((VERSUS_NONE, NONE, against_none), (VERSUS_BACKEND, BACKEND, against_backend))


Studied = tuple[Family, tuple[ScalingRow, ...], tuple[PlacedPrediction, ...]]


def _studied(study: Measured) -> list[Studied]:
    """Each family with its rows, and what is predicted beside them."""
    rows, points = scaling.FINDING.of(study), predicted_points.FINDING.of(study)
    return [
        (family, rows_of(rows, family), tuple(point for point in points if point.family == family))
        for family in study.families
    ]


def figure_of(
    study: Measured, family: Family, form: Form
) -> tuple[Family, Sequence[ScalingRow], Provenance, Form, Sequence[PlacedPrediction]]:
    """What figures of a family are drawn from."""
    rows = rows_of(scaling.FINDING.of(study), family)
    points = [point for point in predicted_points.FINDING.of(study) if point.family == family]
    return family, rows, study.provenance, form, points


def efficiency_plots(studied: Iterable[Studied]) -> list[Plot]:
    """One plot per family with an efficiency on more than 1 rank: against `none`, or else against the same backend."""
    plots = []
    for index, (family, rows, points) in enumerate(studied):
        value, base = (against_none, NONE) if is_scaled(rows, against_none) else (against_backend, BACKEND)
        if is_scaled(rows, value):
            plot = efficiency_plot(family, rows, points, value=value, base=base)
            plots.append(replace(plot, name=f"efficiency-{index}", title=f"Efficiency: {plot.title}"))
    return plots


def efficiency_plot(
    family: Family,
    rows: Sequence[ScalingRow],
    points: Sequence[PlacedPrediction],
    *,
    value: Value,
    base: str,
    among: Sequence[ScalingRow] = (),
) -> Plot:
    """The efficiency `value` of a family's curves over ranks, against `base`; `among` are the rows of other panels.

    Predictions are relative to 1 rank without communication alone.
    """
    curves = curves_of(rows, value)
    shown = [row for curve in curves for row in curve.rows]
    points = [point for point in points if value is against_none and value(point)]
    tops = [
        interval.center if interval.high is None else interval.high
        for row in (*shown, *points)
        if (interval := value(row))
    ]
    y = Axis(
        title="scaling efficiency [%]", kind="percent", low=0, high=max((1.1, *(1.05 * top for top in tops)))
    )
    return Plot(
        name="efficiency",
        title=training_title(family),
        says=says("Efficiency", rows, value, percent),
        x=rank_axis([*(among or shown), *points]),
        y=y,
        series=(*series_of(curves, value, say=percent, unit="block"), *predicted_series(points, value)),
        guides=(IDEAL, *wall(among or shown, y)),
        notes=(
            f"{family.constants}; vs {base.format(base_text(rows))}.",
            *without_point(rows, curves),
            *predicted_notes(points),
        ),
        table="numbers",
        tags=family_tags(family),
    )


def _either(row: ScalingRow) -> Interval | None:
    return row.efficiency_none or row.efficiency_backend


def is_scaled(rows: Sequence[ScalingRow], value: Value) -> bool:
    """Whether a row that is no base case has that efficiency."""
    return any(row.cell.num_ranks != row.base_ranks and value(row) for row in rows)


def efficiency_figure(
    family: Family,
    rows: Sequence[ScalingRow],
    provenance: Provenance,
    form: Form = SCREEN,
    predicted: Sequence[PlacedPrediction] = (),
) -> Figure | None:
    """Efficiency over ranks against both base cases, with predictions against `none`.

    None if only base cases have an efficiency.
    """
    chosen, points = form.chosen(rows), [point for point in predicted if form.draws(point.record)]
    shown = [row for curve in curves_of(chosen, _either) for row in curve.rows]
    if all(row.cell.num_ranks == row.base_ranks for row in shown):
        return None
    plots = []
    for short, base, value in PANELS:
        plot = efficiency_plot(family, chosen, points, value=value, base=base, among=shown)
        # One column of print has no room for the rest, which the caption says.
        title = _versus(short, rows) if form.printed else f"vs {base.format(base_text(rows))}"
        plots.append(replace(plot, title=title, says="base case not measured"))
    high = max(plot.y.high or 0.0 for plot in plots)
    return family_figure(
        family,
        rows,
        [row.cell for row in shown],
        provenance,
        name="efficiency",
        brief=f"Efficiency vs {NONE.format(base_text(rows))} and vs the same backend; bars: "
        f"{100 * LEVEL:.0f} % intervals.",
        words=_words(rows, shown, form),
        panels=tuple(replace(plot, x=plots[0].x, y=replace(plot.y, high=high)) for plot in plots),
        lines=scaling_lines(shown, points),
        predicted=points,
        shared=True,
    )


def _words(rows: Sequence[ScalingRow], shown: Sequence[ScalingRow], form: Form) -> Iterator[str]:
    base = shown[0].base_ranks
    ratios: list[Interval] = [
        interval
        for row in shown
        if row.cell.num_ranks != base
        for _, _, value in PANELS
        if (interval := value(row)) is not None
    ]
    yield (
        f"Efficiency (T(p)/p) / (T({base})/{base}) with T in samples/s; geometric mean over "
        f"n = {span([interval.n for interval in ratios])} blocks of launches, "
        f"bars: {RATIO_LIMITS}, of the paired log ratios."
    )
    if any("unpaired" in interval.method for interval in ratios):
        yield "Points without a common block with their base case are unpaired (see the CSV)."
    if any(interval.low is None for interval in ratios):
        yield "No bar: too few blocks."
    bases = [
        f"{backend_name(row.cell)} {rate(row.throughput)}"
        for row in rows
        if row.cell.control == "train" and row.cell.num_ranks == base and row.throughput
    ]
    if bases:
        yield f"Base cases, {base_text(rows)}, in samples/s: {'; '.join(bases)}."
    for short, _, value in PANELS:
        if missing := missing_from(form.chosen(rows), curves_of(form.chosen(rows), value)):
            yield f"No point {_versus(short, rows)}: {', '.join(missing)}."


FULL = "dlscale report --full"
RATES = ("throughput", "tokens/s")  # labels of columns
MOST_ROWS = 16  # of all tables on a screen; of more those on fewer ranks are left out


def _screen(study: Measured) -> Iterator[Block]:
    """The verdict and the trainings of each family; trainings to a target have a screen of their own."""
    rows = scaling.FINDING.of(study)
    solved = {row.family for row in solution_table.FINDING.of(study)}
    if not rows:
        yield Sentence(text="No records: nothing has been measured yet.")
    trained = {
        family: [row for row in rows_of(rows, family) if row.cell.control == "train"]
        for family in study.families
        if family not in solved
    }
    alone = [family for family, own in trained.items() if on_one_rank(own)]
    groups = [[family] for family in trained if family not in alone or len(alone) == 1]
    if len(alone) > 1:
        groups.append(alone)
    shown = [row for own in trained.values() for row in own]
    on_most = len(shown) > MOST_ROWS
    if on_most and any(row.cell.shard != NOT_SHARDED for row in shown):  # several curves of each backend
        groups, shown = [list(trained)], [row for own in trained.values() for row in on_most_ranks(own)]
    for group in groups:
        yield from _group(group, [row for family in group for row in trained[family]], study, on_most=on_most)
    if noted := sum(bool(row.on_launches) for row in shown):
        have = "has" if noted == 1 else "have"
        yield Sentence(text=f"{plural(noted, 'cell')} {have} unsteady, short or uneven launches: {FULL}")
    if shown:
        yield Sentence(text=_legend(shown, on_most=on_most), quiet=True)


def _group(
    families: Sequence[Family], rows: Sequence[ScalingRow], study: Measured, *, on_most: bool
) -> Iterator[Block]:
    """A family with its verdict and numbers, or several that share a table.

    Those of the most ranks alone where `on_most`, without what a screen has no room for.
    """
    titles, constants = (
        _common([text(family) for family in families]) for text in (training_title, lambda one: one.constants)
    )
    several = f"{plural(len(families), 'training')}: " if len(families) > 1 else ""
    yield Sentence(text=f"{several}{titles}", strong=True)
    yield Sentence(text=constants)
    yield from scaling.unchecked(row.cell for row in rows)
    contrasts, uses = study.once(study_contrasts), memory.FINDING.of(study)
    together = on_most and len(families) > 1 and any(row.cell.shard != NOT_SHARDED for row in rows)
    if not together:
        yield from (Sentence(text=text) for text in verdict(rows, contrasts))
        if rows:
            yield _table(on_most_ranks(rows) if on_most else rows, families, uses)
        return
    last = {family: on_most_ranks(row for row in rows if row.family == family) for family in families}
    for family, own in last.items():
        yield Sentence(text=f"{training_title(family).split(',')[0]}: {verdict(own, contrasts)[0]}")
    every = [row for own in last.values() for row in own]
    left_out = ("notes", *(("ranks",) if len({row.cell.num_ranks for row in every}) == 1 else ()))
    yield _table(every, families, uses, without=(*left_out, *(RATES if _relates(every) else ())))


def _common(texts: Sequence[str]) -> str:
    """The parts, between commas, that all of these texts have."""
    return ", ".join(part for part in texts[0].split(", ") if all(part in text.split(", ") for text in texts))


def _own_column(families: Sequence[Family]) -> Column[ScalingRow]:
    """What tells a row's family from the others, without what the name of its curve says."""
    parts = {
        family: [
            *training_title(family).split(", "),
            f"batch {family.batch}",
            *family.constants.split(", ")[1:],
        ]
        for family in families
    }

    def name(row: ScalingRow) -> str:
        said = backend_name(row.cell).split(", ")
        own = [part for part in parts[row.family] if not all(part in other for other in parts.values())]
        return ", ".join(part for part in own if part not in said)

    return Column("training", name, numeric=False)


def _table(
    rows: Sequence[ScalingRow],
    families: Sequence[Family],
    uses: Sequence[MemoryUse],
    *,
    without: Collection[str] = (),
) -> Table:
    """The numbers with the base case's ranks in the heading; notes on single launches are counted elsewhere.

    Where trainings are sharded, a rank's bytes of state stand beside the efficiency.
    """
    told = [
        replace(row, notes=tuple(note for note in row.notes if note not in (*row.on_launches, *row.history)))
        for row in rows
    ]
    if _lacks_none(rows):
        told = [
            replace(row, notes=tuple(note for note in row.notes if note != _no_none(row))) for row in told
        ]
    left_out = {*without, *(() if any(row.notes for row in told) else ("notes",))}
    if not _relates(rows):
        left_out |= {VERSUS_NONE, VERSUS_BACKEND}
    elif _lacks_none(rows):
        left_out |= {VERSUS_NONE}
    numbers = SCALING
    if state := state_column(use for use in uses if use.family in families):
        left_out |= set() if _lacks_none(rows) else {VERSUS_BACKEND}
        place = [column.label for column in numbers.columns].index(VERSUS_BACKEND) + 1
        numbers = replace(numbers, columns=(*numbers.columns[:place], state, *numbers.columns[place:]))
    if len(families) > 1:
        numbers = replace(numbers, columns=(_own_column(families), *numbers.columns))
    table = brief(numbers.of(told), without=left_out)
    columns = tuple(replace(column, label=_versus(column.label, rows)) for column in table.columns)
    return replace(table, columns=columns)


def _versus(label: str, rows: Sequence[ScalingRow]) -> str:
    """The heading of an efficiency, with the ranks of the base case where it names them."""
    return f"vs {base_text(rows)}" if label == VERSUS_NONE else label


def _legend(rows: Sequence[ScalingRow], *, on_most: bool) -> str:
    levels = {
        round(row.throughput.level, 3) for row in rows if row.throughput and row.throughput.low is not None
    }
    other_levels = ", ".join(f"{100 * level:.1f} %" for level in sorted(levels - {LEVEL}))
    brackets = f"{100 * LEVEL:.0f} % intervals of typical launches"
    brackets += f" (samples/s: {other_levels})" if other_levels else ""
    vs = f"vs {base_text(rows)}: samples/s per rank, relative to no communication. " if _relates(rows) else ""
    if _lacks_none(rows):
        vs = f"Not relative to no communication: none on {base_text(rows)} was not measured. "
    others = f" All others: {FULL}." if on_most else ""
    sharded = any(row.cell.shard != NOT_SHARDED for row in rows)
    state = "state: a rank's weights, gradients, optimizer. " if sharded else ""
    return f"{vs}{state}[ ]: {brackets}. n: successful / planned launches.{others}"


def _no_none(row: ScalingRow) -> str:
    """The note of a row without the base case that has no communication, which the legend says once."""
    return base_of(row.cell, row.base_ranks).not_measured


def _lacks_none(rows: Sequence[ScalingRow]) -> bool:
    """Whether efficiencies are relative to the same backend alone, as nothing was measured without communication."""
    without = all(row.cell.backend != "none" and row.efficiency_none is None for row in rows)
    return without and any(row.efficiency_backend for row in rows)


def _relates(rows: Iterable[ScalingRow]) -> bool:
    """Whether a row has an efficiency that is not 1 by definition."""
    ratios = (value(row) for row in rows for _, _, value in PANELS)
    return any(ratio is not None and ratio.method != BASE_CASE for ratio in ratios)


EFFICIENCY = Finding(
    name="efficiency",
    title="Efficiency and throughput",
    answers=True,
    compute=_studied,
    plots=efficiency_plots,
    screen=_screen,
    figures={"efficiency": lambda study, family, form: efficiency_figure(*figure_of(study, family, form))},
)
FINDINGS = (EFFICIENCY,)
