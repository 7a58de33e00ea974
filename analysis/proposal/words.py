"""A curve in the sentences of a proposal. What was not measured is said, not passed over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dlscale.analysis.proposal.request import Request
from dlscale.analysis.proposal.sizes import Curve, Size
from dlscale.analysis.statistics import LEVEL, Interval
from dlscale.analysis.words import number, percent, rate

BASES = {
    "none": "1 rank without a communication layer",
    "backend": "1 rank of the same backend",
}
PUBLISHED = "paper"  # the preset of the published size


def count(value: int, what: str) -> str:
    """`1 rank`, `8 ranks`."""
    return f"{value} {what}{'s' * (value != 1)}"


def place(size: Size) -> str:
    """`8 ranks (4 nodes)`."""
    return f"{count(size.num_ranks, 'rank')} ({count(size.num_nodes, 'node')})"


def title(curve: Curve) -> str:
    """What was trained, over what."""
    family = curve.family
    return f"{family.workload} ({family.preset}) in {family.framework} over {curve.name}, {family.scaling_mode} scaling"


def what_was_measured(curve: Curve) -> str:
    """The experiment, so that another can repeat it."""
    ranks = ", ".join(str(one.num_ranks) for one in curve.sizes)
    launches = _span([one.row.num_launches for one in curve.sizes])
    system = curve.family.system
    return (
        f"We timed the training of {curve.family.workload} ({curve.family.preset}) in {curve.family.framework} over "
        f"backend {curve.name} on {system} ({curve.family.constants}; environment {curve.family.environment}). "
        f"{'Numbers' if len(curve.sizes) > 1 else 'The number'} of ranks: {ranks}. Each was launched {launches}, "
        "in blocks within which the sizes follow each other in random order, so that slow changes of the machine "
        "cancel in ratios of sizes. Throughput is what all ranks do in the slowest rank's time, after the warm-up; "
        "its interval is of order statistics and is given from 6 launches on."
    )


def standing(curve: Curve) -> str:
    """What must be read before the numbers; empty where they are measurements on several nodes."""
    if curve.evidence == "emulated":
        return (
            "These numbers are emulated: nodes that share one machine, or a network that was shaped, took the place of "
            "the machine's own. They show how the program behaves, and are no measurements of a machine."
        )
    if curve.evidence != "measured":
        return f"These numbers are {curve.evidence}, not measured."
    if all(one.num_nodes == 1 for one in curve.sizes):
        return "All ranks ran on one node: what a network between nodes costs is not in these numbers."
    return ""


def result(curve: Curve) -> str:
    """Throughput, speed-up and efficiency on most ranks."""
    largest = curve.largest
    told = f"On {place(largest)} the training runs at {rate(largest.row.throughput)} samples/s"
    if largest.efficiency is None or largest.speed_up is None:
        return f"{told}. There is no efficiency: its base case, 1 rank, was not measured."
    if largest.num_ranks == 1:
        return f"{told}. Nothing was measured on more ranks, so nothing can be said about scaling."
    scaled = "scaled speed-up" if curve.family.scaling_mode == "weak" else "speed-up"
    flaw = "" if largest.efficiency.low is not None else " (insufficient data for an interval)"
    told += (
        f": a {scaled} of {factor(largest.speed_up)} and a scaling efficiency of {percent(largest.efficiency)}{flaw}, "
        f"relative to {BASES[curve.base]}, which alone does {rate(curve.base_rate)} samples/s."
    )
    before = [one for one in curve.sizes if one.row.throughput and one.num_ranks < largest.num_ranks]
    if largest.per_doubling and before:
        told += (
            f" From {before[-1].num_ranks} to {largest.num_ranks} ranks each doubling multiplied the throughput by "
            f"{factor(largest.per_doubling)}, ideally by 2."
        )
    return f"{told} Intervals of ratios are {100 * LEVEL:.0f} % t intervals over blocks of launches."


def kept(curve: Curve) -> str:
    """Up to which size the threshold is surely kept, where it is open, where it is not."""
    mark = f"{100 * curve.threshold:g} %"
    surely, possibly = curve.keeping("surely"), curve.keeping("possibly")
    unknown = [one for one in curve.sizes if one.verdict == "unknown"]
    several = [one for one in curve.sizes if one.num_ranks > 1 and one.verdict != "unknown"]
    if not several:
        return (
            f"Whether an efficiency of {mark} is kept cannot be said: insufficient data, no size above 1 rank has an "
            "efficiency with an interval."
        )
    told = []
    fewest_lost = min(
        (one for one in curve.sizes if one.verdict == "not"), key=lambda one: one.num_ranks, default=None
    )
    gap = bool(surely and fewest_lost and surely.num_ranks > fewest_lost.num_ranks)
    if surely and surely.num_ranks > 1:
        told.append(
            f"An efficiency of {mark} is surely kept {'on' if gap else 'up to'} {place(surely)}: the whole interval of "
            f"{_interval(surely.efficiency)} lies at or above it."
        )
    else:
        told.append(f"No size above 1 rank surely keeps an efficiency of {mark}.")
    if possibly and (surely is None or possibly.num_ranks > surely.num_ranks):
        told.append(
            f"On {place(possibly)} it is possibly kept: the interval of {_interval(possibly.efficiency)} has it "
            "inside, and more launches would tell."
        )
    if fewest_lost:
        told.append(f"It is not kept on {place(fewest_lost)}, with {_interval(fewest_lost.efficiency)}.")
    if gap:
        told.append("That a larger size keeps it and a smaller one does not should be looked into.")
    if unknown:
        told.append(f"Insufficient data on {', '.join(place(one) for one in unknown)}.")
    return " ".join(told)


def asked(found: Request | None, curve: Curve) -> str:
    """The node-hours of the trainings."""
    if curve.evidence != "measured":
        return f"No node-hours are derived from {curve.evidence} numbers: a request needs those of the machine itself."
    if found is None:
        return f"No node-hours are derived: no size has an efficiency that surely keeps {100 * curve.threshold:g} %."
    what = f"One training on {_large(found.samples)} samples on {place(found.size)}"
    return (
        f"{what} takes {rate(found.hours)} hours from its first step to its last, {rate(found.node_hours)} node-hours; "
        f"{count(found.runs, 'training')} {'take' if found.runs != 1 else 'takes'} {rate(found.total)} node-hours. "
        "Whole nodes are counted. Starts, evaluation, saved states, failed and repeated jobs come on top."
    )


def caveats(curve: Curve) -> Iterator[str]:
    """What the numbers do not say."""
    sizes = curve.sizes
    if curve.family.preset != PUBLISHED:
        yield f"The network was trained in the size {curve.family.preset}, not in the published one."
    if curve.family.data == "synthetic":
        yield "Input was synthetic: what reading data costs is not in these numbers."
    if curve.family.scaling_mode == "weak":
        yield "The batch grows with the ranks; whether a training then needs more samples was not looked at."
    if missing := [one for one in sizes if one.row.num_launches < one.row.num_planned]:
        told = (f"{one.row.num_launches} of {one.row.num_planned} on {place(one)}" for one in missing)
        yield f"Not every launch gave a number: {', '.join(told)}."
    if curve.others:
        yield f"Also measured, and in the study's report: {', '.join(curve.others)}."
    yield from dict.fromkeys(
        f"On {place(one)}: {note}." for one in sizes for note in one.row.notes if one.row.throughput
    )


def _interval(efficiency: Interval | None) -> str:
    return "-" if efficiency is None else percent(efficiency)


def factor(interval: Interval) -> str:
    """`7.36 [7.30, 7.42]`: two decimals, for the third digit tells 1.98 from 2; fewer from 10 on."""
    decimals = 2 if interval.center < 10 else 1 if interval.center < 100 else 0
    center = f"{interval.center:.{decimals}f}"
    if interval.low is None or interval.high is None:
        return center
    return f"{center} [{interval.low:.{decimals}f}, {interval.high:.{decimals}f}]"


def _span(launches: Sequence[int]) -> str:
    low, high = min(launches), max(launches)
    return count(low, "time") if low == high else f"{low} to {high} times"


def _large(value: int) -> str:
    """With a blank between groups of three digits."""
    return f"{value:,}".replace(",", " ") if value >= 10_000 else number(value)
