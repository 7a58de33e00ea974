"""Rules about how single times become one number: rates, intervals, percentiles, measurement."""

from __future__ import annotations

import math

import numpy as np

from dlscale.analysis.launches import MAX_START_SKEW, MIN_WINDOWS
from dlscale.analysis.page.model import Verdict
from dlscale.analysis.page.rules.facts import Facts, examples, where
from dlscale.analysis.page.words import plural
from dlscale.analysis.words import backend_name

MEAN_OVER_MEDIAN = 1.05  # beyond, the median tells less than what a training costs


def rates(facts: Facts) -> tuple[Verdict, str]:
    """Rule 3: each rate is the batch over the median cost, as recomputed from the launches."""
    checked, wrong = 0, []
    for row in facts.table.rows:
        group = facts.groups.get((row.family.system, row.cell.id, str(row.evidence)), [])
        if row.throughput and group:
            checked += 1
            cost = float(np.median([np.median(one.seconds) for one in group]))
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


def intervals(facts: Facts) -> tuple[Verdict, str]:
    """Rule 5: no number without an interval."""
    if not facts.trained:
        return "not applicable", "There are no numbers."
    bare = [where(row) for row in facts.trained if row.throughput and row.throughput.low is None]
    ratios = [row for row in facts.scaled if row.efficiency_none or row.efficiency_backend]
    bare_ratios = [
        where(row)
        for row in ratios
        if any(one and one.low is None for one in (row.efficiency_none, row.efficiency_backend))
    ]
    if bare or bare_ratios:
        said = [f"no interval of the rate: {examples(bare)}"] if bare else []
        said += [f"no interval of an efficiency: {examples(bare_ratios)}"] if bare_ratios else []
        return "not met", f"{'; '.join(said).capitalize()}."
    return (
        "pass",
        f"{plural(len(facts.trained), 'rate')} and the efficiencies of {plural(len(ratios), 'cell')} have one.",
    )


def percentiles(facts: Facts) -> tuple[Verdict, str]:
    """Rule 8: the mean of the steps, which is what a training costs, is near the median that is shown."""
    if not facts.launches:
        return "not applicable", "There are no numbers."
    far, worst = [], 1.0
    for group in facts.groups.values():
        seconds = np.concatenate([one.seconds for one in group])
        ratio = float(seconds.mean() / np.median(seconds))
        worst = max(worst, ratio)
        if ratio > MEAN_OVER_MEDIAN:
            cell = group[0].cell
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


def measurement(facts: Facts) -> tuple[Verdict, str]:
    """Rule 10: every rank's time is there, ranks start together, windows are enough and steady."""
    if not facts.launches:
        return "not applicable", "There are no numbers."
    apart = [one for one in facts.launches if not one.start_skew <= MAX_START_SKEW]
    short = [one for one in facts.launches if len(one.seconds) < MIN_WINDOWS]
    moving = [one for one in facts.launches if not one.steady]
    said = [
        f"{plural(len(found), 'launch')} {what}"
        for found, what in (
            (apart, f"whose ranks start more than {100 * MAX_START_SKEW:.0f} % of a window apart"),
            (short, f"of fewer than {MIN_WINDOWS} windows"),
            (moving, "that never became steady"),
        )
        if found
    ]
    if said:
        return "not met", f"Of {plural(len(facts.launches), 'launch')}: {', '.join(said)}."
    windows = sum(len(one.seconds) for one in facts.launches)
    skew = 100 * max(one.start_skew for one in facts.launches)
    return "pass", (
        f"{windows} windows with every rank's time, of which the slowest counts; ranks start at "
        f"most {skew:.2g} % of a window apart."
    )
