"""Communication of each training: the exchange by itself, the share of it that is overlapped, and the predicted step.

A step should take, with the computation of `none` on as many ranks, in world seconds of the same blocks:

    in line       computation + exchange
    overlapped    between max(computation, exchange) and computation + exchange

A waterfall's exposed communication over the time of communication only is the share that is not overlapped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from dlscale.analysis.declare import (
    PLACE_COLUMNS,
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
from dlscale.analysis.families import Family, curve_order
from dlscale.analysis.finding import Finding
from dlscale.analysis.findings import scaling, waterfall
from dlscale.analysis.findings.bandwidth_plots import GIGA, MEGA, busbw_figure, busbw_plot
from dlscale.analysis.findings.communication_only import BucketSize, CommunicationOnly, communication_only
from dlscale.analysis.findings.scaling import rows_of
from dlscale.analysis.findings.waterfall_levels import without_communication
from dlscale.analysis.findings.waterfall_parts import EXPOSED, Waterfall
from dlscale.analysis.form import Form
from dlscale.analysis.launches import Block, CellLaunches, good_launches
from dlscale.analysis.measured import Measured
from dlscale.analysis.records import options_text
from dlscale.analysis.statistics import (
    INSUFFICIENT,
    LEVEL,
    Interval,
    block_difference,
    block_ratio,
    median_interval,
)
from dlscale.analysis.text import (
    backend_name,
    flaws_text,
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

IN_LINE = "in line"  # as in `records.exchange_mode`
NOT_OVERLAPPED = "not overlapped: the exchange begins when the computation has ended, so nothing is hidden"
ByBlock = Mapping[Block, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPrediction:
    """The predicted and the measured step, over the blocks common to training, computation and exchange."""

    computation: Interval  # seconds, medians
    measured: Interval
    shortest: float  # predicted: seconds, of geometric means; both ends are equal in line
    longest: float
    of_sum: Interval  # measured over computation + exchange, paired
    hidden: Interval | None  # 0 at `longest`, 1 at `shortest`, paired; None in line


def predict_step(
    training: ByBlock, computation: ByBlock, exchange: ByBlock, *, how: str
) -> StepPrediction | None:
    """Predict a training's step from block -> seconds, and compare it; None without a common block."""
    common = [block for block in training if block in computation and block in exchange]
    if not common:
        return None
    measured, computed, alone = (
        {block: seconds[block] for block in common} for seconds in (training, computation, exchange)
    )
    typical, typical_alone = _typical(computed), _typical(alone)
    high = typical + typical_alone
    hidden = None
    if how != IN_LINE:
        # (computation + exchange - measured) / the shorter one, the most that can be overlapped, which is
        # 1 - (measured - longer) / shorter.
        longer, shorter = (computed, alone) if typical_alone <= typical else (alone, computed)
        hidden = block_difference(measured, longer, shorter).complement()
    return StepPrediction(
        computation=median_interval(list(computed.values())),
        measured=median_interval(list(measured.values())),
        shortest=high if how == IN_LINE else max(typical, typical_alone),
        longest=high,
        of_sum=block_ratio(measured, {block: computed[block] + alone[block] for block in common}),
        hidden=hidden,
    )


def _typical(values: ByBlock) -> float:
    return float(np.exp(np.mean(np.log(list(values.values())))))


def overlap(waterfall: Waterfall, alone: ByBlock, measured: ByBlock, *, exchange: str) -> Interval | str:
    """The overlapped share, 1 - exposed / alone, or why it is not known. Negative if training slows the exchange.

    Stragglers are excluded: the waterfall has them as a separate part. `alone`: block -> seconds of one step's exchange
    as communication only, on as many ranks. `measured`: block -> seconds per step of the waterfall's training.
    `exchange` is the mode that the backend reported: "in line", "overlapped", "mixed" or empty.

    The interval is paired by block. If the waterfall has no blocks, or other ones, it is that of a quotient of two
    independent estimates, to first order.
    """
    index = next((number for number, part in enumerate(waterfall.parts) if part.names == (EXPOSED,)), None)
    if exchange == IN_LINE:
        return NOT_OVERLAPPED
    if index is None:
        return "exposed communication is not known by itself"
    if not alone:
        return "the exchange alone was not measured at the sizes of this network"
    blocks = [block for block, _ in waterfall.by_block if block in alone and block in measured]
    if not blocks:
        return _unpaired_overlap(waterfall.parts[index].seconds, median_interval(list(alone.values())))
    losses = dict(waterfall.by_block)
    exposed = block_difference(
        {block: measured[block] for block in blocks},
        # The step without exposed communication.
        {block: measured[block] * (1 - losses[block][index]) for block in blocks},
        {block: alone[block] for block in blocks},
    )
    return exposed.complement()


