"""The gain of each step of a ladder, which turns settings on one after the other, over the step before.

A gain is a ratio of throughputs from paired blocks; whether it is one is decided by the declared contrasts, so that
all steps are corrected together. What a step gains depends on what was on before it: on the order of the ladder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dlscale.analysis.declare import (
    NOTHING,
    Block,
    Column,
    Sentence,
    TableOf,
    Value,
    brief,
    shown_interval,
    tags_of,
    training_columns,
)
from dlscale.analysis.families import Family
from dlscale.analysis.finding import Finding
from dlscale.analysis.findings.contrast_declaration import sides_of
from dlscale.analysis.findings.contrast_table import probability_text
from dlscale.analysis.findings.contrasts import Contrast, Contrasts, study_contrasts
from dlscale.analysis.launches import CellLaunches
from dlscale.analysis.measured import Measured
from dlscale.analysis.records import setting_columns
from dlscale.analysis.statistics import LEVEL, Interval, block_ratio, median_interval
from dlscale.analysis.text import interval_columns, plural, points, share_text
from dlscale.analysis.variants import STEP, Variants
from dlscale.benchmarks.records.record import Cell

Rates = dict[tuple[str, int], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderStep:
    """A step: what it adds, its throughput, and its gains, which are shares of what they are relative to."""

    index: int
    adds: str
    cell: Cell
    family: Family
    throughput: Interval | None  # samples per second; None if no launch gave a number
    total: Interval | None  # over the first step; None for the first one, or without a common block
    contrast: Contrast | None  # with the step before; None for the first one

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """The measured steps of one backend on one number of ranks, in the ladder's order."""

    num_ranks: int
    evidence: str
    steps: tuple[LadderStep, ...]

    @property
    def cell(self) -> Cell:
        """The first step's."""
        return self.steps[0].cell

    @property
    def order(self) -> str:
        """`plain > cycle_time_ms=5 > compiled`."""
        return " > ".join(step.adds for step in self.steps)


def ladders(measured: Iterable[CellLaunches], variants: Variants, declared: Contrasts) -> Iterator[Ladder]:
    """A ladder per training, backend, number of ranks and kind of evidence; of most ranks first."""
    if declared.factor != STEP:
        return
    contrasts = {
        _key(contrast.contender.cell, contrast.contender.evidence): contrast for contrast in declared.found
    }
    groups: dict[tuple[object, ...], list[tuple[int, CellLaunches, str]]] = {}
    for launches in measured:
        cell, step = launches.cell, variants.step(launches.cell)
        if cell.control == "train" and cell.num_ranks > 1 and cell.backend != "none" and step is not None:
            for side in sides_of(launches):
                key = (
                    cell.workload,
                    cell.framework,
                    cell.method,
                    cell.num_servers,
                    cell.num_ranks,
                    side.evidence,
                )
                groups.setdefault(key, []).append((step, launches, side.evidence))
    for members in sorted(groups.values(), key=lambda own: (-own[0][1].cell.num_ranks, own[0][1].id)):
        members.sort(key=lambda member: member[0])
        first: Rates = {}
        steps: list[LadderStep] = []
        for index, launches, kind in members:
            rates = launches.only(kind).by_block("samples_per_second")
            total = block_ratio(rates, first).excess() if rates.keys() & first.keys() else None
            first = first or rates
            steps.append(
                LadderStep(
                    index=index,
                    adds=variants.step_text(index),
                    cell=launches.cell,
                    family=launches.family,
                    throughput=median_interval(list(rates.values())) if rates else None,
                    total=total if steps else None,
                    contrast=contrasts.get(_key(launches.cell, kind)),
                )
            )
        yield Ladder(num_ranks=members[0][1].cell.num_ranks, evidence=members[0][2], steps=tuple(steps))


def _key(cell: Cell, evidence: str) -> tuple[str, str]:
    return cell.id, evidence


ORDER_MATTERS = (
    "What a step gains depends on the steps before it: in another order the same settings gain other amounts."
)


def ladder_sentences(ladder: Ladder) -> list[str]:
    """In words: the gain in total, the steps that gain or lose, and those that are indistinguishable from nothing."""
    last, sentences = ladder.steps[-1], []
    if last.total is not None:
        sentences.append(
            f"Measured on {plural(ladder.num_ranks, 'rank')}, {plural(len(ladder.steps) - 1, 'step')} together: "
            f"throughput {share_text(last.total, sign='+')}."
        )
    for verdict, text in (("faster", "Gain"), ("slower", "Loss")):
        named = [
            f"{step.adds} {share_text(step.gain, sign='+')}"
            for step in ladder.steps
            if step.verdict == verdict
        ]
        if named:
            sentences.append(f"{text}: {', '.join(named)}.")
    if nothing := [step.adds for step in ladder.steps if step.verdict == "no difference"]:
        sentences.append(f"Indistinguishable from nothing: {', '.join(nothing)}.")
    reasons: dict[str, list[str]] = {}
    for step in ladder.steps:
        if step.contrast and step.verdict == "cannot be shown":
            reasons.setdefault(step.contrast.reason, []).append(step.adds)
    sentences += [f"Insufficient data on {', '.join(names)}: {reason}." for reason, names in reasons.items()]
    return [*sentences, ORDER_MATTERS]


