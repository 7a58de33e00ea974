"""Time to solution: a sentence per cell, the way of every training, the time over ranks, and the table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from dlscale.analysis.declare import Column, Sentence, Shown, Table, TableOf, Value, brief, tags_of
from dlscale.analysis.families import Family
from dlscale.analysis.finding import Finding, tokens_column, training_columns
from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.solution_plots import (
    cell_sentences,
    compared_ways,
    frameworks_figure,
    learning_figure,
    solution_figure,
    solution_plots,
    ways_figure,
)
from dlscale.analysis.findings.solutions import (
    TimeToSolution,
    fastest_first,
    goal_text,
    times_to_solution,
    training_goal,
)
from dlscale.analysis.form import Form
from dlscale.analysis.measured import Measured
from dlscale.analysis.plots import Block, Figure
from dlscale.analysis.records import algorithm_text, attributes, options_text, tokens_per_second
from dlscale.analysis.text import cell_name, interval_columns, number, training_title
from dlscale.benchmarks.records.target import Target


def to_solution_row(row: TimeToSolution) -> dict[str, Any]:
    """A cell's row. Seconds are from the launch, `training_seconds` from the first step and without evaluations.

    `seconds_per_step` and `seconds_per_epoch` are medians over trainings of each one's median over windows: steps
    alone. `speed_up` and `training_speed_up` are the base's time over this cell's; the latter is `rate_ratio` over
    `samples_ratio`. `synchronous_*` are the same ratios of another algorithm to synchronous SGD over the same backend,
    options and ranks. `expected_seconds` is with restarts of trainings that end short of the target. `lost_seconds` are
    of all trainings together, and in no other number. `samples_per_second` is of training, evaluations left out;
    staleness counts the updates that a push had missed. `reference_*` are the ratios to synchronous SGD on as many
    ranks where several ways of training are compared; `verdict` holds for all of them together.
    """
    cell, target = row.cell, row.target
    return {
        **attributes(cell, "workload preset framework backend"),
        "backend_options": options_text(cell),
        "algorithm": cell.algorithm,
        "algorithm_options": algorithm_text(cell),
        **attributes(cell, "shard split num_ranks num_nodes global_batch"),
        **attributes(target, "metric threshold learning_rate"),
        "learning_rate_scaling": target.scaling,
        **_rules(target),
        **attributes(target, "evaluate_every"),
        "evidence": row.evidence,
        "num_trainings": len(row.trainings),
        **attributes(row, "num_reached closest evaluating_share saving_share num_resumed lost_seconds"),
        **interval_columns("seconds", row.seconds),
        **interval_columns("training_seconds", row.training_seconds),
        **interval_columns("samples", row.samples),
        **interval_columns("seconds_per_step", row.seconds_per_step),
        **interval_columns("seconds_per_epoch", row.seconds_per_epoch),
        **interval_columns("reached_share", row.share),
        **interval_columns("expected_seconds", row.expected),
        **interval_columns("speed_up", row.speed_up),
        **interval_columns("training_speed_up", row.training_speed_up),
        **interval_columns("rate_ratio", row.rate_ratio),
        **interval_columns("samples_ratio", row.samples_ratio),
        **interval_columns("synchronous_speed_up", row.synchronous.speed_up),
        **interval_columns("synchronous_rate_ratio", row.synchronous.rate_ratio),
        **interval_columns("synchronous_samples_ratio", row.synchronous.samples_ratio),
        **interval_columns("samples_per_second", row.samples_per_second),
        **interval_columns("tokens_per_second", tokens_per_second(cell, row.samples_per_second)),
        "mean_staleness": row.staleness and row.staleness.mean,
        "staleness_95": row.staleness and row.staleness.quantile(0.95),
        "reference": row.reference and row.reference.method,
        "verdict": row.verdict,
        **interval_columns("reference_speed_up", row.versus.speed_up),
        **interval_columns("reference_rate_ratio", row.versus.rate_ratio),
        **interval_columns("reference_samples_ratio", row.versus.samples_ratio),
    }


def _rules(target: Target) -> dict[str, Any]:
    """Columns of large-batch rules; None or empty where a rule has none."""
    schedule, optimizer = target.schedule, target.optimizer
    return {
        "warm_up_samples": schedule.warm_up_samples if schedule else 0,
        "decay_samples": schedule.decay_samples if schedule else [],
        "optimizer": optimizer.name if optimizer else "workload",
        "momentum": optimizer.momentum if optimizer else None,
    }


def evaluation_rows(rows: Iterable[TimeToSolution]) -> list[dict[str, Any]]:
    """Every evaluation of every training: where it stood after how many steps, samples and seconds.

    `seconds` are from the launch, evaluations included; `epoch` counts passes over the training samples. A metric that
    was not computed is None, as are both where the record does not say.
    """
    rows = list(rows)
    metrics = dict.fromkeys(
        name
        for row in rows
        for training in row.trainings
        for evaluation in training.solution.evaluations
        for name in evaluation.metrics
    )
    return [
        {
            **attributes(row.cell, "workload preset framework backend"),
            "backend_options": options_text(row.cell),
            "algorithm": row.cell.algorithm,
            "algorithm_options": algorithm_text(row.cell),
            **attributes(row.cell, "shard split"),
            "num_ranks": row.cell.num_ranks,
            "seed": training.seed,
            "end": training.solution.end,
            **attributes(evaluation, "step samples training_seconds evaluating_seconds"),
            "seconds": training.seconds_at(evaluation),
            "epoch": training.epoch_at(evaluation),
            "loss": evaluation.loss,
            **{name: evaluation.metrics.get(name) for name in metrics},
        }
        for row in rows
        for training in row.trainings
        for evaluation in training.solution.evaluations
    ]


def _reached(row: TimeToSolution) -> Value:
    return Value(text=f"{row.num_reached}/{len(row.trainings)}", order=row.num_reached)


def _of_base(row: TimeToSolution, value: Shown) -> Shown:
    """Nothing, not even a dash, where a study has no base case: a column of that is left out."""
    return value if row.base else ""


def _compared(row: TimeToSolution, value: Shown) -> Shown:
    """Likewise where ways of training are not compared."""
    return value if row.reference else ""


def _verdict(row: TimeToSolution) -> str:
    """Words that a narrow column can break."""
    return "is sync" if row.verdict == "reference" else row.verdict


_LEGEND = (
    "Time: from the launch until an evaluation found the target reached; gates are left out. Training: from the first "
    "step, without evaluations. Medians over all trainings, with order-statistic intervals; one that ended short of "
    "the target counts as longer than all that did not. Speed-up: the time of none on the base's ranks over this, "
    "paired by seed; rate (samples/s) over samples ratio is the speed-up of the training alone."
)
_DETAIL_LEGEND = (  # of columns that a screen does not show
    "Evaluating: its share of the time from the first step. Saving: the share of checkpoints, written and read, in the "
    "time; resumed: trainings of several launches; lost: their work that was done again, in no other number. Expected: "
    "seconds with restarts of trainings that ended short of the target. Versus sync: an algorithm's speed-up over "
    "synchronous SGD over the same backend. Per step, epoch: steps alone."
)

SOLUTIONS = TableOf[TimeToSolution](
    name="time-to-solution",
    caption="Time to solution",
    columns=(
        *training_columns(lambda row: row.family),
        Column("target", lambda row: goal_text(row.target), numeric=False, common=True),
        Column("backend", lambda row: cell_name(row.cell, row.evidence), numeric=False),
        Column("ranks", lambda row: row.cell.num_ranks),
        Column("nodes", lambda row: row.cell.num_nodes, detail=True),
        Column("reached", _reached),
        Column("time", lambda row: row.seconds, unit="s"),
        Column("training", lambda row: row.training_seconds, unit="s"),
        Column("evaluating", lambda row: 100 * row.evaluating_share, unit="%", detail=True),
        Column("saving", lambda row: row.saving_share and 100 * row.saving_share, unit="%", detail=True),
        Column("resumed", lambda row: row.num_resumed or None, detail=True),
        Column("lost", lambda row: row.lost_seconds or None, unit="s", detail=True),
        Column("expected", lambda row: row.expected, unit="s", detail=True),
        Column("samples", lambda row: row.samples),
        Column("samples/s", lambda row: _compared(row, row.samples_per_second)),
        tokens_column(lambda row: row.cell, lambda row: row.samples_per_second, detail=True),
        Column("updates missed", lambda row: _compared(row, row.staleness.mean if row.staleness else None)),
        Column(
            "95 %",
            lambda row: _compared(row, row.staleness.quantile(0.95) if row.staleness else None),
            unit="<=",
        ),
        Column("per step", lambda row: row.seconds_per_step.times(1000), unit="ms", detail=True),
        Column("per epoch", lambda row: row.seconds_per_epoch, unit="s", detail=True),
        Column("speed-up", lambda row: _of_base(row, row.speed_up)),
        Column("rate", lambda row: _of_base(row, row.rate_ratio), unit="of base"),
        Column("samples ratio", lambda row: _of_base(row, row.samples_ratio), unit="of base"),
        Column("versus sync", lambda row: row.synchronous.speed_up, detail=True),
        Column("closest", lambda row: row.closest, detail=True),
        Column("learning rate", lambda row: number(row.target.learning_rate), detail=True),
        Column("speed-up over sync", lambda row: _compared(row, row.versus.speed_up)),
        Column("verdict", _verdict, numeric=False),
    ),
    data=to_solution_row,
    legend=f"{_LEGEND} {_DETAIL_LEGEND}",
    tags=lambda row: tags_of(row.cell),
)

_COMPARED_LEGEND = (
    "Updates missed: the staleness of what was pushed, the mean and the most that 95 % of the pushes had missed; none "
    "where ranks step together. Over sync: the speed-up, paired by seed, over synchronous SGD on as many ranks, over "
    "the ring if it is there. Its interval is of one comparison; sooner and later hold for all of the table together."
)


def solution_table(rows: Sequence[TimeToSolution]) -> Table:
    """The table of these rows; its legend says more where ways of training are compared."""
    return replace(SOLUTIONS.of(rows), legend=_legend(rows, SOLUTIONS.legend))


def _legend(rows: Iterable[TimeToSolution], legend: str) -> str:
    return f"{legend} {_COMPARED_LEGEND}" if any(row.reference for row in rows) else legend


def _sentences(rows: Sequence[TimeToSolution]) -> Iterator[Sentence]:
    for row, sentence in zip(fastest_first(rows), cell_sentences(rows), strict=True):
        yield Sentence(text=sentence, tags=tags_of(row.cell))


def _screen(study: Measured) -> Iterator[Block]:
    """Each family with a sentence per cell and its table."""
    rows = FINDING.of(study)
    for family in study.families:
        own = [row for row in rows if row.family == family]
        if not own:
            continue
        yield Sentence(text=training_title(family), strong=True)
        yield Sentence(text=training_goal(own))
        yield from scaling.unchecked(row.cell for row in own)
        yield from (Sentence(text=row.text) for row in fastest_first(own))
        # Ways of training are told apart by more columns; the page has what these leave no room for.
        without = ("training", "ranks") if any(row.reference for row in own) else ()
        yield brief(SOLUTIONS.of(own), without=without)
        yield Sentence(text=_legend(own, _LEGEND), quiet=True)


def _solved(study: Measured, family: Family, form: Form) -> list[TimeToSolution]:
    return [row for row in FINDING.of(study) if row.family == family and form.draws(row.cell)]


def _time_figure(study: Measured, family: Family, form: Form) -> Figure | None:
    rows = _solved(study, family, form)
    figure = solution_figure(family, rows, study.provenance) if rows else None
    return figure and replace(figure, rows=[to_solution_row(row) for row in rows], beside=_evaluations(rows))


def _evaluations(rows: Sequence[TimeToSolution]) -> dict[str, list[dict[str, Any]]]:
    every = evaluation_rows(rows)
    return {"evaluations": every} if every else {}


def _ways_figure(study: Measured, family: Family, form: Form) -> Figure | None:
    rows = compared_ways(_solved(study, family, form))
    figure = ways_figure(family, rows, study.provenance)
    return figure and replace(figure, rows=[to_solution_row(row) for row in rows])


def _learning_figure(study: Measured, family: Family, form: Form) -> Figure | None:
    rows = _solved(study, family, form)
    figure = learning_figure(family, rows, study.provenance) if rows else None
    return figure and replace(figure, beside=_evaluations(rows))


def _frameworks(study: Measured, form: Form) -> Iterator[tuple[str, Figure]]:
    """A figure per training with a target that was run in several frameworks."""
    alike: dict[Family, dict[Family, Sequence[TimeToSolution]]] = {}
    for family in study.families:
        if own := _solved(study, family, form):
            alike.setdefault(replace(family, framework=""), {})[family] = own
    for common, families in alike.items():
        if len(families) < 2:
            continue
        declared = frameworks_figure(families, study.provenance)
        lines = [to_solution_row(row) for own in families.values() for row in own]
        stem = "-".join(part for part in common.file_stem.split("-") if part) + "-frameworks"
        yield stem, replace(declared, rows=lines)


FINDING = Finding(
    name="time_to_solution",
    title="Time to solution",
    answers=True,
    lead=(
        "Every training went on until its metric reached the target on held-out samples, or its time was over. "
        "One line is one training, each with a seed of its own."
    ),
    compute=lambda study: times_to_solution(study.launches, base=study.base),
    sentences=_sentences,
    plots=solution_plots,
    figures={
        "time-to-solution": _time_figure,
        "algorithms": _ways_figure,
        "learning-curves": _learning_figure,
    },
    files=_frameworks,
    more=lambda rows: (solution_table(rows),),
    screen=_screen,
    data=lambda rows: {
        "time_to_solution": [to_solution_row(row) for row in rows],
        "evaluations": evaluation_rows(rows),
    },
)
FINDINGS = (FINDING,)
