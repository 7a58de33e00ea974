"""What is said of waterfalls: the rows of `--json`, sentences, and the table of parts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal

from dlscale.analysis.declare import (
    Block,
    Column,
    Figure,
    Loss,
    Losses,
    Sentence,
    TableOf,
    cell_name,
    shown_interval,
    tags_of,
    training_columns,
)
from dlscale.analysis.declare import Part as ShownPart
from dlscale.analysis.families import Family
from dlscale.analysis.finding import Finding
from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.contrast_declaration import level_of
from dlscale.analysis.findings.interference import is_busy
from dlscale.analysis.findings.scaling import ScalingRow, rows_of
from dlscale.analysis.findings.small_print import origin, parity, span, warning
from dlscale.analysis.findings.waterfall import Part, Waterfall, waterfalls
from dlscale.analysis.findings.waterfall_parts import INPUT, STRAGGLERS
from dlscale.analysis.form import SCREEN, Form
from dlscale.analysis.measured import Measured
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.records import algorithm_text, options_text
from dlscale.analysis.statistics import LEVEL, MIN_BLOCKS, Interval
from dlscale.analysis.text import (
    backend_name,
    interval_columns,
    number,
    percent,
    plural,
    points,
    share_text,
    training_title,
    workload_title,
)
from dlscale.analysis.variants import STEP


def waterfall_rows(falls: Iterable[Waterfall]) -> list[dict[str, Any]]:
    """One flat row per part, in the order of the staircase; for a cell without parts one row with `reason`.

    `loss` is a part's share of the ideal speed, `seconds` its share of a step; over the rows of a cell they add up to
    1 - `efficiency` and to `measured_seconds` - `ideal_seconds`. `loss_by_controls` is the loss before the input stall
    is kept within `bound_low` and `bound_high`. `verdict` is "largest", "not separable" from it, "smaller" or "gain";
    about `launches_needed` would separate them.
    """
    return [row for waterfall in falls for row in _part_rows(waterfall)]


def name_columns(name: str | None) -> dict[str, str | None]:
    """The columns `part`, with the names of schema 1, where stragglers were late ranks, and `cause`, as shown."""
    return {"part": name and name.replace(STRAGGLERS, "late ranks"), "cause": name}


def _part_rows(waterfall: Waterfall) -> list[dict[str, Any]]:
    common = {
        **_setting(waterfall),
        **interval_columns("efficiency", waterfall.efficiency),
        "ideal_seconds": waterfall.ideal_seconds,
        "measured_seconds": waterfall.measured_seconds,
    }
    about = {"notes": "; ".join(waterfall.notes), "reason": waterfall.reason or None}
    if not waterfall.parts:
        return [
            {
                **common,
                **name_columns(None),
                **interval_columns("loss", None),
                **interval_columns("seconds", None),
                **dict.fromkeys(
                    ("loss_by_controls", "bound_low", "bound_high", "verdict", "launches_needed")
                ),
                **about,
            }
        ]
    return [
        {
            **common,
            **name_columns(part.name),
            **interval_columns("loss", part.loss),
            **interval_columns("seconds", part.seconds),
            "loss_by_controls": part.by_controls,
            "bound_low": _limit(waterfall, part, "low"),
            "bound_high": _limit(waterfall, part, "high"),
            "verdict": _part_verdict(waterfall, part),
            "launches_needed": waterfall.launches_needed,
            **about,
        }
        for part in waterfall.parts
    ]


def _limit(waterfall: Waterfall, part: Part, end: Literal["low", "high"]) -> float | None:
    """A limit of the input stall; None for other parts and where it is not known."""
    if waterfall.bound is None or part.names != (INPUT,):
        return None
    value: float = getattr(waterfall.bound, end)
    return value if math.isfinite(value) else None


PartVerdict = Literal["largest", "not separable", "smaller", "gain"]


def _part_verdict(waterfall: Waterfall, part: Part) -> PartVerdict | None:
    """`largest` if separated from all others, `not separable` for it and its rivals; None if no loss is certain."""
    if part.loss.center <= 0:
        return "gain"
    if not waterfall.largest_names:
        return None
    if part.name not in waterfall.largest_names:
        return "smaller"
    return "largest" if waterfall.separated else "not separable"


def _setting(waterfall: Waterfall) -> dict[str, Any]:
    """The columns that name what was run and on which system."""
    return {
        "system": waterfall.family.system,
        **waterfall.cell.model_dump(exclude={"control"}),
        "backend_options": options_text(waterfall.cell),
        "algorithm": waterfall.cell.algorithm,
        "algorithm_options": algorithm_text(waterfall.cell),
        "evidence": waterfall.evidence,
    }


def waterfall_headline(waterfall: Waterfall) -> str:
    """`resnet50 on ring: scaling efficiency 93 % [91, 95] at 8 ranks; the largest loss is stragglers: ...`"""
    subject = f"{waterfall.cell.workload} on {backend_name(waterfall.cell)}"
    if waterfall.evidence != "measured":
        subject += f" ({waterfall.evidence})"
    ranks = f"{waterfall.cell.num_ranks} ranks"
    if waterfall.efficiency is None:
        return f"{subject} at {ranks}: the loss is unknown, {waterfall.reason}."
    unpaired = ", unpaired" if "unpaired" in waterfall.efficiency.method else ""
    kept = f"{subject}: scaling efficiency {percent(waterfall.efficiency)} at {ranks}{unpaired}"
    if not waterfall.sufficient:
        num_blocks = waterfall.efficiency.n
        return f"{kept}; insufficient data for causes: {num_blocks} of {MIN_BLOCKS} blocks."
    return f"{kept}; {_why(waterfall)}."


def _why(waterfall: Waterfall) -> str:
    certain = [part for part in waterfall.parts if part.loss.low is not None and part.loss.low > 0]
    largest = max(waterfall.parts, key=lambda part: part.loss.center)
    if not certain and waterfall.loss and waterfall.loss.low is not None and waterfall.loss.low > 0:
        return f"no single cause is significant; the largest is {largest.name}: {share_text(largest.loss)}"
    if not certain:
        return "no loss is significant"
    if waterfall.separated:
        return f"the largest loss is {largest.name}: {share_text(largest.loss)}"
    launches, needed = plural(largest.loss.n, "launch"), waterfall.launches_needed
    could = f" (about {needed} could)" if needed and needed > largest.loss.n else ""
    rivals = [part for part in waterfall.parts if part.name in waterfall.rivals]
    if not rivals:
        return (
            f"the largest measured loss is {largest.name}: {share_text(largest.loss)}, but {launches} do not show that "
            f"no other is as large{could}"
        )
    parts = sorted([largest, *rivals], key=lambda part: -part.loss.center)
    listed = "; ".join(f"{part.name} {share_text(part.loss)}" for part in parts)
    return f"the largest losses cannot be separated with {launches}{could}: {listed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LossRow:
    """A part of a waterfall, or its total loss; `largest` marks the parts that no other certainly exceeds."""

    waterfall: Waterfall
    label: str
    loss: Interval
    milliseconds: Interval  # per step
    largest: bool = False


def loss_rows(falls: Iterable[Waterfall]) -> Iterator[LossRow]:
    """The rows of the table: the parts of each waterfall and their total; waterfalls without parts are left out."""
    for waterfall in falls:
        if not waterfall.parts or waterfall.loss is None:
            continue
        for part in waterfall.parts:
            yield LossRow(
                waterfall=waterfall,
                label=part.name,
                loss=part.loss,
                milliseconds=part.seconds.times(1000),
                largest=part.name in waterfall.largest_names,
            )
        milliseconds = replace(
            waterfall.loss,
            center=sum(1000 * part.seconds.center for part in waterfall.parts),
            low=None,
            high=None,
            method="sum of the parts",
        )
        yield LossRow(waterfall=waterfall, label="in total", loss=waterfall.loss, milliseconds=milliseconds)


def _loss_data(row: LossRow) -> dict[str, Any]:
    cell, family, milliseconds = row.waterfall.cell, row.waterfall.family, row.milliseconds
    return {
        "training": f"{workload_title(family.workload)} {family.preset}, {family.framework}, "
        f"{family.scaling_mode} scaling on {family.system}",
        "workload": cell.workload,
        "framework": cell.framework,
        "backend": backend_name(cell),
        "num_ranks": cell.num_ranks,
        "evidence": row.waterfall.evidence,
        **name_columns(row.label),
        "share": row.loss.center,
        "share_low": row.loss.low,
        "share_high": row.loss.high,
        "method": row.loss.method,
        "n": row.loss.n,
        "milliseconds_per_step": milliseconds.center,
        "milliseconds_low": milliseconds.low,
        "milliseconds_high": milliseconds.high,
    }


def _three_digits(milliseconds: float) -> str:
    """Milliseconds as text with three digits, never -0."""
    return number(round(milliseconds, 4) + 0.0)


WATERFALL_LEGEND = (
    "Parts of the loss, in percent of the ideal speed, which is that of 1 rank without a communication layer, with "
    f"{100 * LEVEL:.0f} % t intervals over n blocks of launches; together they are what is lost. Batch effect: the "
    "local batch is smaller. Co-running: ranks share the machine. Input stall: by how much longer ranks wait for "
    "samples than 1 rank. Late ranks: every step waits for its latest one. Exposed communication: the rest."
)
LOSSES = TableOf[LossRow](
    name="losses",
    caption="Parts of the loss",
    columns=(
        *training_columns(lambda row: row.waterfall.family),
        Column("backend", lambda row: cell_name(row.waterfall.cell, row.waterfall.evidence), numeric=False),
        Column("ranks", lambda row: row.waterfall.cell.num_ranks),
        Column("part", lambda row: row.label, numeric=False),
        Column("lost", lambda row: shown_interval(row.loss, points), unit="%"),
        Column("per step", lambda row: shown_interval(row.milliseconds, _three_digits), unit="ms"),
        Column("n", lambda row: row.loss.n),
    ),
    data=_loss_data,
    legend=WATERFALL_LEGEND,
    tags=lambda row: tags_of(row.waterfall.cell),
    strong=lambda row: row.largest,
    group=lambda row: (row.waterfall.cell.id, row.waterfall.evidence),
)


def losses_of(falls: Iterable[Waterfall]) -> list[Loss]:
    """The waterfalls that have parts, as they are drawn."""
    return [_loss(fall) for fall in falls if fall.parts]


def _loss(fall: Waterfall) -> Loss:
    if fall.efficiency is None:
        raise ValueError(f"{fall.cell.id} has parts, but no efficiency")
    return Loss(
        name=backend_name(fall.cell),
        title=training_title(fall.family),
        tags=tags_of(fall.cell),
        num_ranks=fall.cell.num_ranks,
        evidence=fall.evidence,
        kept=fall.efficiency,
        parts=tuple(
            ShownPart(label=part.name, share=part.loss, milliseconds=part.seconds.times(1000))
            for part in fall.parts
        ),
        largest=fall.largest_names,
        separated=fall.separated,
        sentence=_sentence(fall),
        notes=tuple(f"{note[0].upper()}{note[1:]}." for note in fall.notes),
    )


def _sentence(fall: Waterfall) -> str:
    """The headline of the terminal, with the workload's title and the framework."""
    cell = fall.cell
    return f"{workload_title(cell.workload)} ({cell.framework}){waterfall_headline(fall).removeprefix(cell.workload)}"