def _unpaired_overlap(exposed: Interval, alone: Interval) -> Interval:
    ratio, half = exposed.center / alone.center, None
    if None not in (exposed.low, exposed.high, alone.low, alone.high):
        half = math.hypot(_half_width(exposed), ratio * _half_width(alone)) / alone.center
    return Interval(
        center=1 - ratio,
        low=None if half is None else 1 - ratio - half,
        high=None if half is None else 1 - ratio + half,
        level=exposed.level,
        method=f"{INSUFFICIENT}, unpaired" if half is None else "unpaired t",
        n=min(exposed.n, alone.n),
    )


def _half_width(interval: Interval) -> float:
    return ((interval.high or 0.0) - (interval.low or 0.0)) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """A cell's exchange, measured as communication only, beside its training."""

    alone: CommunicationOnly
    cell: Cell  # of the training
    how: str  # "in line", "overlapped", "mixed"; empty if the backend did not report it
    step: StepPrediction | None = None
    step_reason: str = ""  # why there is no prediction
    hidden: Interval | None = None  # the overlapped share
    hidden_reason: str = ""  # why it is not known

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
    by_cell = {(one.family, one.cell.id, one.evidence): one for one in waterfalls}
    exchanges = [_communication(alone, trained, by_cell) for alone in communication_only(measured)]
    return tuple(sorted(exchanges, key=lambda one: curve_order(one.family, one.cell, one.evidence)))


def _communication(
    alone: CommunicationOnly,
    trained: Sequence[CellLaunches],
    waterfalls: Mapping[tuple[Family, str, str], Waterfall],
) -> Communication:
    cell = alone.cell.model_copy(update={"control": "train"})
    alike = [one for one in trained if (one.family, one.evidence) == (alone.family, alone.evidence)]
    training = next((one for one in alike if one.cell == cell), None)
    if training is None:
        return Communication(alone=alone, cell=cell, how="", step_reason="no training gave a number")
    seconds, how = training.by_block("world"), training.exchange
    loss, hidden = waterfalls.get((alone.family, cell.id, alone.evidence)), None
    reason = "where its speed goes is not known"
    if loss:
        found = overlap(loss, alone.by_block, seconds, exchange=how)
        hidden, reason = (None, found) if isinstance(found, str) else (found, "")
    none = without_communication(training, alike)
    step = predict_step(seconds, none.by_block("world"), alone.by_block, how=how) if none else None
    what = f"none on {cell.num_ranks} ranks"
    return Communication(
        alone=alone,
        cell=cell,
        how=how,
        step=step,
        step_reason="" if step else f"no block in common with {what}" if none else f"{what} was not measured",
        hidden=hidden,
        hidden_reason=reason,
    )


def communications_on_most_ranks(exchanges: Iterable[Communication]) -> list[Communication]:
    """The exchange on the most ranks, for each family, backend and kind of evidence."""
    groups: dict[tuple[object, ...], list[Communication]] = {}
    for one in exchanges:
        groups.setdefault((one.family, backend_name(one.cell), one.evidence), []).append(one)
    return [max(group, key=lambda one: one.cell.num_ranks) for group in groups.values()]


def communication_sentence(exchange: Communication) -> str:
    """`ring on 2 ranks: the exchange of 2.37 MB takes 1.20 ms alone [1.10, 1.30] at 3.95 GB/s (busbw); ... .`"""
    alone = exchange.alone
    kind = "" if exchange.evidence == "measured" else f" ({exchange.evidence})"
    took = with_limits(alone.seconds.times(1e3), unit=" ms alone")
    return (
        f"{backend_name(exchange.cell)}{kind} on {exchange.cell.num_ranks} ranks: the exchange of "
        f"{number(alone.num_bytes * MEGA)} MB takes {took} at {number(alone.busbw.center * GIGA)} GB/s (busbw); "
        f"{_hidden_text(exchange)}."
    )


