"""Backends beside each other, and where the speed went."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from dlscale.analysis.backends import Comparison, Contender
from dlscale.analysis.backends_table import LEGEND, sentences
from dlscale.analysis.page.model import Column, Row, Table, Text, Value
from dlscale.analysis.page.plot_model import Loss, Tags
from dlscale.analysis.page.series import tags_of
from dlscale.analysis.page.tables.cells import (
    NOTHING,
    TRAINING,
    flat,
    of_interval,
    of_number,
    training,
    trimmed,
)
from dlscale.analysis.page.words import milliseconds, share, training_title
from dlscale.analysis.rows import to_backend_rows
from dlscale.analysis.statistics import Interval
from dlscale.analysis.words import backend_name

COLUMNS = (
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


def comparison_table(comparisons: Iterable[Comparison]) -> Table | None:
    """One row per backend and number of ranks; None where no two were measured."""
    rows = tuple(
        _row(one, contender, data)
        for one in comparisons
        for contender, data in zip(one.contenders, to_backend_rows(one), strict=True)
    )
    if not rows:
        return None
    return trimmed(
        Table(
            name="backends", caption="Backends beside each other", columns=COLUMNS, rows=rows, legend=LEGEND
        )
    )


def verdicts(comparisons: Iterable[Comparison]) -> list[Text]:
    """What the comparisons on the most ranks of each family say, a sentence per pair of backends."""
    last: dict[tuple[object, str], Comparison] = {}
    for one in comparisons:
        key = (one.family, one.evidence)
        if key not in last or one.num_ranks >= last[key].num_ranks:
            last[key] = one
    several = len({one.family for one in last.values()}) > 1
    return [
        Text(
            text=f"{training_title(one.family)}, {one.num_ranks} ranks: {sentence}"
            if several
            else f"On {one.num_ranks} ranks: {sentence}",
            tags=Tags(workload=one.family.workload, framework=one.family.framework),
        )
        for one in last.values()
        for sentence in sentences(one.contenders)
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


def _row(comparison: Comparison, one: Contender, data: dict[str, Any]) -> Row:
    counted = one.difference or one.exposed or one.seconds_per_step
    step = one.seconds_per_step and one.seconds_per_step.times(1000)
    return Row(
        values=(
            *training(comparison.family),
            Value(text=backend_name(one.cell)),
            of_number(one.cell.num_ranks),
            Value(text=one.exchange or "-"),
            of_interval(step, milliseconds),
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
            of_interval(cost, milliseconds),
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
    return share(interval).replace(" %", "")