def on_most_ranks(losses: Iterable[Loss]) -> list[Loss]:
    """The losses of each training on its largest number of ranks with a loss."""
    by_training: dict[str, list[Loss]] = {}
    for loss in losses:
        by_training.setdefault(loss.title, []).append(loss)
    return [
        loss
        for group in by_training.values()
        for loss in group
        if loss.num_ranks == max(member.num_ranks for member in group)
    ]


def _sentences(falls: Iterable[Waterfall]) -> Iterator[Sentence]:
    """Those whose loss has no parts, with the reason."""
    return (Sentence(text=_sentence(fall), tags=tags_of(fall.cell)) for fall in falls if not fall.parts)


def _plots(falls: Iterable[Waterfall]) -> Iterator[Block]:
    if losses := losses_of(falls):
        yield Losses(name="loss-plots", losses=tuple(on_most_ranks(losses)))


MOST_RIVALS = 2  # causes named besides the largest


def largest_loss(fall: Waterfall) -> str:
    """`exposed communication 32.0 % [30.1, 33.9]` and losses not separable from it, or why it is unknown."""
    largest = fall.largest
    if largest is None or fall.loss is None:
        return f"not known: {fall.reason}"
    if not fall.sufficient:
        return f"insufficient data: {fall.loss.n} of {MIN_BLOCKS} blocks"
    if not any(part.loss.low is not None and part.loss.low > 0 for part in fall.parts):
        certain = fall.loss.low is not None and fall.loss.low > 0
        what = "no single cause" if certain else "no loss"
        return f"{what} is significant; largest: {largest.name} {share_text(largest.loss)}"
    text = f"{largest.name} {share_text(largest.loss)}"
    if fall.separated:
        return text
    if not fall.rivals:
        return f"{text}; {plural(largest.loss.n, 'launch')} do not show that no other is as large"
    names = (
        " or ".join(fall.rivals) if len(fall.rivals) <= MOST_RIVALS else f"{len(fall.rivals)} other causes"
    )
    return f"{text}; not separable from {names}"


