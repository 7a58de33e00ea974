"""Communication of each training: what its exchange takes by itself, how much is overlapped, and whether steps are
as predicted.

Below the arithmetic stand the sentences, the columns and the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.markup import escape

from dlscale.analysis.families import Family
from dlscale.analysis.findings.communication_only import BucketSize, CommunicationOnly, communication_only
from dlscale.analysis.findings.overlap import (
    IN_LINE,
    Overlap,
    StepPrediction,
    computation_of,
    overlap,
    predict_step,
)
from dlscale.analysis.findings.waterfall import Waterfall
from dlscale.analysis.records import CellTimes, cell_times, exchange_mode, latest_good, options_text
from dlscale.analysis.render.tables import (
    Column,
    Shown,
    TableOf,
    Value,
    cell_name,
    render_table,
    shown_interval,
    tags_of,
    training_columns,
)
from dlscale.analysis.render.text import (
    backend_name,
    interval_columns,
    number,
    percent,
    points,
    ratio_text,
    size_text,
    with_limits,
)
from dlscale.analysis.statistics import LEVEL, Interval
from dlscale.benchmarks.records.record import Cell, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """Of a cell's exchange that was measured alone. Without `step`, `reason` says what is missing."""

    alone: CommunicationOnly
    cell: Cell  # of the training
    how: str  # "in line", "overlapped", "mixed"; empty if the backend did not say
    step: StepPrediction | None
    overlap: Overlap
    reason: str = ""

    @property
    def family(self) -> Family:
        """The training's."""
        return self.alone.family

    @property
    def evidence(self) -> str:
        """Of all that it is made of."""
        return self.alone.evidence


def communications(records: Iterable[Record], waterfalls: Iterable[Waterfall]) -> tuple[Communication, ...]:
    """One for each exchange that was measured alone on more than 1 rank, by family, backend and ranks.

    `waterfalls` are those of the same records.
    """
    good = latest_good(records)
    measured = communication_only(good)
    if not measured:
        return ()
    trained = cell_times(good, controls={"train"})
    said = _exchange_modes(good)
    falls = {(one.family, one.cell.id, one.evidence): one for one in waterfalls}
    found = []
    for one in measured:
        cell = one.cell.model_copy(update={"control": "train"})
        how = said.get((one.family.system, cell.id, one.evidence), "")
        found.append(_communication(one, cell, how, trained, falls.get((one.family, cell.id, one.evidence))))
    return tuple(sorted(found, key=_communication_order))


def communications_on_most_ranks(found: Iterable[Communication]) -> list[Communication]:
    """Of each backend of a family, by kind of evidence, that of the most ranks."""
    largest: dict[tuple[object, ...], Communication] = {}
    for one in found:
        key = (one.family, backend_name(one.cell), one.evidence)
        if key not in largest or largest[key].cell.num_ranks < one.cell.num_ranks:
            largest[key] = one
    return list(largest.values())


def _communication(
    one: CommunicationOnly, cell: Cell, how: str, trained: Sequence[CellTimes], waterfall: Waterfall | None
) -> Communication:
    training = next(
        (
            other
            for other in trained
            if (other.cell, other.family, other.evidence) == (cell, one.family, one.evidence)
        ),
        None,
    )
    nothing = Overlap(hidden=None)
    if training is None:
        return Communication(
            alone=one, cell=cell, how=how, step=None, overlap=nothing, reason="no training gave a number"
        )
    seconds = training.seconds("world")
    hidden = Overlap(hidden=None, reason="where its speed goes is not known")
    if waterfall:
        hidden = overlap(waterfall, one.by_block, seconds, exchange=how)
    none = computation_of(training, trained)
    predicted = predict_step(seconds, none.seconds("world"), one.by_block, how=how) if none else None
    reason = ""
    if not predicted:
        what = f"none on {cell.num_ranks} ranks"
        reason = f"no block in common with {what}" if none else f"{what} was not measured"
    return Communication(alone=one, cell=cell, how=how, step=predicted, overlap=hidden, reason=reason)


def _exchange_modes(records: Iterable[Record]) -> dict[tuple[str, str, str], str]:
    """(system, cell, kind of evidence) of each training -> how it exchanges; "mixed" if launches differ."""
    found: dict[tuple[str, str, str], set[str]] = {}
    for record in records:
        if record.case.cell.control == "train":
            key = (record.system, record.case.cell.id, record.evidence)
            found.setdefault(key, set()).add(exchange_mode(record))
    words = {key: said - {""} for key, said in found.items()}
    return {key: next(iter(one)) if len(one) == 1 else "mixed" for key, one in words.items() if one}


def _communication_order(one: Communication) -> tuple[object, ...]:
    cell = one.cell
    options = tuple(sorted((name, str(value)) for name, value in cell.backend_options.items()))
    return one.family, cell.backend, options, cell.num_ranks, cell.num_nodes, one.evidence


