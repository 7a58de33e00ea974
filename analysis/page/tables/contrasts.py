"""Declared comparisons: by how much, how surely, and what may be claimed."""

from __future__ import annotations

from dlscale.analysis.contrasts.contrast import Contrast, Contrasts
from dlscale.analysis.contrasts.rows import to_rows
from dlscale.analysis.contrasts.table import LEGEND
from dlscale.analysis.contrasts.words import change, effect, over, probability
from dlscale.analysis.page.contrasted import tags_of_pair, too_few
from dlscale.analysis.page.model import Column, Row, Table, Value
from dlscale.analysis.page.tables.cells import (
    NOTHING,
    TRAINING,
    finite,
    flat,
    of_interval,
    of_number,
    training,
    trimmed,
)

COLUMNS = (
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
        _row(one, flat(data), needed=found.blocks_needed)
        for one, data in zip(found.found, to_rows(found), strict=True)
    )
    return trimmed(
        Table(name="contrasts", caption="Comparisons", columns=COLUMNS, rows=tuple(rows), legend=LEGEND)
    )


def _row(one: Contrast, data: dict[str, str | int | float | bool | None], *, needed: int) -> Row:
    side = one.contender
    verdict = f"{one.verdict}: {one.reason}" if one.reason else one.verdict
    kind = "" if side.evidence == "measured" else f", {side.evidence}"
    return Row(
        values=(
            *training(side.family),
            Value(text=f"{side.name} : {one.reference.name}{over(one)}{kind}"),
            of_number(side.cell.num_ranks),
            of_interval(one.ratio, change),
            of_interval(one.standardised, effect),
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
    return NOTHING if p is None else Value(text=probability(p), order=finite(p))
