"""The gain of each step of a ladder, which turns settings on one after the other, over the step before.

A gain is a ratio of throughputs from paired blocks; whether it is one is decided by the declared contrasts, so that
all steps are corrected together. What a step gains depends on what was on before it: on the order of the ladder.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from dlscale.analysis.declare import NOTHING, Column, Sentence, TableOf, Value, brief, shown_interval, tags_of
from dlscale.analysis.families import Family
from dlscale.analysis.finding import Finding, tokens_column, training_columns
from dlscale.analysis.findings.contrast_declaration import Side, sides_of
from dlscale.analysis.findings.contrast_table import probability_text
from dlscale.analysis.findings.contrasts import Contrast, study_contrasts
from dlscale.analysis.findings.small_print import solution_origin, span
from dlscale.analysis.form import Form
from dlscale.analysis.measured import Measured
from dlscale.analysis.plots import Axis, Block, Figure, Guide, Plot, Point, Series
from dlscale.analysis.records import setting_columns, tokens_per_second
from dlscale.analysis.statistics import Interval, block_ratio, median_interval
from dlscale.analysis.text import (
    RATIO_LIMITS,
    interval_columns,
    plural,
    points,
    rate,
    share_text,
    training_title,
)
from dlscale.analysis.variants import STEP
from dlscale.benchmarks.records.cell import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step: what it adds, its throughput, and its gains, which are shares of what they are relative to."""

    index: int
    adds: str
    order: str  # of all steps of its ladder: `plain > cycle_time_ms=5 > compiled`
    side: Side
    first: Side  # of its ladder
    contrast: Contrast | None  # with the step before; None for the first one

    @property
    def cell(self) -> Cell:
        return self.side.cell

    @property
    def family(self) -> Family:
        """What does not change along its curve."""
        return self.side.family

    @property
    def throughput(self) -> Interval | None:
        """Samples per second; None if no launch gave a number."""
        return median_interval(list(self.side.rates.values())) if self.side.rates else None

    @property
    def total(self) -> Interval | None:
        """Over the first step; None for the first one, or without a common block."""
        rates, first = self.side.rates, self.first.rates
        if self.side is self.first or not rates.keys() & first.keys():
            return None
        return block_ratio(rates, first).excess()

    @property
    def gain(self) -> Interval | None:
        """Over the step before; None for the first one, or if one of the two gave no number."""
        return self.contrast.ratio.excess() if self.contrast and self.contrast.ratio else None

    @property
    def verdict(self) -> str:
        """`faster`, `slower`, `no difference` (of 2 % or more, or shown), `cannot be shown`; empty for the first."""
        if self.contrast is None:
            return ""
        verdict = self.contrast.verdict
        return "no difference" if verdict in ("alike", "not shown") else verdict


def ladder_steps(study: Measured) -> list[Step]:
    """The steps of every training, backend, number of ranks and kind of evidence, in order; of most ranks first."""
    declared, variants = study.once(study_contrasts), study.variants
    if declared is None or declared.factor != STEP:
        return []
    contrasts = {(one.contender.cell.id, one.contender.evidence): one for one in declared.found}
    groups: dict[tuple[object, ...], list[tuple[int, Side]]] = {}
    for side in (side for launches in study.launches for side in sides_of(launches)):
        index = variants.step(side.cell)
        if side.cell.num_ranks > 1 and side.cell.backend != "none" and index is not None:
            groups.setdefault(_ladder_of(side), []).append((index, side))
    found: list[Step] = []
    for members in sorted(groups.values(), key=lambda own: (-own[0][1].cell.num_ranks, own[0][1].cell.id)):
        members.sort(key=lambda member: member[0])
        order = " > ".join(variants.step_text(index) for index, _ in members)
        first = next((side for _, side in members if side.rates), members[0][1])
        found += [
            Step(
                index=index,
                adds=variants.step_text(index),
                order=order,
                side=side,
                first=first,
                contrast=contrasts.get((side.cell.id, side.evidence)),
            )
            for index, side in members
        ]
    return found


def _ladder_of(side: Side) -> tuple[object, ...]:
    cell = side.cell
    return cell.workload, cell.framework, cell.carrier, cell.num_servers, cell.num_ranks, side.evidence


def ladders(steps: Iterable[Step]) -> list[list[Step]]:
    """The steps of each ladder."""
    return [list(group) for _, group in groupby(steps, key=lambda step: _ladder_of(step.side))]


