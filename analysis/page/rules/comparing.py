"""Rules about what is compared with what: base case, ratios, normality, tests."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from dlscale.analysis.contrasts.contrast import BAND
from dlscale.analysis.page.model import Verdict
from dlscale.analysis.page.rules.facts import Facts, examples, log_ratios, where
from dlscale.analysis.page.words import plural, training_title
from dlscale.analysis.statistics import LEVEL, MIN_BLOCKS
from dlscale.analysis.words import rate


def base_case(facts: Facts) -> tuple[Verdict, str]:
    """Rule 1: a rate of none on 1 rank beside every curve."""
    families = dict.fromkeys(row.family for row in facts.scaled)
    if not families:
        return "not applicable", "Nothing gave a number on more than 1 rank, so no speed-up is told."
    said, missing = [], []
    for family in families:
        rows = [row for row in facts.trained if row.family == family and row.cell.num_ranks == 1]
        base = next((row for row in rows if row.cell.backend == "none"), None)
        if base:
            said.append(f"{training_title(family)} {rate(base.throughput)} samples/s")
        else:
            missing.append(training_title(family))
    if missing:
        return "not met", f"No rate of none on 1 rank: {examples(missing)}."
    return "pass", f"none on 1 rank: {examples(said)}."


def ratios(facts: Facts) -> tuple[Verdict, str]:
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


def normality(facts: Facts) -> tuple[Verdict, str]:
    """Rule 6: rates need no distribution; Shapiro and Wilk's test looks at the log ratios behind t intervals."""
    methods = {
        row.throughput.method for row in facts.trained if row.throughput and row.throughput.low is not None
    }
    if not facts.trained:
        return "not applicable", "There are no numbers."
    if methods - {"interpolated order statistics"}:
        return "not met", f"Rates have intervals by {examples(sorted(methods))}."
    probabilities = {where(row): found for row in facts.scaled if (found := _shapiro(log_ratios(row, facts)))}
    free = "Intervals of rates are of order statistics" if methods else "Rates have no intervals"
    if not probabilities:
        return "pass", f"{free}; no t interval is shown."
    limit = (1 - LEVEL) / len(probabilities)
    rejected = [name for name, found in probabilities.items() if found < limit]
    if rejected:
        return "not met", (
            f"{free}, but the log ratios behind the t intervals are not normal (Shapiro-Wilk, p < {limit:.2g}) for "
            f"{examples(rejected)}."
        )
    return "pass", (
        f"{free}; log ratios behind {len(probabilities)} t intervals: Shapiro-Wilk rejects none (smallest p "
        f"{min(probabilities.values()):.2g}, limit {limit:.2g}). With so few blocks the test is a weak one."
    )


def tests(facts: Facts) -> tuple[Verdict, str]:
    """Rule 7: what is called faster or slower is so by a paired test, corrected for all that were declared with it."""
    declared = facts.contrasts
    if declared is None:
        return "not applicable", "No two backends were measured on the same ranks."
    poor = [one for one in declared.found if one.verdict == "cannot be shown"]
    if poor:
        reasons = list(dict.fromkeys(one.reason for one in poor))
        num = len(declared.found)
        return "not met", f"{len(poor)} of {plural(num, 'comparison')} cannot be shown: {examples(reasons)}."
    kinds = Counter(one.verdict for one in declared.found)
    return "pass", (
        f"{plural(len(declared.found), 'comparison')}, declared by rule, with a sign-flip test of paired blocks, an "
        f"interval and Holm's correction: {kinds['faster'] + kinds['slower']} claim a difference, {kinds['alike']} are "
        f"alike within {100 * BAND:.0f} %, {kinds['not shown']} are not shown."
    )


def _shapiro(logs: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float | None:
    """The test's p; None for fewer than 3 values, or where all are equal."""
    if len(logs) < MIN_BLOCKS or np.ptp(logs) == 0:
        return None
    from scipy.stats import shapiro  # half a second of import, for this rule alone

    return float(shapiro(logs).pvalue)
