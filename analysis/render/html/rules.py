"""The 12 rules of Hoefler and Belli (SC15, doi 10.1145/2807591.2807644), each judged by what is in the records.

Nothing is declared: a rule passes only if the facts that it asks for were found. `why` names them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.efficiency import ScalingRow, ScalingTable, base_text
from dlscale.analysis.families import base_cell
from dlscale.analysis.findings.contrasts import CONTRAST_BAND
from dlscale.analysis.measured import CellLaunches, MeasuredCase
from dlscale.analysis.metrics import MAX_START_SKEW, MIN_WINDOWS
from dlscale.analysis.records import APART
from dlscale.analysis.render.html.labels import training_title
from dlscale.analysis.render.html.model import Plot, Rule, Verdict
from dlscale.analysis.render.html.study_facts import StudyFacts
from dlscale.analysis.render.html.timeline import by_start
from dlscale.analysis.render.text import backend_name, plural, rate
from dlscale.analysis.statistics import LEVEL, MIN_BLOCKS
from dlscale.benchmarks.records.files import BadFile
from dlscale.benchmarks.records.record import Record

NAMED = 3  # of many examples


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A study's numbers and plots. `plots` are all plots of the page, `efficiency` those of efficiency."""

    table: ScalingTable
    records: Sequence[Record]
    bad_files: Sequence[BadFile] = ()
    study: StudyFacts = field(default_factory=StudyFacts)
    efficiency: Sequence[Plot] = ()
    plots: Sequence[Plot] = ()

    @property
    def measured(self) -> list[CellLaunches]:
        """The good launches of all cells, separately by kind of evidence."""
        return by_start(self.table.launches)

    @property
    def cases(self) -> list[MeasuredCase]:
        """The good cases of all cells."""
        return [case for launches in self.measured for case in launches.cases]

    @property
    def trained(self) -> list[ScalingRow]:
        """Training rows (not controls) with a throughput."""
        return [row for row in self.table.rows if row.cell.control == "train" and row.throughput]

    @property
    def scaled(self) -> list[ScalingRow]:
        """Training rows with a throughput on more than 1 rank."""
        return [row for row in self.trained if row.cell.num_ranks > 1]


def where(row: ScalingRow) -> str:
    """`ring on 8 ranks`, for a list of examples."""
    ranks = row.cell.num_ranks
    return f"{backend_name(row.cell)} on {ranks} rank{'s' * (ranks > 1)} ({row.cell.workload}, {row.cell.framework})"


