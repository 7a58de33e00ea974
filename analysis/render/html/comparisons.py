"""Backends compared on the page: rates and losses per backend, and what a study's declared contrasts may claim.

Contrasts are those that `dlscale compare` declares when nothing narrower is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from dlscale.analysis.efficiency import ScalingTable
from dlscale.analysis.findings.backends import (
    BACKEND_LEGEND,
    BackendComparison,
    Contender,
    backend_sentences,
    to_backend_rows,
)
from dlscale.analysis.findings.contrast_declaration import Declared, Side, declare
from dlscale.analysis.findings.contrast_table import (
    CONTRAST_LEGEND,
    change_text,
    contrast_rows,
    contrast_sentences,
    contrast_title,
    effect_text,
    over_text,
    probability_text,
)
from dlscale.analysis.findings.contrasts import Contrast, Contrasts, contrasts
from dlscale.analysis.render.html.labels import (
    milliseconds_text,
    plural,
    share_text,
    tags_of,
    training_title,
    workload_title,
)
from dlscale.analysis.render.html.model import Column, Loss, Row, Sentence, Table, Tags, Value
from dlscale.analysis.render.html.tables import (
    NOTHING,
    TRAINING,
    finite,
    flat,
    of_interval,
    of_number,
    training,
    trimmed,
)
from dlscale.analysis.render.text import backend_name
from dlscale.analysis.statistics import Interval
from dlscale.base.errors import UsageError

CLAIMED = ("faster", "slower", "alike")


def contrasts_of(
    table: ScalingTable,
    *,
    order: Sequence[str] = (),
    forbidden: Callable[[Declared], str] | None = None,
) -> Contrasts | None:
    """Each backend against the first of `order`, on each number of ranks above 1; None if there are no two of them.

    `forbidden` is that of `contrast.contrasts`.
    """
    try:
        declaration = declare(table.launches, order=order)
    except UsageError:  # there is nothing to compare, which is no mistake of whoever asks for a report
        return None
    flagged = {
        (row.cell.id, str(row.evidence)): row.outliers.blocks
        for row in table.rows
        if row.outliers and row.outliers.launches
    }
    return contrasts(declaration, flagged=flagged, forbidden=forbidden)


def contrasts_lead(found: Contrasts) -> str:
    """What was declared, and whether the blocks suffice."""
    short = [one.num_blocks for one in found.found if too_few(one)]
    said = (
        f"{plural(len(found.found), 'comparison')} of {found.factor}, declared together before any number was looked "
        f"at: {found.blocks_needed} blocks of launches or more can carry a claim"
    )
    if not short:
        return f"{said}."
    there = f"here {'is' if max(short) == 1 else 'are'} {max(short)}"
    return f"{said}; {there}, so {plural(len(short), 'comparison')} cannot be shown."


def contrast_texts(found: Contrasts) -> list[Sentence]:
    """A sentence for each comparison on the most ranks of its training, in the order of the table.

    None for those that only need more blocks: how many is said once, by `lead`.
    """
    said = []
    trainings = [list(group) for _, group in groupby(found.found, key=lambda one: _training(found, one))]
    for group in trainings:
        most = max(one.contender.cell.num_ranks for one in group)
        first = group[0].contender
        family = first.family
        what = contrast_title(first, found.factor).removeprefix(family.workload)
        name = f"{workload_title(family.workload)}{what}: " if len(trainings) > 1 else ""
        framework = "" if found.factor == "framework" else family.framework
        said += [
            Sentence(text=f"{name}{sentence}", tags=Tags(workload=family.workload, framework=framework))
            for sentence in contrast_sentences(
                one for one in group if one.contender.cell.num_ranks == most and not too_few(one)
            )
        ]
    return said


def claims(found: Contrasts) -> list[str]:
    """What is certain on the most ranks of all, the largest difference first; nothing of several trainings."""
    if len({_training(found, one) for one in found.found}) != 1:
        return []
    most = max(one.contender.cell.num_ranks for one in found.found)
    certain = [one for one in found.found if one.contender.cell.num_ranks == most and one.verdict in CLAIMED]
    return contrast_sentences(sorted(certain, key=_size, reverse=True))


def too_few(one: Contrast) -> bool:
    """Whether nothing but more blocks is missing."""
    return one.verdict == "cannot be shown" and one.ratio is not None and one.num_blocks > 0


def tags_of_pair(contender: Side, reference: Side) -> Tags:
    """Both sides': who asks for one of them sees what it was compared with."""
    sides = (contender.cell, reference.cell)
    return Tags(
        workload=contender.cell.workload,
        framework=" ".join(dict.fromkeys(cell.framework for cell in sides)),
        backend=" ".join(dict.fromkeys(cell.backend for cell in sides)),
    )


