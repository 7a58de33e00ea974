"""Communication of each training: communication only, the share that is overlapped, and the predicted step.

The arithmetic comes first, then the sentences, the columns and the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from dlscale.analysis.declare import (
    Column,
    Figure,
    Plot,
    Sentence,
    Shown,
    TableOf,
    Value,
    cell_name,
    shown_interval,
    tags_of,
    training_columns,
)
from dlscale.analysis.families import Family
from dlscale.analysis.finding import Finding
from dlscale.analysis.findings import scaling, waterfall
from dlscale.analysis.findings.bandwidth_plots import GIGA, MEGA, busbw_figure, busbw_plot
from dlscale.analysis.findings.communication_only import BucketSize, CommunicationOnly, communication_only
from dlscale.analysis.findings.overlap import (
    IN_LINE,
    Overlap,
    StepPrediction,
    computation_of,
    overlap,
    predict_step,
)
from dlscale.analysis.findings.scaling import rows_of
from dlscale.analysis.findings.waterfall_parts import Waterfall
from dlscale.analysis.form import Form
from dlscale.analysis.launches import CellLaunches, good_launches
from dlscale.analysis.measured import Measured
from dlscale.analysis.records import options_text
from dlscale.analysis.statistics import LEVEL, Interval
from dlscale.analysis.text import (
    backend_name,
    interval_columns,
    number,
    percent,
    points,
    ratio_text,
    size_text,
    with_limits,
    workload_title,
)
from dlscale.benchmarks.records.record import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """A cell's exchange, measured as communication only. Without `step`, `reason` says what is missing."""

    alone: CommunicationOnly
    cell: Cell  # of the training
    how: str  # "in line", "overlapped", "mixed"; empty if the backend did not report it
    step: StepPrediction | None
    overlap: Overlap
    reason: str = ""

    @property
    def family(self) -> Family:
        """The training's family."""
        return self.alone.family

    @property
    def evidence(self) -> str:
        """The kind of evidence of all launches used."""
        return self.alone.evidence


def communications(
    measured: Sequence[CellLaunches], waterfalls: Iterable[Waterfall]
) -> tuple[Communication, ...]:
    """One for each exchange measured as communication only on more than 1 rank, by family, backend and ranks.

    `waterfalls` must be computed from the same launches.
    """
    trained = good_launches(measured, controls={"train"})
    falls = {(waterfall.family, waterfall.cell.id, waterfall.evidence): waterfall for waterfall in waterfalls}
    exchanges = []
    for alone in communication_only(measured):
        cell = alone.cell.model_copy(update={"control": "train"})
        fall = falls.get((alone.family, cell.id, alone.evidence))
        exchanges.append(_communication(alone, cell, trained, fall))
    return tuple(sorted(exchanges, key=_communication_order))


def communications_on_most_ranks(exchanges: Iterable[Communication]) -> list[Communication]:
    """The exchange on the most ranks, for each family, backend and kind of evidence."""
    largest: dict[tuple[object, ...], Communication] = {}
    for exchange in exchanges:
        key = (exchange.family, backend_name(exchange.cell), exchange.evidence)
        if key not in largest or largest[key].cell.num_ranks < exchange.cell.num_ranks:
            largest[key] = exchange
    return list(largest.values())


def _communication(
    alone: CommunicationOnly, cell: Cell, trained: Sequence[CellLaunches], waterfall: Waterfall | None
) -> Communication:
    training = next(
        (
            launches
            for launches in trained
            if (launches.cell, launches.family, launches.evidence) == (cell, alone.family, alone.evidence)
        ),
        None,
    )
    nothing = Overlap(hidden=None)
    if training is None:
        return Communication(
            alone=alone, cell=cell, how="", step=None, overlap=nothing, reason="no training gave a number"
        )
    seconds, how = training.by_block("world"), training.exchange
    hidden = Overlap(hidden=None, reason="where its speed goes is not known")
    if waterfall:
        hidden = overlap(waterfall, alone.by_block, seconds, exchange=how)
    none = computation_of(training, trained)
    predicted = predict_step(seconds, none.by_block("world"), alone.by_block, how=how) if none else None
    reason = ""
    if not predicted:
        what = f"none on {cell.num_ranks} ranks"
        reason = f"no block in common with {what}" if none else f"{what} was not measured"
    return Communication(alone=alone, cell=cell, how=how, step=predicted, overlap=hidden, reason=reason)


def _communication_order(exchange: Communication) -> tuple[object, ...]:
    cell = exchange.cell
    options = tuple(sorted((name, str(value)) for name, value in cell.backend_options.items()))
    return exchange.family, cell.backend, options, cell.num_ranks, cell.num_nodes, exchange.evidence


def communication_sentence(exchange: Communication) -> str:
    """`ring on 2 ranks: the exchange of 2.37 MB takes 1.20 ms alone [1.10, 1.30] at 3.95 GB/s (busbw); ... .`"""
    alone = exchange.alone
    name = backend_name(exchange.cell) + (
        "" if exchange.evidence == "measured" else f" ({exchange.evidence})"
    )
    took = with_limits(alone.seconds.times(1e3), unit=" ms alone")
    return (
        f"{name} on {exchange.cell.num_ranks} ranks: the exchange of {number(alone.num_bytes * MEGA)} MB takes {took} "
        f"at {number(alone.busbw.center * GIGA)} GB/s (busbw); {_hidden(exchange)}."
    )