def examples(names: Sequence[str]) -> str:
    """The first names, and the number of further ones."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def log_ratios(row: ScalingRow, facts: Facts) -> NDArray[np.float64]:
    """Log of the efficiency, [B], for each block that the row shares with its base case (a); may be empty."""
    base = base_cell(
        row.cell,
        [candidate.cell for candidate in facts.table.rows if candidate.family == row.family],
        same_backend=False,
        num_ranks=row.base_ranks,
    )
    if base is None or row.efficiency_none is None:
        return np.empty(0)
    own, alone = facts.table.launches_of(row), facts.table.launches_of(row, cell=base)
    if own is None or alone is None:
        return np.empty(0)
    over, under = own.by_block("samples_per_second"), alone.by_block("samples_per_second")
    ideal = row.cell.num_ranks / row.base_ranks
    ratios = [over[block] / under[block] / ideal for block in over if block in under]
    return np.log(np.array(ratios, dtype=np.float64))


def judge_base_case(facts: Facts) -> tuple[Verdict, str]:
    """Rule 1: every curve has a rate of none on the ranks of its base case."""
    families = dict.fromkeys(row.family for row in facts.scaled)
    if not families:
        return "not applicable", "Nothing gave a number on more than 1 rank, so no speed-up is told."
    present, missing = [], []
    for family in families:
        rows = [row for row in facts.trained if row.family == family and row.cell.num_ranks == row.base_ranks]
        base = next((row for row in rows if row.cell.backend == "none"), None)
        if base:
            present.append(f"{training_title(family)} {rate(base.throughput)} samples/s")
        else:
            missing.append(training_title(family))
    place = base_text(facts.trained)
    if missing:
        return "not met", f"No rate of none on {place}: {examples(missing)}."
    return "pass", f"none on {place}: {examples(present)}."


def judge_ratios(facts: Facts) -> tuple[Verdict, str]:
    """Rule 4: each efficiency is the ratio of two geometric means over the same blocks, as recomputed here."""
    checked, wrong = 0, []
    rows = [row for row in facts.scaled if row.efficiency_none]
    if not rows:
        return "not applicable", "No ratio is shown."
    for row in rows:
        logs = log_ratios(row, facts)
        if len(logs) and row.efficiency_none:
            checked += 1
            if not math.isclose(math.exp(float(logs.mean())), row.efficiency_none.center, rel_tol=1e-6):
                wrong.append(where(row))
    if wrong:
        return "not met", f"Not the ratio of two geometric means over common blocks: {examples(wrong)}."
    unpaired = len(rows) - checked
    rest = f"; {plural(unpaired, 'other')} without a common block" if unpaired else ""
    return "pass", (
        f"{plural(checked, 'efficiency').replace('ys', 'ies')} recomputed from launches: each is the ratio of two "
        f"geometric means over the same blocks, with both rates beside it{rest}."
    )


def judge_normality(facts: Facts) -> tuple[Verdict, str]:
    """Rule 6: rates assume no distribution; the Shapiro-Wilk test checks the log ratios behind t intervals."""
    methods = {
        row.throughput.method for row in facts.trained if row.throughput and row.throughput.low is not None
    }
    if not facts.trained:
        return "not applicable", "There are no numbers."
    if methods - {"interpolated order statistics"}:
        return "not met", f"Rates have intervals by {examples(sorted(methods))}."
    probabilities = {
        where(row): probability for row in facts.scaled if (probability := _shapiro(log_ratios(row, facts)))
    }
    free = "Intervals of rates are of order statistics" if methods else "Rates have no intervals"
    if not probabilities:
        return "pass", f"{free}; no t interval is shown."
    limit = (1 - LEVEL) / len(probabilities)
    rejected = [name for name, probability in probabilities.items() if probability < limit]
    if rejected:
        return "not met", (
            f"{free}, but the log ratios behind the t intervals are not normal (Shapiro-Wilk, p < {limit:.2g}) for "
            f"{examples(rejected)}."
        )
    return "pass", (
        f"{free}; log ratios behind {len(probabilities)} t intervals: Shapiro-Wilk rejects none (smallest p "
        f"{min(probabilities.values()):.2g}, limit {limit:.2g}). With so few blocks the test is a weak one."
    )


def judge_tests(facts: Facts) -> tuple[Verdict, str]:
    """Rule 7: faster and slower are results of a paired test, corrected for all comparisons declared together."""
    declared = facts.table.contrasts
    if declared is None:
        return "not applicable", "No two backends were measured on the same ranks."
    poor = [contrast for contrast in declared.found if contrast.verdict == "cannot be shown"]
    if poor:
        reasons = list(dict.fromkeys(contrast.reason for contrast in poor))
        num = len(declared.found)
        return "not met", f"{len(poor)} of {plural(num, 'comparison')} cannot be shown: {examples(reasons)}."
    kinds = Counter(contrast.verdict for contrast in declared.found)
    return "pass", (
        f"{plural(len(declared.found), 'comparison')}, declared by rule, with a sign-flip test of paired blocks, an "
        f"interval and Holm's correction: {kinds['faster'] + kinds['slower']} claim a difference, {kinds['alike']} are "
        f"alike within {100 * CONTRAST_BAND:.0f} %, {kinds['not shown']} are not shown."
    )


def _shapiro(logs: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float | None:
    """The test's p-value; None for fewer than 3 values, or if all are equal."""
    if len(logs) < MIN_BLOCKS or np.ptp(logs) == 0:
        return None
    from scipy.stats import shapiro  # takes half a second to import, and only this rule needs it

    return float(shapiro(logs).pvalue)


UNKNOWN = "unknown"


def judge_subsets(facts: Facts) -> tuple[Verdict, str]:
    """Rule 2: every planned case gave a number, or there is a reason why not."""
    planned = sum(row.num_planned for row in facts.table.rows)
    numbers = sum(row.num_launches for row in facts.table.rows)
    if not planned:
        return "not applicable", "Nothing was planned or measured."
    good = {(case.record.system, case.record.study, case.record.case.id) for case in facts.cases}
    failed = {
        (record.system, record.study, record.case.id)
        for record in facts.table.failures
        if record.case.cell.control not in APART
    } - good
    unread = {bad.path.name.rsplit(".", 2)[0] for bad in facts.bad_files}
    silent = planned - numbers - len(failed) - len(unread)
    if facts.study.running:
        return (
            "not met",
            f"The study is still running: {numbers} of {planned} planned cases gave a number so far.",
        )
    if silent > 0:
        return (
            "not met",
            f"{silent} of {planned} planned cases left neither a number nor a reason; resume the study.",
        )
    reasons = (
        f"; the reasons of {plural(len(failed) + len(unread), 'other')} are listed"
        if failed or unread
        else ""
    )
    return "pass", f"{numbers} of {planned} planned cases gave a number{reasons}."