def _training(found: Contrasts, one: Contrast) -> str:
    return contrast_title(one.contender, found.factor)


def _size(one: Contrast) -> float:
    return abs(one.ratio.center - 1) if one.ratio else 0.0


CONTRAST_COLUMNS = (
    *TRAINING,
    Column(label="contrast", numeric=False),
    Column(label="ranks"),
    Column(label="throughput", unit="% more"),
    Column(label="effect"),
    Column(label="p"),
    Column(label="corrected p"),
    Column(label="blocks"),
    Column(label="verdict", numeric=False),
)


def contrast_table(found: Contrasts) -> Table:
    """One row per comparison."""
    rows = (
        _contrast_row(one, flat(data), needed=found.blocks_needed)
        for one, data in zip(found.found, contrast_rows(found), strict=True)
    )
    return trimmed(
        Table(
            name="contrasts",
            caption="Comparisons",
            columns=CONTRAST_COLUMNS,
            rows=tuple(rows),
            legend=CONTRAST_LEGEND,
        )
    )


def _contrast_row(one: Contrast, data: dict[str, str | int | float | bool | None], *, needed: int) -> Row:
    side = one.contender
    verdict = f"{one.verdict}: {one.reason}" if one.reason else one.verdict
    kind = "" if side.evidence == "measured" else f", {side.evidence}"
    return Row(
        values=(
            *training(side.family),
            Value(text=f"{side.name} : {one.reference.name}{over_text(one)}{kind}"),
            of_number(side.cell.num_ranks),
            of_interval(one.ratio, change_text),
            of_interval(one.standardised, effect_text),
            _probability(one.p_value),
            _probability(one.p_adjusted),
            of_number(one.num_blocks),
            Value(text=f"needs {needed} blocks" if too_few(one) else verdict),
        ),
        data=data,
        tags=tags_of_pair(side, one.reference),
        strong=one.verdict in ("faster", "slower"),
    )


def _probability(p: float | None) -> Value:
    return NOTHING if p is None else Value(text=probability_text(p), order=finite(p))


BACKEND_COLUMNS = (
    *TRAINING,
    Column(label="backend", numeric=False),
    Column(label="ranks"),
    Column(label="exchange", numeric=False),
    Column(label="step", unit="ms"),
    Column(label="communication", unit="% of the computation"),
    Column(label="difference", unit="% of the computation"),
    Column(label="compared with", numeric=False),
    Column(label="verdict", numeric=False),
)
LOSS_COLUMNS = (
    Column(label="training", numeric=False),
    Column(label="backend", numeric=False),
    Column(label="ranks"),
    Column(label="part", numeric=False),
    Column(label="lost", unit="% of the ideal speed"),
    Column(label="per step", unit="ms"),
    Column(label="n"),
)


