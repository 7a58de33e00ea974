"""Searches of learning rates: what every rate of a grid needed to the target, and the one to use.

The cost of a rate is the expected number of samples to the target with restarts (`censored.expected_cost`): samples and
not seconds, so that neither a busy machine nor a fast backend decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dlscale.analysis.censored import Run, expected_cost, median_cost
from dlscale.analysis.declare import Column, Sentence, TableOf, Value, brief, tags_of
from dlscale.analysis.families import Family
from dlscale.analysis.finding import Finding, training_columns
from dlscale.analysis.findings import scaling, solution_table
from dlscale.analysis.findings.interference import is_busy
from dlscale.analysis.findings.scaling import ScalingRow
from dlscale.analysis.findings.solutions import TimeToSolution, goal_text, training_goal
from dlscale.analysis.findings.trainings import Training, closest_value, metric_of
from dlscale.analysis.measured import Measured
from dlscale.analysis.plots import Block
from dlscale.analysis.records import attributes
from dlscale.analysis.statistics import Interval
from dlscale.analysis.text import interval_columns, listed, number, plural, training_title, with_limits
from dlscale.base.quantities import format_seconds
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.target import Target
from dlscale.benchmarks.records.tuning import RateConfiguration, configuration_of


@dataclass(frozen=True, kw_only=True)  # no slots: values are computed at first use, and kept
class TriedRate:
    """The trainings of one configuration at one learning rate."""

    cell: Cell
    target: Target  # the cell's
    trainings: tuple[Training, ...]
    num_planned: int

    @property
    def rate(self) -> float:
        return self.target.learning_rate

    @property
    def num_reached(self) -> int:
        return sum(training.reached for training in self.trainings)

    @property
    def num_diverged(self) -> int:
        """Trainings whose loss was no number in the end."""
        return sum(training.solution.end == "diverged" for training in self.trainings)

    @property
    def num_out_of_time(self) -> int:
        """Trainings that the clock ended before they had their samples."""
        limit = self.target.max_samples or 0
        return sum(
            training.solution.end == "budget" and training.last.samples < limit for training in self.trainings
        )

    @property
    def runs(self) -> list[Run]:
        """Samples of each training until it reached the target, or until it ended."""
        return [Run(training.last.samples, training.reached) for training in self.trainings]

    @cached_property
    def expected(self) -> Interval | None:
        """Samples to the target, with restarts; None if no training reached it."""
        return expected_cost(self.runs, limit=self.target.max_samples or 0)

    @property
    def closest(self) -> float | None:
        """The best value of the metric that any training had."""
        return closest_value(self.cell, self.target, self.trainings)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSearch:
    """The rates that one configuration was trained at, in ascending order; two or more."""

    configuration: RateConfiguration
    family: Family
    evidence: str
    tried: tuple[TriedRate, ...]

    @property
    def complete(self) -> bool:
        """Whether every planned training has a result: only then all rates had the same budget."""
        counts = [len(rate.trainings) for rate in self.tried]
        return len(set(counts)) == 1 and counts == [rate.num_planned for rate in self.tried]

    @property
    def best(self) -> TriedRate | None:
        """The rate of the least expected number of samples, the smallest of several; None if there is none yet."""
        if not self.complete:
            return None
        return min((rate for rate in self.tried if rate.expected), key=_cost, default=None)

    @property
    def closest(self) -> TriedRate | None:
        """The rate of the training with the best value of the metric; None if none had any."""
        near = [rate for rate in self.tried if rate.closest is not None]
        better = max if near and _higher_is_better(near[0]) else min
        return better(near, key=lambda rate: rate.closest or 0.0, default=None)

    @property
    def text(self) -> str:
        """A sentence with the choice, or why there is none, and what is doubtful about it."""
        cell, target, best = self.tried[0].cell, self.tried[0].target, self.best
        where = f"{_variant(cell)} on {plural(cell.num_ranks, 'rank')}, global batch {cell.global_batch}"
        if not self.complete:
            done, planned = self.num_trainings, sum(rate.num_planned for rate in self.tried)
            return f"{where}: {done} of {planned} trainings have a result, so no rate is chosen; run the rest first."
        if best is None:
            closest = self.closest
            came = f"; the closest had {closest.closest:.4g} at {closest.rate:g}" if closest else ""
            text = (
                f"{where}: no training of {self.budget} reached {goal_text(target)}{came}; try other "
                "tuning.learning_rates or more target.max_samples."
            )
            return f"{text} {self._late}".rstrip()
        reached = f"{best.num_reached} of {plural(len(best.trainings), 'training')} did"
        text = (
            f"{where}: learning rate {best.rate:g} reaches {goal_text(target)} at the least expected number of "
            f"samples, {with_limits(best.expected)} ({reached})."
        )
        return " ".join([text, *self._doubts(best)])

    def _doubts(self, best: TriedRate) -> Iterable[str]:
        others = [rate for rate in self.tried if rate is not best and rate.expected]
        if equal := [f"{rate.rate:g}" for rate in others if _cost(rate) == _cost(best)]:
            yield f"Equal: {listed(equal)}; the smallest is taken."
        unclear = [f"{rate.rate:g}" for rate in others if _cost(rate) > _cost(best) and _overlap(rate, best)]
        if unclear:
            seeds = plural(len(best.trainings), "seed")
            yield f"{seeds} {'does' if len(best.trainings) == 1 else 'do'} not tell it from {listed(unclear)}."
        if best in (self.tried[0], self.tried[-1]):
            end, more = ("smallest", "smaller") if best is self.tried[0] else ("largest", "larger")
            yield f"It is the {end} of the grid: a {more} one may be better; tune again with tuning.learning_rates."
        if self._late:
            yield self._late

    @property
    def num_out_of_time(self) -> int:
        """Trainings that the clock ended: how many samples they had follows from the machine's speed."""
        return sum(rate.num_out_of_time for rate in self.tried)

    @property
    def _late(self) -> str:
        if not self.num_out_of_time:
            return ""
        return (
            f"The clock ended {plural(self.num_out_of_time, 'training')} before the samples did; with more "
            "target.max_seconds the machine's speed has no part in the choice."
        )

    @property
    def budget(self) -> str:
        """`5 rates x 3 seeds`."""
        seeds = max(rate.num_planned for rate in self.tried)
        return f"{len(self.tried)} rates x {plural(seeds, 'seed')}"

    @property
    def num_trainings(self) -> int:
        return sum(len(rate.trainings) for rate in self.tried)

    @property
    def seconds(self) -> float:
        """The time of all trainings from their launch, as far as it is known."""
        return math.fsum(training.seconds or 0.0 for rate in self.tried for training in rate.trainings)

    @property
    def seeds(self) -> list[int]:
        """The seeds of the trainings, in order."""
        return sorted({training.seed for rate in self.tried for training in rate.trainings})


