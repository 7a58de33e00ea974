"""What ranks that share samples exchange in a step: how often, how much, and how long it takes.

A rank sends halos of rows to its neighbours, adds sums to those of its replica, and gathers maps. Seconds of an
exchange have what a rank waits in it for its neighbours: of the rank that spends least as little as any, yet ranks may
wait in turns. Control `halos` exchanges the same without computing: what it takes is no waiting for computation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from dlscale.analysis.declare import Column, Sentence, TableOf, Value, family_tags, tags_of
from dlscale.analysis.families import on_most_ranks
from dlscale.analysis.finding import PLACE_COLUMNS, Finding
from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.interference import is_busy
from dlscale.analysis.findings.scaling import OfRow, ScalingRow
from dlscale.analysis.launches import CellLaunches
from dlscale.analysis.measured import Measured
from dlscale.analysis.records import setting_columns
from dlscale.analysis.statistics import Interval, block_ratio
from dlscale.analysis.text import (
    backend_name,
    gibibytes,
    interval_columns,
    number,
    plural,
    share_text,
    size_text,
)
from dlscale.benchmarks.records.record import Record

OPERATIONS = ("exchange", "sum", "gather")  # of a record's calls: their first words


@dataclass(frozen=True, slots=True, kw_only=True)
class HaloUse(OfRow):
    """What a rank exchanges in a step, the median over launches."""

    row: ScalingRow
    share: Interval  # of a step, of the rank that spends least
    seconds: float  # of that rank
    most_seconds: float  # of the rank that spends most
    num_bytes: float  # that a rank gives, the most of any rank
    alone: float | None  # of a step that exchanges the same and computes nothing; None: it was not measured
    calls: tuple[str, ...]  # of the rank that has most, in order: `exchange 896 0`, with bytes up and down

    def count(self, operation: str) -> int:
        return Counter(call.partition(" ")[0] for call in self.calls)[operation]


def halo_uses(study: Measured) -> list[HaloUse]:
    """One per training whose ranks share samples, in the order of the table of all cells."""
    rows = [row for row in scaling.FINDING.of(study) if row.cell.control == "train" and row.cell.split > 1]
    found = []
    for row in rows:
        launches = study.good_launches_of(row.family, row.cell, row.evidence) if row.evidence else None
        if launches and all(_known(record) for record in launches.records):
            found.append(_use(row, launches, study))
    return found


def _known(record: Record) -> bool:
    return len(record.halo_seconds) == len(record.halo_bytes) == record.case.cell.num_ranks


def _use(row: ScalingRow, launches: CellLaunches, study: Measured) -> HaloUse:
    records = launches.records
    wanted = row.cell.model_copy(update={"control": "halos"}).id
    alone = [
        case.world
        for each in study.cells
        if each.id == wanted
        for case in each.good
        if case.record.evidence == row.evidence
    ]
    least = {case.block: min(case.record.halo_seconds) for case in launches.good}
    most = max(records[-1].halo_calls, key=len, default=[])
    return HaloUse(
        row=row,
        share=block_ratio(least, launches.world),
        seconds=median(least.values()),
        most_seconds=median(max(record.halo_seconds) for record in records),
        num_bytes=median(max(record.halo_bytes) for record in records),
        alone=median(alone) if alone else None,
        calls=tuple(most),
    )


def _halo_row(use: HaloUse) -> dict[str, Any]:
    """A training's fields, and what a rank exchanges in a step; `calls` of one rank, in order."""
    return {
        **setting_columns(use.family, use.cell),
        "evidence": use.evidence,
        **{f"num_{operation}s": use.count(operation) for operation in OPERATIONS},
        "halo_bytes": use.num_bytes,
        "halo_seconds": use.seconds,
        "halo_seconds_of_the_last": use.most_seconds,
        "halo_seconds_alone": use.alone,
        **interval_columns("halo_share", use.share),
        "peak_rss_bytes": use.row.peak_rss_bytes,
        "window_rss_bytes": use.row.window_rss_bytes,
        "calls": list(use.calls),
    }


def _milliseconds(seconds: float) -> Value:
    return Value(text=number(1e3 * seconds), order=seconds)


HALOS = TableOf[HaloUse](
    name="halos",
    caption="Rows that ranks exchange",
    columns=(
        *PLACE_COLUMNS,
        Column("halos", lambda use: use.count("exchange"), unit="per step"),
        Column("sums", lambda use: use.count("sum"), unit="per step"),
        Column("gathers", lambda use: use.count("gather"), unit="per step"),
        Column("sent", lambda use: Value(text=number(use.num_bytes / 1024), order=use.num_bytes), unit="KiB"),
        Column("least", lambda use: _milliseconds(use.seconds), unit="ms"),
        Column("most", lambda use: _milliseconds(use.most_seconds), unit="ms"),
        Column("alone", lambda use: _milliseconds(use.alone) if use.alone else Value(text=""), unit="ms"),
        Column("of the step", lambda use: Value(text=share_text(use.share), order=use.share.center)),
        Column("peak", lambda use: Value(text=gibibytes(use.row.peak_rss_bytes)), unit="GiB"),
    ),
    data=_halo_row,
    legend=(
        "Per step and rank, medians over launches; forward and backward passes. Sent: what a rank gives to halos, sums "
        "and gathers, the most of any rank. Least, most: seconds in them, waiting for neighbours included, of the rank "
        "that spends least, which is the share of the step, and of the one that spends most. Alone: a step of control "
        "`halos`, which exchanges the same and computes nothing. Peak: the most that a rank's process held."
    ),
    tags=lambda use: tags_of(use.cell),
    group=lambda use: use.family,
)


def _sentences(uses: Sequence[HaloUse]) -> Iterator[Sentence]:
    """What sharing samples costs on the most ranks of each family."""
    for family in dict.fromkeys(use.family for use in uses):
        own = on_most_ranks(use for use in uses if use.family == family)
        yield Sentence(text=_cost(own), tags=family_tags(family))


def _cost(uses: Sequence[HaloUse]) -> str:
    each = [f"{backend_name(use.cell)}: {share_text(use.share)}" for use in uses]
    first = max(uses, key=lambda use: use.num_bytes)
    return (
        f"Halos on {plural(first.cell.num_ranks, 'rank')}, {size_text(round(first.num_bytes))} in "
        f"{plural(len(first.calls), 'call')} per step and rank, take of a step: {'; '.join(each)}."
    )


def _screen(study: Measured) -> Iterator[Sentence]:
    """The same; nothing of a busy machine."""
    if not is_busy(study):
        yield from _sentences(FINDING.of(study))


FINDING = Finding(
    name="halos",
    title="Rows that ranks exchange",
    compute=halo_uses,
    table=HALOS,
    sentences=_sentences,
    screen=_screen,
)
FINDINGS = (FINDING,)