GIGA = 1e-9
MEGA = 1e-6


def communication_sentence(one: Communication) -> str:
    """`ring on 2 ranks: the exchange of 2.37 MB takes 1.20 ms alone [1.10, 1.30] at 3.95 GB/s (busbw); ... .`"""
    alone = one.alone
    name = backend_name(one.cell) + ("" if one.evidence == "measured" else f" ({one.evidence})")
    took = with_limits(alone.seconds.times(1e3), unit=" ms alone")
    return (
        f"{name} on {one.cell.num_ranks} ranks: the exchange of {number(alone.num_bytes * MEGA)} MB takes {took} "
        f"at {number(alone.busbw.center * GIGA)} GB/s (busbw); {_hidden(one)}."
    )


def _hidden(one: Communication) -> str:
    if one.how == IN_LINE:
        if one.step is None:
            return f"nothing is hidden; what the step should take is not known, {one.reason}"
        return f"nothing is hidden; the step is {ratio_text(one.step.of_sum)} of computation plus exchange"
    hidden = one.overlap.hidden
    if hidden is None:
        why = one.overlap.reason or one.reason
        return f"how much of it is hidden is not known, {why}{_between(one)}"
    flaw = "" if hidden.low is not None else f", of {hidden.n} block{'s' * (hidden.n > 1)}: no interval"
    if hidden.center < 0:
        return (
            "nothing is hidden: beside the computation a step is longer by "
            f"{ratio_text(hidden.complement())} of that time{flaw}"
        )
    return f"{percent(hidden)} of it is hidden behind the computation{flaw}"


def _between(one: Communication) -> str:
    """The ends of the prediction, where no share can be told."""
    if one.step is None:
        return ""
    low, high, measured = (
        number(1e3 * seconds) for seconds in (one.step.shortest, one.step.longest, one.step.measured.center)
    )
    return f"; the step takes {measured} ms, predicted {low} with all of it hidden, {high} with nothing"


def communication_rows(found: Iterable[Communication]) -> list[dict[str, Any]]:
    """One flat row per exchange and size of bucket.

    `exchange_seconds` is of a whole step, `bucket_seconds` of one bucket. `hidden` is the share of the exchange's own
    time, late ranks left out; `hidden_of_prediction` where the measured step lies between the ends of the prediction,
    0 at `predicted_high_seconds`, 1 at `predicted_low_seconds`.
    """
    return [_communication_row(*bucket) for bucket in buckets(found)]


def _communication_row(exchange: Communication, size: BucketSize) -> dict[str, Any]:
    return {
        **_step_columns(exchange),
        **_bucket_columns(size),
        "notes": "; ".join(exchange.alone.notes),
        "reason": _reason(exchange),
    }


def _step_columns(one: Communication) -> dict[str, Any]:
    alone, step = one.alone, one.step
    return {
        "system": one.family.system,
        **one.cell.model_dump(exclude={"control"}),
        "backend_options": options_text(one.cell),
        "evidence": one.evidence,
        "exchange": one.how or None,
        "step_bytes": alone.num_bytes,
        **interval_columns("exchange_seconds", alone.seconds),
        "step_busbw_gb_per_second": alone.busbw.center * GIGA,
        **interval_columns("computation_seconds", step.computation if step else None),
        **interval_columns("measured_seconds", step.measured if step else None),
        "predicted_low_seconds": step and step.shortest,
        "predicted_high_seconds": step and step.longest,
        **interval_columns("measured_over_sum", step.of_sum if step else None),
        **interval_columns("hidden_of_prediction", step.hidden if step else None),
        **interval_columns("hidden", one.overlap.hidden),
    }


def _bucket_columns(size: BucketSize) -> dict[str, Any]:
    intervals: dict[str, Interval] = {
        "bucket_seconds": size.seconds,
        "algbw_gb_per_second": size.algbw.times(GIGA),
        "busbw_gb_per_second": size.busbw.times(GIGA),
    }
    return {
        "bucket_bytes": size.num_bytes,
        "num_buckets": size.count,
        **{
            key: value
            for name, one in intervals.items()
            for key, value in interval_columns(name, one).items()
        },
    }


def _reason(one: Communication) -> str | None:
    """Why something is missing."""
    return "; ".join(dict.fromkeys(filter(None, (one.reason, one.overlap.reason)))) or None


MAX_SIZES = 6  # of an exchange; those in which most bytes travel
COMMUNICATION_LEGEND = (
    "Alone: one bucket after the other while nobody computes. Compute: none on as many ranks. Predicted of a step: "
    "their sum where the exchange is in line; else between the longer one and the sum. Step / sum: the measured step "
    f"over that sum, hidden: of the exchange alone, late ranks left out; with {100 * LEVEL:.0f} % t intervals over n "
    "blocks of launches. Buckets: the slowest rank's mean time of one, the median over launches; busbw is "
    "algbw x 2 (P - 1) / P."
)
Bucket = tuple[Communication, BucketSize]