ORDER_MATTERS = (
    "What a step gains depends on the steps before it: in another order the same settings gain other amounts."
)


def ladder_sentences(steps: Sequence[Step]) -> list[str]:
    """In words: the gain in total, the steps that gain or lose, and those that are indistinguishable from nothing."""
    last, sentences = steps[-1], []
    if last.total is not None:
        sentences.append(
            f"Measured on {plural(last.cell.num_ranks, 'rank')}, {plural(len(steps) - 1, 'step')} together: "
            f"throughput {share_text(last.total, sign='+')}."
        )
    for verdict, text in (("faster", "Gain"), ("slower", "Loss")):
        named = [
            f"{step.adds} {share_text(step.gain, sign='+')}" for step in steps if step.verdict == verdict
        ]
        if named:
            sentences.append(f"{text}: {', '.join(named)}.")
    if nothing := [step.adds for step in steps if step.verdict == "no difference"]:
        sentences.append(f"Indistinguishable from nothing: {', '.join(nothing)}.")
    reasons: dict[str, list[str]] = {}
    for step in steps:
        if step.contrast and step.verdict == "cannot be shown":
            reasons.setdefault(step.contrast.reason, []).append(step.adds)
    sentences += [f"Insufficient data on {', '.join(names)}: {reason}." for reason, names in reasons.items()]
    return [*sentences, ORDER_MATTERS]


def ladder_title(steps: Sequence[Step]) -> str:
    """`Ladder of ring on 2 ranks: HEP-CNN tiny, torch, weak scaling on local`."""
    first, family = steps[0], steps[0].family
    kind = "" if first.side.evidence == "measured" else f" ({first.side.evidence})"
    ranks = plural(first.cell.num_ranks, "rank")
    return (
        f"Ladder of {first.cell.carrier} on {ranks}{kind}: {family.workload} {family.preset}, {family.framework}, "
        f"{family.scaling_mode} scaling on {family.system}"
    )


def step_row(step: Step) -> dict[str, Any]:
    """The row of a step: gains are shares, of throughput."""
    contrast = step.contrast
    return {
        **setting_columns(step.family, step.cell),
        "evidence": step.side.evidence,
        "order": step.order,
        "step": step.index,
        "adds": step.adds,
        **interval_columns("samples_per_second", step.throughput),
        **interval_columns("tokens_per_second", tokens_per_second(step.cell, step.throughput)),
        **interval_columns("gain", step.gain),
        **interval_columns("gain_in_total", step.total),
        "p_value": contrast and contrast.p_value,
        "p_adjusted": contrast and contrast.p_adjusted,
        "verdict": contrast.verdict if contrast else "start",
        "reason": (contrast.reason or None) if contrast else None,
    }


def _p(step: Step) -> Value:
    p = step.contrast.p_adjusted if step.contrast else None
    return NOTHING if p is None else Value(text=probability_text(p), order=p)


def _signed(share: float) -> str:
    return points(share, sign="+")


LADDER = TableOf[Step](
    name="ladder",
    caption="Gain of each step",
    columns=(
        *training_columns(lambda step: step.family),
        Column("ranks", lambda step: step.cell.num_ranks, detail=True),
        Column("step", lambda step: step.index),
        Column("adds", lambda step: step.adds, numeric=False),
        Column("throughput", lambda step: step.throughput, unit="samples/s"),
        tokens_column(lambda step: step.cell, lambda step: step.throughput),
        Column("gain", lambda step: shown_interval(step.gain, _signed), unit="%"),
        Column("in total", lambda step: shown_interval(step.total, _signed), unit="%"),
        Column("corrected p", _p, detail=True),
        Column("n", lambda step: step.throughput.n if step.throughput else 0),
        Column("verdict", lambda step: step.verdict or "start", numeric=False),
    ),
    data=step_row,
    legend=(
        "Gain: of throughput over the step before, in total: over the first step, both from paired blocks of launches "
        f"with {RATIO_LIMITS}. Verdict: sign-flip test of the gain, with Holm's correction over all "
        "steps and numbers of ranks."
    ),
    tags=lambda step: tags_of(step.cell),
)

# The series of the figure, by verdict.
KINDS = {"": "all steps", "faster": "gain", "slower": "loss", "no difference": "not shown to be either"}
NAME_CHARACTERS = 18  # of a step, in a line below the axis