def _variant(cell: Cell) -> str:
    """`mpi_ps downpour (optimizer=sgd)`: the curve without what tells its learning rates apart."""
    options = ", ".join(f"{name}={value}" for name, value in cell.options.items())
    return f"{cell.method} ({options})" if options else cell.method


def _cost(rate: TriedRate) -> float:
    return rate.expected.center if rate.expected else math.inf


def _overlap(rate: TriedRate, best: TriedRate) -> bool:
    """Whether the seeds leave open which of two rates is better; few arrivals have no limits and leave it open."""
    if not rate.expected or not best.expected:
        return True
    low, high = rate.expected.low, best.expected.high
    return low is None or high is None or low <= high


def _higher_is_better(rate: TriedRate) -> bool:
    return bool(rate.trainings) and metric_of(rate.cell, rate.target).higher_is_better


def rate_searches(solutions: Sequence[TimeToSolution], rows: Iterable[ScalingRow]) -> tuple[RateSearch, ...]:
    """The searches of a study by family, ranks and batch; `rows` are all its cells, planned ones included."""
    measured = {(row.cell.id, row.evidence): row for row in solutions}
    groups: dict[tuple[Any, ...], list[TriedRate]] = {}
    for row in rows:
        if row.cell.target is None or row.cell.control != "train":
            continue
        evidence = row.evidence or "measured"
        found = measured.get((row.cell.id, evidence))
        tried = TriedRate(
            cell=row.cell,
            target=row.cell.target,
            trainings=found.trainings if found else (),
            num_planned=max(row.num_planned, len(found.trainings) if found else 0),
        )
        configuration = configuration_of(row.cell)
        backend = (row.cell.method, repr(sorted(row.cell.options.items())), row.cell.num_servers)
        key = (row.family, evidence, configuration.model_dump_json(), backend)
        groups.setdefault(key, []).append(tried)
    searches = [
        RateSearch(
            configuration=configuration_of(tried[0].cell),
            family=family,
            evidence=evidence,
            tried=tuple(sorted(tried, key=lambda rate: rate.rate)),
        )
        for (family, evidence, *_), tried in groups.items()
        if len({rate.rate for rate in tried}) > 1
    ]
    return tuple(sorted(searches, key=_order))


