"""Communication of each training: what `overlap` computes of it, in words, tables and plots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any

from dlscale.analysis.declare import Column, Sentence, Shown, TableOf, Value, shown_interval, tags_of
from dlscale.analysis.families import Family
from dlscale.analysis.finding import PLACE_COLUMNS, Finding, place_columns
from dlscale.analysis.findings import scaling, waterfall
from dlscale.analysis.findings.bandwidth_plots import GIGA, MEGA, busbw_figure, busbw_plot
from dlscale.analysis.findings.communication_only import BucketSize
from dlscale.analysis.findings.overlap import (
    IN_LINE,
    Communication,
    StepPrediction,
    communications,
    communications_on_most_ranks,
)
from dlscale.analysis.findings.scaling import rows_of
from dlscale.analysis.form import Form
from dlscale.analysis.measured import Measured
from dlscale.analysis.plots import Figure, Plot
from dlscale.analysis.records import options_text
from dlscale.analysis.text import (
    RATIO_LIMITS,
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
        return f"no overlap; a step is {ratio_text(exchange.step.of_sum)} of computation plus exchange"
    if exchange.how == IN_LINE:
        return f"no overlap; what the step should take is not known, {exchange.step_reason}"
    if hidden is None:
        why = exchange.hidden_reason or exchange.step_reason
        return f"how much of it is overlapped is not known, {why}"
    if hidden.center >= 0:
        return f"{percent(hidden)} of it is overlapped with the computation{flaws_text(hidden)}"
    longer = f"{ratio_text(hidden.complement())} of that time{flaws_text(hidden)}"
    return f"no overlap: beside the computation a step is longer by {longer}"


Bucket = tuple[Communication, BucketSize]


def buckets(exchanges: Iterable[Communication]) -> list[Bucket]:
    """Each exchange with each of its bucket sizes."""
    return [(exchange, size) for exchange in exchanges for size in exchange.alone.sizes]


def _of_several_sizes(exchanges: Iterable[Communication]) -> list[Bucket]:
    """All buckets; none where each exchange has one size, of which the exchange as a whole says the same."""
    every = buckets(exchanges)
    return every if any(len(exchange.alone.sizes) > 1 for exchange, _ in every) else []


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
        *place_columns(lambda bucket: bucket[0]),
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
        f"excluded; with {RATIO_LIMITS} over n blocks of launches. Buckets: the slowest rank's mean "
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
    lead="The training's messages, sent without any computation: what a perfect overlap would save.",
    compute=lambda study: communications(study.cells, waterfall.FINDING.of(study)),
    table=STEPS,
    sentences=_sentences,
    plots=_plots,
    figures={"busbw": _figure},
    more=lambda exchanges: (BUCKETS.of(_of_several_sizes(exchanges)),),
    data=lambda exchanges: {"exchanges": communication_rows(exchanges)},
)
FINDINGS = (FINDING,)