def ladder_figure(study: Measured, family: Family, form: Form) -> Figure | None:
    """A panel for each ladder that begins in this family; None if none has a gain."""
    own = [
        steps
        for steps in ladders(FINDING.of(study))
        if steps[0].family == family and form.draws(steps[0].cell) and any(step.gain for step in steps)
    ]
    if not own:
        return None
    counts = [step.gain.n for steps in own for step in steps if step.gain]
    orders = "; ".join(dict.fromkeys(steps[0].order for steps in own))
    starts = ", ".join(rate(steps[0].throughput) for steps in own)
    text = (
        f"Each number is a step's gain over the step before, over n = {span(counts)} blocks of launches, with "
        f"{RATIO_LIMITS}; a point is that gain at the height the steps before it "
        f"have reached. Gain or loss: claimed after Holm's correction over all steps. Order: {orders}. {ORDER_MATTERS}"
    )
    return Figure(
        name="ladder",
        title=ladder_title(own[0]) if len(own) == 1 else f"Ladders: {training_title(family)}",
        subtitle=f"{family.constants}; step 0: {own[0][0].adds}, {starts} samples/s",
        small_print=(text, solution_origin(study.provenance)),
        panels=tuple(_plot(steps, titled=len(own) > 1) for steps in own),
        num_rows=len(own),
        rows=[step_row(step) for steps in own for step in steps],
    )


def _plot(steps: Sequence[Step], *, titled: bool) -> Plot:
    """A point for each step after the first, and one for all; gains multiply, so that heights add up."""
    drawn: dict[str, list[Point]] = {}
    level, stairs, names = 0.0, [(0.0, 0.0)], []
    for place, step in enumerate(steps[1:], 1):
        names.append(f"{step.index}: + {step.adds}")
        if gain := step.gain:
            kind = step.verdict if step.verdict in KINDS else "no difference"
            label = share_text(gain, sign="+")
            drawn.setdefault(kind, []).append(_point(place, level, gain.times(1 + level), label))
            level += gain.center * (1 + level)
        stairs += [(float(place), stairs[-1][1]), (float(place), level)]
    names.append(KINDS[""])
    if total := steps[-1].total:
        drawn[""] = [_point(len(steps), 0.0, total, share_text(total, sign="+"))]
    ticks = tuple(
        (float(place), textwrap.fill(name, NAME_CHARACTERS, break_on_hyphens=False))
        for place, name in enumerate(names, 1)
    )
    return Plot(
        name="ladder",
        title=f"{steps[0].cell.method} on {plural(steps[0].cell.num_ranks, 'rank')}" if titled else "",
        says=" ".join(ladder_sentences(steps)),
        x=Axis(title="", ticks=ticks, low=0.5, high=len(steps) + 1.0),
        y=Axis(title="throughput relative to step 0 [%]", kind="percent"),
        series=tuple(
            Series(name=name, look=name, evidence=steps[0].side.evidence, points=tuple(drawn[kind]))
            for kind, name in KINDS.items()
            if kind in drawn
        ),
        guides=(Guide(label="step 0", y=0.0), Guide(label="steps so far", points=tuple(stairs))),
    )


def _point(place: int, level: float, change: Interval, label: str) -> Point:
    low = None if change.low is None else level + change.low
    high = None if change.high is None else level + change.high
    return Point(x=place, y=level + change.center, low=low, high=high, label=label)


def _sentences(steps: Sequence[Step]) -> Iterator[Sentence]:
    found = ladders(steps)
    for own in found:
        several = f"{ladder_title(own)}. " if len(found) > 1 else ""
        yield Sentence(text=several + " ".join(ladder_sentences(own)), tags=tags_of(own[0].cell))


def _screen(study: Measured) -> Iterator[Block]:
    for own in ladders(FINDING.of(study)):
        yield Sentence(text=ladder_title(own), strong=True)
        yield Sentence(text=own[0].family.constants)
        yield from (Sentence(text=text) for text in ladder_sentences(own))
        yield brief(LADDER.of(own))
    if FINDING.of(study):
        yield Sentence(text=LADDER.legend, quiet=True)


FINDING = Finding(
    name="ladders",
    title="Gain of each step",
    answers=True,
    compute=ladder_steps,
    table=LADDER,
    sentences=_sentences,
    screen=_screen,
    figures={"ladder": ladder_figure},
)
FINDINGS = (FINDING,)