def _predicted(exchange: Communication) -> Shown:
    step = exchange.step
    if step is None:
        return None
    high = number(1e3 * step.longest)
    text = high if exchange.how == IN_LINE else f"{number(1e3 * step.shortest)} to {high}"
    return Value(text=text, order=step.longest)


STEPS = TableOf[Communication](
    name="exchange-steps",
    caption="Communication alone, and the step that it predicts",
    columns=(
        *training_columns(lambda exchange: exchange.family),
        Column("backend", lambda exchange: cell_name(exchange.cell, exchange.evidence), numeric=False),
        Column("ranks", lambda exchange: exchange.cell.num_ranks),
        Column("alone", lambda exchange: exchange.alone.seconds.times(1e3), unit="ms"),
        Column(
            "compute",
            lambda exchange: exchange.step.computation.times(1e3) if exchange.step else None,
            unit="ms",
        ),
        Column("predicted", _predicted, unit="ms"),
        Column(
            "step", lambda exchange: exchange.step.measured.times(1e3) if exchange.step else None, unit="ms"
        ),
        Column(
            "step/sum",
            lambda exchange: shown_interval(exchange.step.of_sum if exchange.step else None, "{:.2f}".format),
        ),
        Column("overlapped", lambda exchange: shown_interval(exchange.overlap.hidden, points), unit="%"),
        Column("n", lambda exchange: exchange.step.of_sum.n if exchange.step else None),
    ),
    data=lambda exchange: _step_columns(exchange),
    tags=lambda exchange: tags_of(exchange.cell),
    group=lambda exchange: (backend_name(exchange.cell), exchange.evidence),
)
BUCKETS = TableOf[Bucket](
    name="exchanges",
    caption="Buckets",
    columns=(
        *training_columns(lambda bucket: bucket[0].family),
        Column("backend", lambda bucket: cell_name(bucket[0].cell, bucket[0].evidence), numeric=False),
        Column("ranks", lambda bucket: bucket[0].cell.num_ranks),
        Column(
            "bucket", lambda bucket: Value(text=size_text(bucket[1].num_bytes), order=bucket[1].num_bytes)
        ),
        Column("per step", lambda bucket: bucket[1].count),
        Column("time", lambda bucket: bucket[1].seconds.times(1e3), unit="ms"),
        Column("algbw", lambda bucket: bucket[1].algbw.times(GIGA), unit="GB/s"),
        Column("busbw", lambda bucket: bucket[1].busbw.times(GIGA), unit="GB/s"),
    ),
    data=lambda bucket: _communication_row(*bucket),
    legend=COMMUNICATION_LEGEND,
    tags=lambda bucket: tags_of(bucket[0].cell),
    group=lambda bucket: bucket[0].cell.id,
)


def buckets(found: Iterable[Communication], *, most: int | None = None) -> list[Bucket]:
    """Each exchange with each of its sizes of buckets, or with the `most` in which most bytes travel."""
    rows = []
    for exchange in found:
        kept = sorted(exchange.alone.sizes, key=lambda size: -size.step_bytes)[:most]
        rows += [(exchange, size) for size in exchange.alone.sizes if size in kept]
    return rows


def render_communication(found: Iterable[Communication]) -> Iterator[RenderableType]:
    """For the exchanges of one family; nothing without any."""
    found = list(found)
    if not found:
        return
    yield f"[bold]{escape(STEPS.caption)}[/bold]"
    largest = communications_on_most_ranks(found)
    yield from render_table(STEPS.of(found), caption=False)
    yield from render_table(BUCKETS.of(buckets(largest, most=MAX_SIZES)), caption=False, legend=False)
    for one in largest:
        yield escape(communication_sentence(one))
    for note in dict.fromkeys(_notes(found, largest)):
        yield f"[dim]{escape(note)}.[/dim]"
    yield ""


def _notes(found: Sequence[Communication], largest: Sequence[Communication]) -> Iterator[str]:
    for one in found:
        who = f"{backend_name(one.cell)} on {one.cell.num_ranks} ranks"
        yield from (f"{who}: {note}" for note in one.alone.notes)
        if one not in largest and one.reason:
            yield f"{who}: {one.reason}"
    for one in largest:
        sizes = sorted(one.alone.sizes, key=lambda size: -size.step_bytes)
        if rest := sizes[MAX_SIZES:]:
            share = number(sum(size.step_bytes for size in rest) * MEGA)
            yield f"{backend_name(one.cell)}: {len(rest)} further sizes of buckets, together {share} MB per step"