def _hidden(exchange: Communication) -> str:
    if exchange.how == IN_LINE:
        if exchange.step is None:
            return f"nothing is hidden; what the step should take is not known, {exchange.reason}"
        return (
            f"nothing is hidden; the step is {ratio_text(exchange.step.of_sum)} of computation plus exchange"
        )
    hidden = exchange.overlap.hidden
    if hidden is None:
        why = exchange.overlap.reason or exchange.reason
        return f"how much of it is hidden is not known, {why}{_between(exchange)}"
    flaw = "" if hidden.low is not None else f", of {hidden.n} block{'s' * (hidden.n > 1)}: no interval"
    if hidden.center < 0:
        return (
            "nothing is hidden: beside the computation a step is longer by "
            f"{ratio_text(hidden.complement())} of that time{flaw}"
        )
    return f"{percent(hidden)} of it is hidden behind the computation{flaw}"


def _between(exchange: Communication) -> str:
    """The range of the prediction, for an exchange whose overlapped share is not known."""
    if exchange.step is None:
        return ""
    low, high, measured = (
        number(1e3 * seconds)
        for seconds in (exchange.step.shortest, exchange.step.longest, exchange.step.measured.center)
    )
    return f"; the step takes {measured} ms, predicted {low} if all of it is overlapped, {high} if nothing is"


def communication_rows(exchanges: Iterable[Communication]) -> list[dict[str, Any]]:
    """One flat row per exchange and size of bucket.

    `exchange_seconds` is the time of a whole step, `bucket_seconds` that of one bucket. `hidden` is the overlapped
    share of the exchange's own time, stragglers excluded. `hidden_of_prediction` is the position of the measured step
    in the range of the prediction: 0 at `predicted_high_seconds`, 1 at `predicted_low_seconds`.
    """
    return [_communication_row(*bucket) for bucket in buckets(exchanges)]


def _communication_row(exchange: Communication, size: BucketSize) -> dict[str, Any]:
    return {
        **_step_columns(exchange),
        **_bucket_columns(size),
        "notes": "; ".join(exchange.alone.notes),
        "reason": _reason(exchange),
    }


def _step_columns(exchange: Communication) -> dict[str, Any]:
    alone, step = exchange.alone, exchange.step
    return {
        "system": exchange.family.system,
        **exchange.cell.model_dump(exclude={"control"}),
        "backend_options": options_text(exchange.cell),
        "evidence": exchange.evidence,
        "exchange": exchange.how or None,
        "step_bytes": alone.num_bytes,
        **interval_columns("exchange_seconds", alone.seconds),
        "step_busbw_gb_per_second": alone.busbw.center * GIGA,
        **interval_columns("computation_seconds", step.computation if step else None),
        **interval_columns("measured_seconds", step.measured if step else None),
        "predicted_low_seconds": step and step.shortest,
        "predicted_high_seconds": step and step.longest,
        **interval_columns("measured_over_sum", step.of_sum if step else None),
        **interval_columns("hidden_of_prediction", step.hidden if step else None),
        **interval_columns("hidden", exchange.overlap.hidden),
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
            for name, interval in intervals.items()
            for key, value in interval_columns(name, interval).items()
        },
    }


def _reason(exchange: Communication) -> str | None:
    """The reasons for missing numbers."""
    return "; ".join(dict.fromkeys(filter(None, (exchange.reason, exchange.overlap.reason)))) or None


MAX_SIZES = 6  # per exchange: the sizes with the most bytes
COMMUNICATION_LEGEND = (
    "Alone: one bucket after the other while no rank computes. Compute: none on as many ranks. Predicted of a step: "
    "their sum where the exchange is not overlapped; else between the longer one and the sum. Step / sum: measured "
    "step time / (compute + communication); hidden: share of communication overlapped, stragglers excluded; with "
    f"{100 * LEVEL:.0f} % t intervals over n blocks of launches. Buckets: the slowest rank's mean time of one, the "
    "median over launches; busbw is "
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


def buckets(exchanges: Iterable[Communication], *, most: int | None = None) -> list[Bucket]:
    """Each exchange with each of its bucket sizes, or only with the `most` sizes that have the most bytes."""
    rows = []
    for exchange in exchanges:
        kept = sorted(exchange.alone.sizes, key=lambda size: -size.step_bytes)[:most]
        rows += [(exchange, size) for size in exchange.alone.sizes if size in kept]
    return rows


def _sentences(exchanges: Iterable[Communication]) -> Iterator[Sentence]:
    for exchange in communications_on_most_ranks(exchanges):
        name = f"{workload_title(exchange.cell.workload)} ({exchange.cell.framework})"
        yield Sentence(text=f"{name}: {communication_sentence(exchange)}", tags=tags_of(exchange.cell))


def _plots(exchanges: Iterable[Communication]) -> Iterator[Plot]:
    """Bus bandwidth over the size of a bucket, per family, on the most ranks."""
    largest = communications_on_most_ranks(exchanges)
    for index, (family, group) in enumerate(groupby(largest, key=lambda exchange: exchange.family)):
        yield busbw_plot(f"busbw-{index}", family, list(group))


def _figure(study: Measured, family: Family, form: Form) -> Figure | None:
    own = [found for found in FINDING.of(study) if found.family == family and form.draws(found.cell)]
    if not own:
        return None
    figure, shown = busbw_figure(rows_of(scaling.FINDING.of(study), family), own, study.provenance)
    return replace(figure, rows=communication_rows(shown))


FINDING = Finding(
    name="exchanges",
    title="Communication only",
    lead="One bucket of the training's after the other, while nobody computes: what a perfect overlap would hide.",
    compute=lambda study: communications(study.cells, waterfall.FINDING.of(study)),
    table=STEPS,
    sentences=_sentences,
    plots=_plots,
    figures={"busbw": _figure},
    more=lambda exchanges: (BUCKETS.of(buckets(exchanges)),),
    data=lambda exchanges: {"exchanges": communication_rows(exchanges)},
)
FINDINGS = (FINDING,)
