"""Where the speed goes: the parts of the loss of each backend, in sentences, rows, a table and a figure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal

from dlscale.analysis.declare import Column, Sentence, TableOf, Value, shown_interval, tags_of
from dlscale.analysis.families import Family, on_most_ranks
from dlscale.analysis.finding import Finding, place_columns
from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.contrast_declaration import level_of
from dlscale.analysis.findings.interference import is_busy
from dlscale.analysis.findings.scaling import rows_of
from dlscale.analysis.findings.small_print import family_figure, span
from dlscale.analysis.findings.waterfall_parts import (
    FIRST_NAMES,
    GATHERING,
    HALOS,
    INPUT,
    Part,
    Waterfall,
    is_loss,
    part_name,
    waterfalls_of,
)
from dlscale.analysis.form import Form
from dlscale.analysis.measured import Measured
from dlscale.analysis.plots import IN_TOTAL, Block, Figure, Loss, Losses
from dlscale.analysis.plots import Part as ShownPart
from dlscale.analysis.records import attributes, method_columns
from dlscale.analysis.statistics import LEVEL, MIN_BLOCKS, Interval
from dlscale.analysis.text import (
    RATIO_LIMITS,
    backend_name,
    interval_columns,
    listed,
    number,
    percent,
    plural,
    points,
    share_text,
    training_title,
    workload_title,
)
from dlscale.collectives.sharding import NONE


def waterfall_rows(waterfalls: Iterable[Waterfall]) -> list[dict[str, Any]]:
    """One flat row per part, in the order of the staircase; for a cell without parts one row with `reason`.

    `loss` is a part's share of the ideal speed, `seconds` its share of a step; over the rows of a cell they add up to
    1 - `efficiency` and to `measured_seconds` - `ideal_seconds`. `loss_by_controls` is the loss before the input stall
    is kept within `bound_low` and `bound_high`. `verdict` is "largest", "not separable" from it, "smaller" or "gain";
    about `launches_needed` would separate them.
    """
    return [_part_row(waterfall, part) for waterfall in waterfalls for part in waterfall.parts or (None,)]


def _part_row(waterfall: Waterfall, part: Part | None) -> dict[str, Any]:
    bound = waterfall.bound if part and part.names == (INPUT,) else None
    return {
        "system": waterfall.family.system,
        **waterfall.cell.model_dump(exclude={"control"}),
        **method_columns(waterfall.cell),
        "evidence": waterfall.evidence,
        **interval_columns("efficiency", waterfall.efficiency),
        **attributes(waterfall, "ideal_seconds measured_seconds"),
        **name_columns(part.names if part else ()),
        **interval_columns("loss", part.loss if part else None),
        **interval_columns("seconds", part.seconds if part else None),
        "loss_by_controls": part.by_controls if part else None,
        "bound_low": bound.low if bound and math.isfinite(bound.low) else None,
        "bound_high": bound and bound.high,
        "verdict": _verdict(waterfall, part) if part else None,
        "launches_needed": waterfall.launches_needed,
        "notes": "; ".join(waterfall.notes),
        "reason": waterfall.reason or None,
    }


def name_columns(names: Sequence[str]) -> dict[str, str | None]:
    """The columns `part`, with the names of schema 1, and `cause`, as shown."""
    return {
        "part": listed([FIRST_NAMES.get(name, name) for name in names]) or None,
        "cause": part_name(names) or None,
    }


def _verdict(
    waterfall: Waterfall, part: Part
) -> Literal["largest", "not separable", "smaller", "gain"] | None:
    """`largest` if separated from all others, `not separable` for it and its rivals; None if no loss is certain."""
    if part.loss.center <= 0:
        return "gain"
    if not waterfall.largest_names:
        return None
    if part.name not in waterfall.largest_names:
        return "smaller"
    return "largest" if waterfall.separated else "not separable"


MOST_RIVALS = 2  # causes named besides the largest


def largest_loss(waterfall: Waterfall) -> str:
    """`communication and waiting 32.0 % [30.1, 33.9]` and losses not separable from it, or why it is not known."""
    largest = waterfall.largest
    if largest is None or waterfall.loss is None:
        return f"not known: {waterfall.reason}"
    if not waterfall.sufficient:
        return f"insufficient data: {waterfall.loss.n} of {MIN_BLOCKS} blocks"
    text = f"{largest.name} {share_text(largest.loss)}"
    if not waterfall.largest_names:
        return (
            f"{'no single cause' if is_loss(waterfall.loss) else 'no loss'} is significant; largest: {text}"
        )
    if waterfall.separated:
        return text
    if not waterfall.rivals:
        return f"{text}; {plural(largest.loss.n, 'launch')} do not show that no other is as large"
    rivals = waterfall.rivals
    names = " or ".join(rivals) if len(rivals) <= MOST_RIVALS else f"{len(rivals)} other causes"
    return f"{text}; not separable from {names}"


def headline(waterfall: Waterfall) -> str:
    """`HEP-CNN (torch) on ring: scaling efficiency 93 % [91, 95] at 8 ranks; largest loss: stragglers ...`"""
    cell, ranks = waterfall.cell, f"at {waterfall.cell.num_ranks} ranks"
    kind = "" if waterfall.evidence == "measured" else f" ({waterfall.evidence})"
    subject = f"{workload_title(cell.workload)} ({cell.framework}) on {backend_name(cell)}{kind}"
    if waterfall.efficiency is None:
        return f"{subject} {ranks}: largest loss {largest_loss(waterfall)}."
    unpaired = ", unpaired" if "unpaired" in waterfall.efficiency.method else ""
    needed = waterfall.launches_needed
    could = (
        f" (about {needed} launches would be enough)" if needed and needed > waterfall.efficiency.n else ""
    )
    return (
        f"{subject}: scaling efficiency {percent(waterfall.efficiency)} {ranks}{unpaired}; "
        f"largest loss: {largest_loss(waterfall)}{could}."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LossRow:
    """A part of a waterfall, or its total loss; `largest` marks the parts that no other certainly exceeds."""

    waterfall: Waterfall
    names: tuple[str, ...]
    loss: Interval
    milliseconds: Interval  # per step
    largest: bool = False
    bounded: bool = False  # an input stall of which only the bound is known


def _shown(row: LossRow, interval: Interval, write: Callable[[float], str]) -> Value:
    """The interval, or `at most 0.8` of a part that lies at its bound."""
    value = shown_interval(interval, write)
    if not row.bounded or interval.high is None:
        return value
    return replace(value, text=f"at most {write(max(interval.high, 0.0))}")


def loss_rows(waterfalls: Iterable[Waterfall]) -> Iterator[LossRow]:
    """The rows of the table: the parts of each waterfall and their total; waterfalls without parts are left out."""
    for waterfall in waterfalls:
        if not waterfall.parts or waterfall.loss is None:
            continue
        for part in waterfall.parts:
            yield LossRow(
                waterfall=waterfall,
                names=part.names,
                loss=part.loss,
                milliseconds=part.seconds.times(1000),
                largest=part.name in waterfall.largest_names,
                bounded=part.bounded,
            )
        lost = sum(1000 * part.seconds.center for part in waterfall.parts)
        milliseconds = replace(waterfall.loss, center=lost, low=None, high=None, method="sum of the parts")
        yield LossRow(waterfall=waterfall, names=(IN_TOTAL,), loss=waterfall.loss, milliseconds=milliseconds)


def _loss_data(row: LossRow) -> dict[str, Any]:
    milliseconds = row.milliseconds
    return {
        "training": training_title(row.waterfall.family),
        **attributes(row.waterfall.cell, "workload framework num_ranks"),
        "backend": backend_name(row.waterfall.cell),
        "evidence": row.waterfall.evidence,
        **name_columns(row.names),
        "share": row.loss.center,
        "share_low": row.loss.low,
        "share_high": row.loss.high,
        **attributes(row.loss, "method n"),
        "milliseconds_per_step": milliseconds.center,
        "milliseconds_low": milliseconds.low,
        "milliseconds_high": milliseconds.high,
    }


def _three_digits(milliseconds: float) -> str:
    """Milliseconds as text with three digits, never -0."""
    return number(round(milliseconds, 4) + 0.0)


LOSSES = TableOf[LossRow](
    name="losses",
    caption="Parts of the loss",
    columns=(
        *place_columns(lambda row: row.waterfall),
        Column("part", lambda row: part_name(row.names), numeric=False),
        Column("lost", lambda row: _shown(row, row.loss, points), unit="%"),
        Column("per step", lambda row: _shown(row, row.milliseconds, _three_digits), unit="ms"),
        Column("n", lambda row: row.loss.n),
    ),
    data=_loss_data,
    legend=(
        "Parts of the loss, in percent of the ideal speed, which is that of 1 rank without communication, with "
        f"{RATIO_LIMITS} over n blocks of launches; they add up to what is lost. Batch effect: the "
        "local batch is smaller. Sharing the machine: memory, caches and power. Input stall: by how much longer ranks "
        "wait for samples than 1 rank. Stragglers: every step waits for its latest rank. Communication and waiting: "
        "the rest, which is the exchange and all other waiting."
    ),
    tags=lambda row: tags_of(row.waterfall.cell),
    strong=lambda row: row.largest,
    group=lambda row: (row.waterfall.cell.id, row.waterfall.evidence),
)


def losses_of(waterfalls: Iterable[Waterfall]) -> list[Loss]:
    """The waterfalls that have parts, as they are drawn."""
    return [
        Loss(
            name=backend_name(waterfall.cell),
            title=training_title(waterfall.family),
            tags=tags_of(waterfall.cell),
            num_ranks=waterfall.cell.num_ranks,
            evidence=waterfall.evidence,
            kept=waterfall.efficiency,
            parts=tuple(
                ShownPart(
                    label=part.name,
                    share=part.loss,
                    milliseconds=part.seconds.times(1000),
                    bounded=part.bounded,
                )
                for part in waterfall.parts
            ),
            largest=waterfall.largest_names,
            separated=waterfall.separated,
            sentence=headline(waterfall),
            notes=_notes(waterfall),
        )
        for waterfall in waterfalls
        if waterfall.parts and waterfall.efficiency
    ]


def _notes(waterfall: Waterfall) -> tuple[str, ...]:
    return tuple(f"{note[0].upper()}{note[1:]}." for note in waterfall.notes)


def losses_on_most_ranks(losses: Iterable[Loss]) -> list[Loss]:
    """The losses of each training on its largest number of ranks with a loss, by training."""
    losses = list(losses)
    titles = dict.fromkeys(loss.title for loss in losses)
    most = {title: max(loss.num_ranks for loss in losses if loss.title == title) for title in titles}
    return [
        loss for title in titles for loss in losses if (loss.title, loss.num_ranks) == (title, most[title])
    ]


def _sentences(waterfalls: Iterable[Waterfall]) -> Iterator[Sentence]:
    """Those whose loss has no parts, with the reason."""
    return (
        Sentence(text=headline(waterfall), tags=tags_of(waterfall.cell))
        for waterfall in waterfalls
        if not waterfall.parts
    )


def _plots(waterfalls: Iterable[Waterfall]) -> Iterator[Block]:
    if losses := losses_of(waterfalls):
        yield Losses(name="loss-plots", losses=tuple(losses_on_most_ranks(losses)))


def _screen(study: Measured) -> Iterator[Block]:
    """The largest loss of each backend on the most ranks of each family; nothing of a busy machine.

    Trainings to a target have a screen of their own.
    """
    waterfalls = [waterfall for waterfall in FINDING.of(study) if not waterfall.cell.target]
    families = dict.fromkeys(waterfall.family for waterfall in waterfalls)
    if is_busy(study):
        return
    texts = {largest_loss(waterfall) for waterfall in on_most_ranks(waterfalls)}
    if len(texts) == 1 and not any(waterfall.largest for waterfall in waterfalls):
        yield Sentence(text=f"Largest loss: {texts.pop()}.")
        return
    by_family = {
        family: on_most_ranks(waterfall for waterfall in waterfalls if waterfall.family == family)
        for family in families
    }
    sharded = any(waterfall.cell.shard != NONE for waterfall in waterfalls)
    if sharded and sum(map(len, by_family.values())) > MOST_LINES:
        yield Sentence(text="Largest loss of the slowest on most ranks, of the ideal speed", strong=True)
        for family, last in by_family.items():
            worst = max(last, key=lambda waterfall: waterfall.loss.center if waterfall.loss else 0.0)
            name = f"{workload_title(family.workload)}, " if len(families) > 1 else ""
            yield Sentence(text=f"  {name}{level_of(worst.cell, 'backend')}: {largest_loss(worst)}")
        return
    for family, last in by_family.items():
        training = f", {training_title(family)}" if len(families) > 1 else ""
        ranks = plural(last[0].cell.num_ranks, "rank")
        yield Sentence(text=f"Largest loss on {ranks}, of the ideal speed{training}", strong=True)
        kinds = ["" if waterfall.evidence == "measured" else f" ({waterfall.evidence})" for waterfall in last]
        names = [
            level_of(waterfall.cell, "backend") + kind for waterfall, kind in zip(last, kinds, strict=True)
        ]
        for waterfall, name in zip(last, names, strict=True):
            yield Sentence(text=f"  {name:<{max(map(len, names))}}  {largest_loss(waterfall)}")


MOST_LINES = 8  # of losses on a screen that has several curves of each backend
MOST_PANELS = 3


def _figure(study: Measured, family: Family, form: Form) -> Figure | None:
    """The losses on each backend's largest number of ranks; None if none has parts.

    At most the three backends with the highest efficiency are shown; the small print names the others.
    """
    own = [one for one in FINDING.of(study) if one.family == family and form.draws(one.cell) and one.parts]
    groups = groupby(own, key=lambda waterfall: (backend_name(waterfall.cell), waterfall.evidence))
    largest = [max(group, key=lambda waterfall: waterfall.cell.num_ranks) for _, group in groups]
    kept = sorted(largest, key=lambda waterfall: waterfall.loss.center if waterfall.loss else 1.0)[
        :MOST_PANELS
    ]
    drawn = sorted(kept, key=largest.index)
    if not drawn:
        return None
    rows = rows_of(scaling.FINDING.of(study), family)
    left_out = [backend_name(waterfall.cell) for waterfall in largest if waterfall not in drawn]
    return family_figure(
        family,
        rows,
        [waterfall.cell for waterfall in drawn],
        study.provenance,
        name="waterfall",
        brief=f"What each backend loses of the ideal speed, part by part; whiskers: {100 * LEVEL:.0f} % intervals.",
        words=_words(drawn, left_out),
        panels=tuple(losses_of(drawn)),
        lines=waterfall_rows(drawn),
        wide=len(drawn) > 1,
        shared=True,
    )


def _words(drawn: Sequence[Waterfall], left_out: Sequence[str]) -> Iterator[str]:
    parts = [part for waterfall in drawn for part in waterfall.parts]
    yield (
        "Ideal: 1 rank without communication. Parts of the measured step, which add up to what is lost, over "
        f"n = {span([part.loss.n for part in parts])} blocks of launches, with "
        f"{RATIO_LIMITS}. Batch effect: the local batch is smaller; sharing the machine: memory, caches and power; "
        "input stall: longer waiting for samples than on 1 rank; stragglers: every step waits for its latest rank; "
        "communication and waiting: the rest."
    )
    if any(part.name == GATHERING for part in parts):
        yield "Gathering weights: of sharded ones, on the rank that waits least in it."
    if any(part.name == HALOS for part in parts):
        yield "Halo exchange: of rows, on the rank that spends least in it; ranks may wait there in turns."
    if any(part.loss.low is None for part in parts):
        yield "No whisker: too few blocks."
    yield from dict.fromkeys(note for waterfall in drawn for note in _notes(waterfall))
    if left_out:
        yield f"Not shown: {', '.join(left_out)} (see --json)."


FINDING = Finding(
    name="waterfalls",
    title="Where the speed goes",
    compute=lambda study: waterfalls_of(study.launches),
    sentences=_sentences,
    plots=_plots,
    more=lambda waterfalls: (LOSSES.of(loss_rows(waterfalls)),),
    screen=_screen,
    figures={"waterfall": _figure},
    data=lambda waterfalls: {"waterfalls": waterfall_rows(waterfalls)},
)
FINDINGS = (FINDING,)