def _screen(study: Measured) -> Iterator[Block]:
    """The largest loss of each backend on the most ranks of each family; nothing of a busy machine.

    Ladders and trainings to a target have screens of their own.
    """
    falls = [fall for fall in FINDING.of(study) if not fall.cell.target]
    families = dict.fromkeys(fall.family for fall in falls)
    for family in () if is_busy(study) or study.variants.factor == STEP else families:
        own = [fall for fall in falls if fall.family == family]
        last = [fall for fall in own if fall.cell.num_ranks == max(fall.cell.num_ranks for fall in own)]
        training = f", {family.title}" if len({fall.family for fall in falls}) > 1 else ""
        ranks = plural(last[0].cell.num_ranks, "rank")
        yield Sentence(text=f"Largest loss on {ranks}, of the ideal speed{training}", strong=True)
        names = [_name(fall) for fall in last]
        width = max(map(len, names))
        for name, fall in zip(names, last, strict=True):
            yield Sentence(text=f"  {name:<{width}}  {largest_loss(fall)}")


def _name(fall: Waterfall) -> str:
    name = level_of(fall.cell, "backend")
    return name if fall.evidence == "measured" else f"{name} ({fall.evidence})"


MOST_PANELS = 3


def waterfall_figure(
    family: Family,
    rows: Sequence[ScalingRow],
    provenance: Provenance,
    falls: Sequence[Waterfall],
    form: Form = SCREEN,
) -> Figure | None:
    """The losses on each backend's largest number of ranks; None if none has parts.

    At most the three backends with the highest efficiency are shown; the small print names the others.
    """
    own = [fall for fall in falls if fall.family == family and form.draws(fall.cell) and fall.parts]
    groups = groupby(own, key=lambda fall: (backend_name(fall.cell), fall.evidence))
    largest = [max(group, key=lambda fall: fall.cell.num_ranks) for _, group in groups]
    kept = sorted(largest, key=lambda fall: fall.loss.center if fall.loss else 1.0)[:MOST_PANELS]
    shown = sorted(kept, key=largest.index)
    if not shown:
        return None
    cells = {fall.cell.id for fall in shown}
    left_out = [backend_name(fall.cell) for fall in largest if fall not in shown]
    return Figure(
        name="waterfall",
        title=family.title,
        warning=warning(rows) if rows else "",
        subtitle=family.constants,
        small_print=(
            " ".join(_words(shown, left_out)),
            *(parity(rows) if rows else []),
            origin([row for row in rows if row.cell.id in cells], provenance),
        ),
        panels=tuple(map(_loss, shown)),
        rows=waterfall_rows(shown),
        wide=len(shown) > 1,
        shared=True,
    )