def judge_factors(facts: Facts) -> tuple[Verdict, str]:
    """Rule 9: code, versions, settings and nodes are in the records."""
    if not facts.records:
        return "not applicable", "There are no records."
    records = facts.records
    problems: dict[str, Callable[[Record], bool]] = {
        "from an unknown commit": lambda record: record.fingerprint.commit == UNKNOWN,
        "from a changed checkout": lambda record: "+dirty" in record.fingerprint.commit,
        "without versions": lambda record: not record.fingerprint.versions,
        "without configuration": lambda record: record.configuration is None,
        "without facts of their nodes": lambda record: record.failure is None and not record.nodes,
    }
    flaws = [
        f"{count} {what}"
        for what, wrong in problems.items()
        if (count := sum(wrong(record) for record in records))
    ]
    if flaws:
        return "not met", f"Of {plural(len(records), 'record')}: {', '.join(flaws)}."
    versions = max(len(record.fingerprint.versions) for record in records)
    nodes = {facts.node for record in records for facts in record.nodes}
    return "pass", (
        f"{plural(len(records), 'record')} with commit, {versions} versions, resolved configuration and facts of "
        f"{plural(len(nodes), 'node')}."
    )


def judge_bounds(facts: Facts) -> tuple[Verdict, str]:
    """Rule 11: each efficiency plot has an upper bound besides the ideal line."""
    if not facts.efficiency:
        return "not applicable", "There is no efficiency to bound."
    bare = [plot.title for plot in facts.efficiency if not any(guide.bound for guide in plot.guides)]
    if bare:
        return (
            "not met",
            f"Only the ideal line: {examples(bare)}. Wire, memory and loader are not known there.",
        )
    return (
        "pass",
        f"{plural(len(facts.efficiency), 'efficiency plot')}, each with the bounds that are known beside the ideal.",
    )


def judge_lines(facts: Facts) -> tuple[Verdict, str]:
    """Rule 12: a line joins only points of one kind of evidence, each on more ranks than the one before."""
    if not facts.plots:
        return "not applicable", "There are no plots."
    joined = [series for plot in facts.plots for series in plot.series if series.joined]
    wrong = [
        series.name
        for series in joined
        if not all(left.x < right.x for left, right in pairwise(series.points))
    ]
    if wrong:
        return "not met", f"A line joins what is not in order: {examples(wrong)}."
    return "pass", (
        f"{plural(len(facts.plots), 'plot')}; {plural(len(joined), 'line')}, each over more and more ranks, of one "
        "kind of evidence and one backend."
    )


MEAN_OVER_MEDIAN = 1.05  # above this ratio the median understates the cost of a training


def judge_rates(facts: Facts) -> tuple[Verdict, str]:
    """Rule 3: each rate is the batch over the median cost, as recomputed from the launches."""
    checked, wrong = 0, []
    for row in facts.table.rows:
        launches = facts.table.launches_of(row)
        if row.throughput and launches:
            checked += 1
            cost = float(np.median([np.median(case.seconds) for case in launches.cases]))
            if not math.isclose(row.cell.global_batch / cost, row.throughput.center, rel_tol=1e-6):
                wrong.append(where(row))
    if wrong:
        return "not met", f"Not the batch over the median cost of its launches: {examples(wrong)}."
    if not checked:
        return "not applicable", "There are no rates."
    return (
        "pass",
        f"The rates of {plural(checked, 'cell')} are the batch over the median cost of the launches, recomputed.",
    )