def _hidden_text(exchange: Communication) -> str:
    hidden = exchange.hidden
    if exchange.how == IN_LINE and exchange.step:
        return f"nothing is hidden; a step is {ratio_text(exchange.step.of_sum)} of computation plus exchange"
    if exchange.how == IN_LINE:
        return f"nothing is hidden; what the step should take is not known, {exchange.step_reason}"
    if hidden is None:
        why = exchange.hidden_reason or exchange.step_reason
        return f"how much of it is hidden is not known, {why}"
    if hidden.center >= 0:
        return f"{percent(hidden)} of it is hidden behind the computation{flaws_text(hidden)}"
    longer = f"{ratio_text(hidden.complement())} of that time{flaws_text(hidden)}"
    return f"nothing is hidden: beside the computation a step is longer by {longer}"


Bucket = tuple[Communication, BucketSize]


def buckets(exchanges: Iterable[Communication]) -> list[Bucket]:
    """Each exchange with each of its bucket sizes."""
    return [(exchange, size) for exchange in exchanges for size in exchange.alone.sizes]


def communication_rows(exchanges: Iterable[Communication]) -> list[dict[str, Any]]:
    """One flat row per exchange and size of bucket.

    `exchange_seconds` is the time of a whole step, `bucket_seconds` that of one bucket. `hidden` is the overlapped
    share of the exchange's own time, stragglers excluded. `hidden_of_prediction` is the position of the measured step
    in the range of the prediction: 0 at `predicted_high_seconds`, 1 at `predicted_low_seconds`.
    """
    return [_bucket_row(bucket) for bucket in buckets(exchanges)]


def _step_row(exchange: Communication) -> dict[str, Any]:
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
        "predicted_low_seconds": step.shortest if step else None,
        "predicted_high_seconds": step.longest if step else None,
        **interval_columns("measured_over_sum", step.of_sum if step else None),
        **interval_columns("hidden_of_prediction", step.hidden if step else None),
        **interval_columns("hidden", exchange.hidden),
    }


def _bucket_row(bucket: Bucket) -> dict[str, Any]:
    exchange, size = bucket
    reasons = dict.fromkeys(filter(None, (exchange.step_reason, exchange.hidden_reason)))
    return {
        **_step_row(exchange),
        "bucket_bytes": size.num_bytes,
        "num_buckets": size.count,
        **interval_columns("bucket_seconds", size.seconds),
        **interval_columns("algbw_gb_per_second", size.algbw.times(GIGA)),
        **interval_columns("busbw_gb_per_second", size.busbw.times(GIGA)),
        "notes": "; ".join(exchange.alone.notes),
        "reason": "; ".join(reasons) or None,
    }


def _predicted(exchange: Communication) -> Shown:
    step = exchange.step
    if step is None:
        return None
    high = number(1e3 * step.longest)
    text = high if exchange.how == IN_LINE else f"{number(1e3 * step.shortest)} to {high}"
    return Value(text=text, order=step.longest)


def _of_step(value: Callable[[StepPrediction], Shown]) -> Callable[[Communication], Shown]:
    return lambda exchange: value(exchange.step) if exchange.step else None


STEPS = TableOf[Communication](
    name="exchange-steps",
    caption="Communication alone, and the step that it predicts",
    columns=(
        *PLACE_COLUMNS,
        Column("alone", lambda exchange: exchange.alone.seconds.times(1e3), unit="ms"),
        Column("compute", _of_step(lambda step: step.computation.times(1e3)), unit="ms"),
        Column("predicted", _predicted, unit="ms"),
        Column("step", _of_step(lambda step: step.measured.times(1e3)), unit="ms"),
        Column("step/sum", _of_step(lambda step: shown_interval(step.of_sum, "{:.2f}".format))),
        Column("overlapped", lambda exchange: shown_interval(exchange.hidden, points), unit="%"),
        Column("n", _of_step(lambda step: step.of_sum.n)),
    ),
    data=_step_row,
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
    data=_bucket_row,
    legend=(
        "Alone: one bucket after the other while no rank computes. Compute: none on as many ranks. Predicted of a "
        "step: their sum where the exchange is not overlapped; else between the longer one and the sum. Step / sum: "
        "measured step time / (compute + communication); hidden: share of communication overlapped, stragglers "
        f"excluded; with {100 * LEVEL:.0f} % t intervals over n blocks of launches. Buckets: the slowest rank's mean "
        "time of one, the median over launches; busbw is algbw x 2 (P - 1) / P."
    ),
    tags=lambda bucket: tags_of(bucket[0].cell),
    group=lambda bucket: bucket[0].cell.id,
)


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