def _words(shown: Sequence[Waterfall], left_out: Sequence[str]) -> Iterator[str]:
    yield (
        "Ideal: 1 rank without a communication layer. Parts of the measured step, which add up to what is lost, over "
        f"n = {span([part.loss.n for fall in shown for part in fall.parts])} blocks of launches, with t intervals of "
        "paired logarithms. Batch effect: the local batch is smaller; co-running: ranks share the machine; input "
        "stall: longer waiting for samples than on 1 rank; late ranks: every step waits for its latest; exposed "
        "communication: the rest."
    )
    if any(part.loss.low is None for fall in shown for part in fall.parts):
        yield "No whisker: too few blocks."
    yield from dict.fromkeys(f"{note[0].upper()}{note[1:]}." for fall in shown for note in fall.notes)
    if left_out:
        yield f"Not shown: {', '.join(left_out)} (see --json)."


def _figure(study: Measured, family: Family, form: Form) -> Figure | None:
    rows = rows_of(scaling.FINDING.of(study), family)
    return waterfall_figure(family, rows, study.provenance, FINDING.of(study), form)


FINDING = Finding(
    name="waterfalls",
    title="Where the speed goes",
    compute=lambda study: waterfalls(study.launches),
    sentences=_sentences,
    plots=_plots,
    more=lambda falls: (LOSSES.of(loss_rows(falls)),),
    screen=_screen,
    figures={"waterfall": _figure},
    data=lambda falls: {"waterfalls": waterfall_rows(falls)},
)
FINDINGS = (FINDING,)
