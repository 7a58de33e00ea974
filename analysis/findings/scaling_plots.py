"""Efficiency over ranks: a plot per family, and the trainings of one screen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from dlscale.analysis.curves import Value, curves_of
from dlscale.analysis.declare import Axis, Block, Guide, Plot, Sentence, brief, family_tags
from dlscale.analysis.families import Family
from dlscale.analysis.finding import Finding
from dlscale.analysis.findings import ladder, predicted_points, scaling, solution_table
from dlscale.analysis.findings.contrasts import study_contrasts
from dlscale.analysis.findings.curve_plots import (
    IDEAL,
    against_backend,
    against_none,
    rank_axis,
    says,
    series_of,
    without_point,
)
from dlscale.analysis.findings.predicted_points import PlacedPrediction, predicted_notes, predicted_series
from dlscale.analysis.findings.scaling import SCALING, ScalingRow, base_text, rows_of
from dlscale.analysis.findings.scaling_figures import family_efficiency
from dlscale.analysis.findings.verdict import verdict
from dlscale.analysis.measured import Measured
from dlscale.analysis.statistics import LEVEL
from dlscale.analysis.text import (
    backend_name,
    percent,
    training_title,
)

NONE, BACKEND = "{} without a communication layer", "{} of the same backend"


Studied = tuple[Family, tuple[ScalingRow, ...], tuple[PlacedPrediction, ...]]


def _studied(study: Measured) -> list[Studied]:
    """Each family with its rows, and what is predicted beside them."""
    rows, points = scaling.FINDING.of(study), predicted_points.FINDING.of(study)
    return [
        (family, rows_of(rows, family), tuple(point for point in points if point.family == family))
        for family in study.families
    ]


def efficiency_plots(studied: Iterable[Studied]) -> list[Plot]:
    """One plot per family with an efficiency on more than 1 rank: against (a), or against (b) if there is no (a)."""
    plots = []
    for index, (family, rows, points) in enumerate(studied):
        value, base = (against_none, NONE) if is_scaled(rows, against_none) else (against_backend, BACKEND)
        bounded = [row for row in rows if row.limits]
        guides = (IDEAL, *_guides(bounded))
        if is_scaled(rows, value):
            own = points if value is against_none else ()
            name = f"efficiency-{index}"
            plot = efficiency_plot(name, family, rows, own, value=value, base=base, guides=guides)
            note = _not_known(bounded) if bounded else ""
            plots.append(replace(plot, notes=(*plot.notes, note)) if note else plot)
    return plots


def efficiency_plot(
    name: str,
    family: Family,
    rows: Sequence[ScalingRow],
    points: Sequence[PlacedPrediction],
    *,
    value: Value,
    base: str,
    guides: tuple[Guide, ...],
) -> Plot:
    """The efficiency `value` of a family's curves over ranks, against `base`."""
    curves = curves_of(rows, value)
    shown = [row for curve in curves for row in curve.rows]
    points = [point for point in points if value(point)]
    tops = [
        interval.center if interval.high is None else interval.high
        for row in (*shown, *points)
        if (interval := value(row))
    ]
    return Plot(
        name=name,
        title=training_title(family),
        says=says("Efficiency", rows, value, percent),
        x=rank_axis([*shown, *points]),
        y=Axis(title="efficiency [%]", kind="percent", low=0, high=max(1.1, 1.05 * max(tops))),
        series=(
            *series_of(curves, value, say=percent, unit="block"),
            *predicted_series(points, value, [curve.name for curve in curves]),
        ),
        guides=guides,
        notes=(
            f"{family.constants}; against {base.format(base_text(rows))}.",
            *without_point(rows, curves),
            *predicted_notes(points),
        ),
        table="numbers",
        tags=family_tags(family),
    )


def is_scaled(rows: Sequence[ScalingRow], value: Value) -> bool:
    """Whether a row that is no base case has that efficiency."""
    return any(row.cell.num_ranks != row.base_ranks and value(row) for row in rows)


LIMIT_KINDS = ("wire", "memory", "loader")


def _guides(rows: Sequence[ScalingRow]) -> Iterator[Guide]:
    """A line per kind of bound, or one per backend if backends differ."""
    lines: dict[tuple[str, tuple[tuple[float, float], ...]], list[str]] = {}
    for name in dict.fromkeys(backend_name(row.cell) for row in rows):
        own = sorted(
            (row for row in rows if backend_name(row.cell) == name), key=lambda row: row.cell.num_ranks
        )
        for kind in LIMIT_KINDS:
            known = {
                float(row.cell.num_ranks): limit.efficiency
                for row in own
                for limit in row.limits
                if limit.kind == kind and limit.efficiency is not None
            }
            if known:
                lines.setdefault((kind, tuple(known.items())), []).append(name)
    kinds = [kind for kind, _ in lines]
    for (kind, points), names in lines.items():
        whose = f" ({', '.join(names)})" if kinds.count(kind) > 1 else ""
        yield Guide(label=f"{kind} bound{whose}", points=points, bound=True)


def _not_known(rows: Sequence[ScalingRow]) -> str:
    """Why some kinds of bound are missing, with the reasons given on the most ranks; empty if none is."""
    most = max(rows, key=lambda row: row.cell.num_ranks)
    known = {limit.kind for row in rows for limit in row.limits if limit.efficiency is not None}
    reasons = [f"{limit.kind} ({limit.words})" for limit in most.limits if limit.kind not in known]
    return f"No bound by {', '.join(reasons)}." if reasons else ""


FULL = "dlscale report --full"


def _screen(study: Measured) -> Iterator[Block]:
    """The verdict and the trainings of each family; a ladder or trainings to a target have screens of their own."""
    rows, contrasts = scaling.FINDING.of(study), study.once(study_contrasts)
    solved = {row.family for row in solution_table.FINDING.of(study)}
    shown: list[ScalingRow] = []
    if not rows:
        yield Sentence(text="No records: nothing has been measured yet.")
    for family in () if ladder.FINDING.of(study) else study.families:
        own = [row for row in rows_of(rows, family) if row.cell.control == "train"]
        if family in solved:
            continue
        yield Sentence(text=family.title, strong=True)
        yield Sentence(text=family.constants)
        if pair := next((row.pair for row in own if row.pair and not row.pair.comparable), None):
            yield Sentence(text=pair.verdict, strong=True)
        yield from scaling.unchecked(row.cell for row in own)
        yield from (Sentence(text=text) for text in verdict(own, contrasts))
        if own:
            yield brief(SCALING.of(own), without=("memory",))
        shown += own
    if shown:
        yield Sentence(text=_legend(shown), quiet=True)


def _legend(rows: Sequence[ScalingRow]) -> str:
    levels = {
        round(row.throughput.level, 3) for row in rows if row.throughput and row.throughput.low is not None
    }
    other_levels = ", ".join(f"{100 * level:.1f} %" for level in sorted(levels - {LEVEL}))
    brackets = f"{100 * LEVEL:.0f} % intervals" + (f" (samples/s: {other_levels})" if other_levels else "")
    return (
        f"Efficiency: samples/s per rank over that of {base_text(rows)}, (a) of none, without communication, (b) of "
        f"the same backend. [ ]: {brackets}. n: launches that gave a number, of those planned. Controls, start-up, "
        f"energy, bounds: {FULL}, and the page."
    )


EFFICIENCY = Finding(
    name="efficiency",
    title="Efficiency",
    compute=_studied,
    plots=efficiency_plots,
    screen=_screen,
    figures={"efficiency": family_efficiency},
)
FINDINGS = (EFFICIENCY,)