def ladder_title(ladder: Ladder) -> str:
    """`Ladder of ring on 2 ranks: hep_cnn tiny, torch, weak scaling on local`."""
    family = ladder.steps[0].family
    kind = "" if ladder.evidence == "measured" else f" ({ladder.evidence})"
    ranks = plural(ladder.num_ranks, "rank")
    return (
        f"Ladder of {ladder.cell.method} on {ranks}{kind}: {family.workload} {family.preset}, {family.framework}, "
        f"{family.scaling_mode} scaling on {family.system}"
    )


Rung = tuple[Ladder, LadderStep]


def _p(rung: Rung) -> Value:
    p = rung[1].contrast.p_adjusted if rung[1].contrast else None
    return NOTHING if p is None else Value(text=probability_text(p), order=p)


def _signed(share: float) -> str:
    return points(share, sign="+")


LADDER = TableOf[Rung](
    name="ladder",
    caption="Gain of each step",
    columns=(
        *training_columns(lambda rung: rung[0].steps[0].family),
        Column("ranks", lambda rung: rung[0].num_ranks, detail=True),
        Column("step", lambda rung: rung[1].index),
        Column("adds", lambda rung: rung[1].adds, numeric=False),
        Column("throughput", lambda rung: rung[1].throughput, unit="samples/s"),
        Column("gain", lambda rung: shown_interval(rung[1].gain, _signed), unit="%"),
        Column("in total", lambda rung: shown_interval(rung[1].total, _signed), unit="%"),
        Column("corrected p", _p, detail=True),
        Column("n", lambda rung: rung[1].throughput.n if rung[1].throughput else 0),
        Column("verdict", lambda rung: rung[1].verdict or "start", numeric=False),
    ),
    data=lambda rung: ladder_row(*rung),
    legend=(
        "Gain: of throughput over the step before, in total: over the first step, both from paired blocks of launches "
        f"with {100 * LEVEL:.0f} % t intervals. Verdict: sign-flip test of the gain, with Holm's correction over all "
        "steps and numbers of ranks."
    ),
    tags=lambda rung: tags_of(rung[1].cell),
)


def rungs(found: Iterable[Ladder]) -> list[Rung]:
    """The rows of the table."""
    return [(ladder, step) for ladder in found for step in ladder.steps]


def ladder_rows(found: Sequence[Ladder]) -> list[dict[str, Any]]:
    """One flat row per step: gains are shares, of throughput."""
    return [ladder_row(*rung) for rung in rungs(found)]


def ladder_row(ladder: Ladder, step: LadderStep) -> dict[str, Any]:
    """The row of one step."""
    contrast = step.contrast
    return {
        **setting_columns(step.family, step.cell),
        "evidence": ladder.evidence,
        "order": ladder.order,
        "step": step.index,
        "adds": step.adds,
        **interval_columns("samples_per_second", step.throughput),
        **interval_columns("gain", step.gain),
        **interval_columns("gain_in_total", step.total),
        "p_value": contrast and contrast.p_value,
        "p_adjusted": contrast and contrast.p_adjusted,
        "verdict": contrast.verdict if contrast else "start",
        "reason": (contrast.reason or None) if contrast else None,
    }


def _ladders(study: Measured) -> tuple[Ladder, ...]:
    declared = study.once(study_contrasts)
    return tuple(ladders(study.launches, study.variants, declared)) if study.variants and declared else ()


def _sentences(found: Sequence[Ladder]) -> Iterator[Sentence]:
    for ladder in found:
        several = f"{ladder_title(ladder)}. " if len(found) > 1 else ""
        yield Sentence(text=several + " ".join(ladder_sentences(ladder)), tags=tags_of(ladder.cell))


def _screen(study: Measured) -> Iterator[Block]:
    for ladder in FINDING.of(study):
        yield Sentence(text=ladder_title(ladder), strong=True)
        yield Sentence(text=ladder.steps[0].family.constants)
        yield from (Sentence(text=text) for text in ladder_sentences(ladder))
        yield brief(LADDER.of(rungs([ladder])))
    if FINDING.of(study):
        yield Sentence(text=LADDER.legend, quiet=True)


FINDING = Finding(
    name="ladders",
    title="Gain of each step",
    compute=_ladders,
    sentences=_sentences,
    more=lambda found: (LADDER.of(rungs(found)),),
    screen=_screen,
    data=lambda found: {"ladders": ladder_rows(found)},
)
FINDINGS = (FINDING,)