def comparison_table(comparisons: Iterable[BackendComparison]) -> Table | None:
    """One row per backend and number of ranks; None where no two were measured."""
    rows = tuple(
        _backend_row(one, contender, data)
        for one in comparisons
        for contender, data in zip(one.contenders, to_backend_rows(one), strict=True)
    )
    if not rows:
        return None
    return trimmed(
        Table(
            name="backends",
            caption="Backends beside each other",
            columns=BACKEND_COLUMNS,
            rows=rows,
            legend=BACKEND_LEGEND,
        )
    )


def verdicts(comparisons: Iterable[BackendComparison]) -> list[Sentence]:
    """What the comparisons on the most ranks of each family say, a sentence per pair of backends."""
    last: dict[tuple[object, str], BackendComparison] = {}
    for one in comparisons:
        key = (one.family, one.evidence)
        if key not in last or one.num_ranks >= last[key].num_ranks:
            last[key] = one
    several = len({one.family for one in last.values()}) > 1
    return [
        Sentence(
            text=f"{training_title(one.family)}, {one.num_ranks} ranks: {sentence}"
            if several
            else f"On {one.num_ranks} ranks: {sentence}",
            tags=Tags(workload=one.family.workload, framework=one.family.framework),
        )
        for one in last.values()
        for sentence in backend_sentences(one.contenders)
    ]


def loss_table(losses: Iterable[Loss]) -> Table:
    """One row per part, and one for what is lost in total."""
    rows = []
    for loss in losses:
        total, costs = loss.kept.complement(), [part.milliseconds for part in loss.parts if part.milliseconds]
        whole = replace(
            total, center=sum(one.center for one in costs), low=None, high=None, method="sum of the parts"
        )
        parts = [
            (part.label, part.share, part.milliseconds, part.label in loss.largest) for part in loss.parts
        ]
        for label, lost, cost, largest in [
            *parts,
            ("in total", total, whole if len(costs) == len(loss.parts) else None, False),
        ]:
            rows.append(_part(loss, label, lost, cost, largest=largest))
    return trimmed(
        Table(
            name="losses",
            caption="Parts of the loss",
            columns=LOSS_COLUMNS,
            rows=tuple(rows),
            legend="From the speed that the base case promises to the measured one. The parts add up to the total.",
        )
    )


def _backend_row(comparison: BackendComparison, one: Contender, data: dict[str, Any]) -> Row:
    counted = one.difference or one.exposed or one.seconds_per_step
    step = one.seconds_per_step and one.seconds_per_step.times(1000)
    return Row(
        values=(
            *training(comparison.family),
            Value(text=backend_name(one.cell)),
            of_number(one.cell.num_ranks),
            Value(text=one.exchange or "-"),
            of_interval(step, milliseconds_text),
            of_interval(one.exposed, _share),
            of_interval(one.difference, _share),
            NOTHING if one.peer is None else Value(text=backend_name(one.peer)),
            Value(text=one.verdict + (f" (n = {counted.n})" if counted else "")),
        ),
        data=flat(data),
        tags=tags_of(one.cell),
    )


def _part(loss: Loss, label: str, lost: Interval, cost: Interval | None, *, largest: bool) -> Row:
    return Row(
        values=(
            Value(text=loss.title),
            Value(text=loss.name),
            of_number(loss.num_ranks),
            Value(text=label),
            of_interval(lost, _share),
            of_interval(cost, milliseconds_text),
            of_number(lost.n),
        ),
        data={
            "training": loss.title,
            "workload": loss.tags.workload,
            "framework": loss.tags.framework,
            "backend": loss.name,
            "num_ranks": loss.num_ranks,
            "evidence": loss.evidence,
            "part": label,
            "share": lost.center,
            "share_low": lost.low,
            "share_high": lost.high,
            "method": lost.method,
            "n": lost.n,
            "milliseconds_per_step": cost.center if cost else None,
            "milliseconds_low": cost.low if cost else None,
            "milliseconds_high": cost.high if cost else None,
        },
        tags=loss.tags,
        strong=largest,
    )


def _share(interval: Interval) -> str:
    return share_text(interval).replace(" %", "")