def judge_intervals(facts: Facts) -> tuple[Verdict, str]:
    """Rule 5: no number without an interval."""
    if not facts.trained:
        return "not applicable", "There are no numbers."
    bare = [where(row) for row in facts.trained if row.throughput and row.throughput.low is None]
    ratios = [row for row in facts.scaled if row.efficiency_none or row.efficiency_backend]
    bare_ratios = [
        where(row)
        for row in ratios
        if any(
            efficiency and efficiency.low is None
            for efficiency in (row.efficiency_none, row.efficiency_backend)
        )
    ]
    if bare or bare_ratios:
        reasons = [f"no interval of the rate: {examples(bare)}"] if bare else []
        reasons += [f"no interval of an efficiency: {examples(bare_ratios)}"] if bare_ratios else []
        return "not met", f"{'; '.join(reasons).capitalize()}."
    return (
        "pass",
        f"{plural(len(facts.trained), 'rate')} and the efficiencies of {plural(len(ratios), 'cell')} have one.",
    )


def judge_percentiles(facts: Facts) -> tuple[Verdict, str]:
    """Rule 8: the mean step time, which determines the cost of a training, is near the median that is shown."""
    if not facts.measured:
        return "not applicable", "There are no numbers."
    far, worst = [], 1.0
    for launches in facts.measured:
        seconds = np.concatenate([case.seconds for case in launches.cases])
        ratio = float(seconds.mean() / np.median(seconds))
        worst = max(worst, ratio)
        if ratio > MEAN_OVER_MEDIAN:
            cell = launches.cell
            far.append(
                f"{backend_name(cell)} on {plural(cell.num_ranks, 'rank')} ({100 * (ratio - 1):.0f} %)"
            )
    if far:
        return "not met", (
            "The mean step is more than 5 % above the median, so that slow steps cost more than the rates say: "
            f"{examples(far)}. The table of step times has the percentiles."
        )
    return "pass", (
        f"Mean and median step differ by {100 * (worst - 1):.1f} % at most; percentiles 5 to 99 are in the table of "
        "step times."
    )


def judge_measurement(facts: Facts) -> tuple[Verdict, str]:
    """Rule 10: every rank was timed, ranks start together, and there are enough windows, all steady.

    Clocks of two machines are not synchronised: starts are compared among ranks of one machine, and `why` says so.
    """
    cases = facts.cases
    if not cases:
        return "not applicable", "There are no numbers."
    skews = [case.start_skew for case in cases if case.start_skew is not None]
    apart = [skew for skew in skews if not skew <= MAX_START_SKEW]
    short = [case for case in cases if len(case.seconds) < MIN_WINDOWS]
    moving = [case for case in cases if not case.steady]
    flaws = [
        f"{plural(number, 'launch')} {what}"
        for number, what in (
            (len(apart), f"whose ranks start more than {100 * MAX_START_SKEW:.0f} % of a window apart"),
            (len(short), f"of fewer than {MIN_WINDOWS} windows"),
            (len(moving), "that never became steady"),
        )
        if number
    ]
    if flaws:
        return "not met", f"Of {plural(len(cases), 'launch')}: {', '.join(flaws)}."
    windows = sum(len(case.seconds) for case in cases)
    several = any(len(case.record.clocks) > 1 for case in cases)
    skew = 100 * max(skews, default=0.0)
    told = [f"ranks {'of one machine ' * several}start at most {skew:.2g} % of a window apart"]
    if several:
        told = told if skew else []
        told.append(
            "between machines, whose clocks are not synchronised, only the barrier before a window is known"
        )
    return (
        "pass",
        f"{windows} windows with every rank's time, of which the slowest counts; {'; '.join(told)}.",
    )


Judge = Callable[[Facts], tuple[Verdict, str]]

RULES: tuple[tuple[str, Judge], ...] = (
    ("State the base case and its absolute speed.", judge_base_case),
    ("Give the reason where only a part is reported.", judge_subsets),
    ("Summarise costs by their sum, and rates by total over total.", judge_rates),
    ("Do not average ratios.", judge_ratios),
    ("Give intervals, unless values are deterministic.", judge_intervals),
    ("Do not assume a normal distribution without looking.", judge_normality),
    ("Compare with sound tests.", judge_tests),
    ("Ask whether the median is what matters; else give percentiles.", judge_percentiles),
    ("Document all factors and the set-up.", judge_factors),
    ("Say how parallel time was measured, synchronised and summarised.", judge_measurement),
    ("Show bounds.", judge_bounds),
    ("Plot what is needed; lines only where a trend is real.", judge_lines),
)


def judged(facts: Facts) -> tuple[Rule, ...]:
    """The verdicts on all 12 rules, in order."""
    rules = []
    for number, (text, judge) in enumerate(RULES, start=1):
        verdict, why = judge(facts)
        rules.append(Rule(number=number, text=text, verdict=verdict, why=why))
    return tuple(rules)
