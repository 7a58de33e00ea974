"""The exchange by itself, a row per size of bucket."""

from __future__ import annotations

from collections.abc import Iterable

from dlscale.analysis.collectives.words import size as size_text
from dlscale.analysis.exchange.alone import Size
from dlscale.analysis.exchange.exchanges import Exchange
from dlscale.analysis.exchange.rows import to_rows
from dlscale.analysis.exchange.table import LEGEND
from dlscale.analysis.exchange.words import GIGA
from dlscale.analysis.page.model import Column, Row, Table, Value
from dlscale.analysis.page.series import tags_of
from dlscale.analysis.page.tables.cells import (
    TRAINING,
    flat,
    of_interval,
    of_number,
    training,
    trimmed,
)
from dlscale.analysis.page.tables.numbers import label
from dlscale.analysis.words import percent, rate

COLUMNS = (
    *TRAINING,
    Column(label="backend", numeric=False),
    Column(label="ranks"),
    Column(label="bucket"),
    Column(label="per step"),
    Column(label="time", unit="ms"),
    Column(label="busbw", unit="GB/s"),
    Column(label="whole step's", unit="ms"),
    Column(label="hidden"),
    Column(label="step / sum"),
)


def exchange_table(found: Iterable[Exchange]) -> Table:
    """One row per exchange and size of bucket; the whole step's numbers stand in each of its rows."""
    rows = []
    for one in found:
        rows += [_row(one, size, data) for size, data in zip(one.alone.sizes, to_rows([one]), strict=True)]
    table = Table(
        name="exchanges", caption="The exchange by itself", columns=COLUMNS, rows=tuple(rows), legend=LEGEND
    )
    return trimmed(table)


def _row(one: Exchange, size: Size, data: dict[str, object]) -> Row:
    step = one.step
    return Row(
        values=(
            *training(one.family),
            label(one.cell, one.evidence),
            of_number(one.cell.num_ranks),
            Value(text=size_text(size.num_bytes), order=size.num_bytes),
            of_number(size.count),
            of_interval(size.seconds.times(1e3), rate),
            of_interval(size.busbw.times(GIGA), rate),
            of_interval(one.alone.seconds.times(1e3), rate),
            of_interval(one.overlap.hidden, percent),
            of_interval(step.of_sum if step else None, rate),
        ),
        data=flat(data),
        tags=tags_of(one.cell),
    )