def _order(search: RateSearch) -> tuple[Any, ...]:
    cell = search.tried[0].cell
    return search.family, cell.num_ranks, cell.global_batch, cell.backend, _variant(cell)


def budget_text(searches: Sequence[RateSearch]) -> str:
    """What every configuration was allowed, and what all of them took; `searches` is not empty."""
    target = searches[0].tried[0].target
    samples = f"{target.max_samples} samples and " if target.max_samples else ""
    num_trainings = sum(search.num_trainings for search in searches)
    seconds = format_seconds(math.fsum(search.seconds for search in searches))
    return (
        f"Budget of each configuration: {searches[0].budget}, each training at most {samples}"
        f"{number(target.max_seconds)} s. {plural(num_trainings, 'training')} took {seconds}."
    )


Row = tuple[RateSearch, TriedRate]


def rate_row(row: Row) -> dict[str, Any]:
    """A row per configuration and rate; samples are those to the target, `expected_samples` with restarts."""
    search, tried = row
    return {
        **attributes(tried.cell, "workload preset framework backend num_ranks global_batch"),
        "variant": _variant(tried.cell),
        **attributes(tried.target, "metric threshold learning_rate"),
        "num_trainings": len(tried.trainings),
        **attributes(tried, "num_planned num_reached num_diverged num_out_of_time closest"),
        "chosen": tried is search.best,
        **interval_columns("samples", median_cost(tried.runs)),
        **interval_columns("expected_samples", tried.expected),
    }


def _rows(searches: Iterable[RateSearch]) -> list[Row]:
    return [(search, tried) for search in searches for tried in search.tried]


def _reached(row: Row) -> Value:
    return Value(text=f"{row[1].num_reached}/{row[1].num_planned}", order=row[1].num_reached)


RATES = TableOf[Row](
    name="learning-rates",
    caption="Learning rates",
    columns=(
        *training_columns(lambda row: row[0].family),
        Column("target", lambda row: goal_text(row[1].target), numeric=False, common=True),
        Column("backend", lambda row: _variant(row[1].cell), numeric=False),
        Column("ranks", lambda row: row[1].cell.num_ranks),
        Column("batch", lambda row: row[1].cell.global_batch),
        Column("learning rate", lambda row: Value(text=f"{row[1].rate:g}", order=row[1].rate)),
        Column("reached", _reached),
        Column("diverged", lambda row: row[1].num_diverged),
        Column("expected samples", lambda row: row[1].expected),
        Column("median samples", lambda row: median_cost(row[1].runs), detail=True),
        Column("closest", lambda row: row[1].closest),
        Column("chosen", lambda row: "yes" if row[1] is row[0].best else "", numeric=False),
    ),
    data=rate_row,
    legend=(
        "Batch: samples per step over all ranks. Expected samples: those of all trainings over the number that reached "
        "the target, restarts included; the rate with the fewest is chosen, of equal ones the smallest."
    ),
    tags=lambda row: tags_of(row[1].cell),
    strong=lambda row: row[1] is row[0].best,
    group=lambda row: (_variant(row[1].cell), row[1].cell.num_ranks, row[1].cell.global_batch),
)


def search_sentences(searches: Sequence[RateSearch]) -> Iterator[Sentence]:
    """A sentence per configuration, and one about the budget."""
    for search in searches:
        yield Sentence(text=search.text, tags=tags_of(search.tried[0].cell))
    if searches:
        yield Sentence(text=budget_text(searches))


def _screen(study: Measured) -> Iterator[Block]:
    searches = FINDING.of(study)
    for family in dict.fromkeys(search.family for search in searches):
        own = [search for search in searches if search.family == family]
        trained = [row for row in solution_table.FINDING.of(study) if row.family == family]
        yield Sentence(text=training_title(family), strong=True)
        if trained:
            yield Sentence(text=training_goal(trained))
        yield from search_sentences(own)
        if is_busy(study) and not any(search.num_out_of_time for search in own):
            yield Sentence(
                text="Numbers of samples, and the choice, do not depend on how busy the machine was."
            )
        yield brief(RATES.of(_rows(own)))
        yield Sentence(text=RATES.legend, quiet=True)


FINDING = Finding(
    name="learning_rates",
    title="Learning rates",
    answers=True,
    lead="Every configuration was trained at every rate with as many seeds, up to the same number of samples.",
    compute=lambda study: rate_searches(solution_table.FINDING.of(study), scaling.FINDING.of(study)),
    sentences=search_sentences,
    more=lambda searches: (RATES.of(_rows(searches)),),
    screen=_screen,
    data=lambda searches: {"learning_rates": list(map(rate_row, _rows(searches)))},
)
FINDINGS = (FINDING,)
