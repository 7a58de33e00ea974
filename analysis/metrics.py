"""The metrics of a cell: throughput, efficiency, the cost of input, and the flaws that make them doubtful.

E(p) = (T(p) / p) / (T(b) / b) with T in samples per second and base cases on b ranks, 1 unless another base is chosen;
the same for weak and strong scaling; 1 is ideal. The cost of input is measured by the controls that ran in the same
launches as the training. docs/metrics.md explains them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import pairwise

import numpy as np

from dlscale.analysis.families import base_cell
from dlscale.analysis.launches import Block, CellLaunches
from dlscale.analysis.statistics import (
    LEVEL,
    MIN_BLOCKS,
    Interval,
    block_median,
    block_ratio,
    chained_ratio,
    disagree,
    median_interval,
)
from dlscale.analysis.text import days, listed, plural
from dlscale.benchmarks.records.record import Control

BASE_NAMES = "base case"  # the method of an efficiency that is 1 by definition
MAX_START_SKEW = 0.01  # of a window
MIN_WINDOWS = 10  # per launch


def step_seconds(launches: CellLaunches) -> Interval:
    """Seconds per step: the median over good launches of each one's own median."""
    return median_interval([case.world for case in launches.good])


def throughput(launches: CellLaunches, notes: list[str]) -> Interval | None:
    """Samples per second over all ranks: the batch over the median cost, with that median's interval."""
    if not launches.cases:
        return None
    interval = step_seconds(launches).rate(launches.cell.global_batch)
    if interval.low is None:
        notes.append(f"fewer than 6 launches: no {100 * LEVEL:.0f} % interval of samples/s")
    return interval


# Rates per rank: of a cell, of those that link it to its base, of the base.
Steps = Sequence[Mapping[Block, float]]


def efficiency(
    launches: CellLaunches,
    relatives: Iterable[CellLaunches],
    *,
    same_backend: bool,
    notes: list[str],
    num_base_ranks: int = 1,
) -> Interval | None:
    """(T(p) / p) / (T(b) / b) against a base case of the same family on b ranks: (a), or (b) with `same_backend`.

    `launches` are good ones of one kind of evidence. The reason for a missing or doubtful efficiency is
    appended to `notes`.
    """
    steps = to_base(
        launches, relatives, same_backend=same_backend, num_base_ranks=num_base_ranks, notes=notes
    )
    if steps is None:
        return None
    if len(steps) == 1:
        return Interval(
            center=1.0, low=None, high=None, level=LEVEL, method=BASE_NAMES, n=len(launches.cases)
        )
    name = "(b)" if same_backend else "(a)"
    ratio, median = chained_ratio(steps), _of_medians(steps)
    if disagree(ratio, median):
        notes.append(
            f"efficiency {name} is {100 * median:.1f} % in the median block, {100 * ratio.center:.1f} % by geometric "
            "means"
        )
    if ratio.low is None:
        base = base_name(launches, same_backend, num_base_ranks)
        notes.append(f"fewer than {MIN_BLOCKS} blocks with {base}: no interval")
    return ratio


def efficiency_median(
    launches: CellLaunches, relatives: Iterable[CellLaunches], *, num_base_ranks: int = 1
) -> float | None:
    """The efficiency of the median block against (a); None for a base case and without one."""
    steps = to_base(launches, relatives, same_backend=False, num_base_ranks=num_base_ranks, notes=[])
    return _of_medians(steps) if steps and len(steps) > 1 else None


def _of_medians(steps: Steps) -> float:
    """The median block's; of a chain the product of its steps' medians."""
    return math.prod(block_median(over, under) for over, under in pairwise(steps))


def base_name(launches: CellLaunches, same_backend: bool, num_base_ranks: int) -> str:
    """`base case (a), none on 1 rank`."""
    place = plural(num_base_ranks, "rank")
    return (
        f"base case (b), {launches.cell.backend} on {place}"
        if same_backend
        else f"base case (a), none on {place}"
    )


def to_base(
    launches: CellLaunches,
    relatives: Iterable[CellLaunches],
    *,
    same_backend: bool,
    num_base_ranks: int,
    notes: list[str],
) -> Steps | None:
    """The rates of the cell and of its base case, with those of links between them; of a base case only its own.

    Jobs of different sizes share no block with the base case, but one size with each other. A chain through that size
    is paired at each of its steps; without one, the two ends are unpaired. None without a base case.
    """
    cell = launches.cell
    if cell.control != "train" or not launches.cases:
        return None
    family = {relative.id: relative for relative in relatives if relative.family == launches.family}
    name = base_name(launches, same_backend, num_base_ranks)
    base = base_cell(
        cell,
        [relative.cell for relative in family.values()],
        same_backend=same_backend,
        num_ranks=num_base_ranks,
    )
    if base is None:
        notes.append(f"no {name}: not measured")
        return None
    if base == cell:
        return [_rank_rates(launches)]
    reference = family[base.id]
    if not reference.good:
        notes.append(f"no {name}: every launch failed")
        return None
    kind = launches.evidence
    if kind not in reference.kinds:
        notes.append(f"{name}, is {reference.kinds[0]}, not {kind}")
        kind = reference.kinds[0]
    reference = reference.only(kind)
    links = links_between(launches, reference, family.values())
    if links != ():
        notes.append(link_note(name, links or ()))
    return [_rank_rates(one) for one in (launches, *(links or ()), reference)]


def link_note(name: str, links: Sequence[CellLaunches]) -> str:
    """What pairs a cell with the base case of that name, with which it shares no block."""
    if not links:
        return f"unpaired with {name}: no common block"
    places = [f"{link.cell.backend} on {plural(link.cell.num_ranks, 'rank')}" for link in links]
    return f"no block in common with {name}: chained through {listed(places)}, which ran in both jobs"


def links_between(
    launches: CellLaunches, base: CellLaunches, family: Iterable[CellLaunches]
) -> tuple[CellLaunches, ...] | None:
    """The cells that pair `launches` with `base`: none if they share a block, None if nothing links the two.

    The shortest chain of trainings, each with 3 blocks or more in common with the next; of the same backend where
    there is one, else of `none`, and never of a third, so that no number decides which chain it is.
    """
    cell, kind = launches.cell, launches.evidence
    own = (cell.method, cell.options, cell.num_servers)

    def blocks(one: CellLaunches) -> Set[Block]:
        return one.by_block("world").keys()

    if blocks(launches) & blocks(base):
        return ()
    candidates = [
        relative.only(kind)
        for relative in family
        if relative.cell.control == "train"
        and kind in relative.kinds
        and relative.id not in (launches.id, base.id)
        and (
            (relative.cell.method, relative.cell.options, relative.cell.num_servers) == own
            or relative.cell.backend == "none"
        )
    ]
    candidates.sort(key=lambda one: (one.cell.backend != cell.backend, one.cell.num_ranks, one.id))
    chains: list[tuple[CellLaunches, ...]] = [()]
    seen: set[str] = set()
    while chains:
        longer = []
        for chain in chains:
            end = blocks(chain[-1] if chain else launches)
            if chain and len(end & blocks(base)) >= MIN_BLOCKS:
                return chain
            for link in candidates:
                if link.id not in seen and len(end & blocks(link)) >= MIN_BLOCKS:
                    seen.add(link.id)
                    longer.append((*chain, link))
        chains = longer
    return None


def _rank_rates(launches: CellLaunches) -> dict[Block, float]:
    """Samples per second and rank in each block."""
    rates = launches.by_block("samples_per_second")
    return {block: rate / launches.cell.num_ranks for block, rate in rates.items()}


def flaws(launches: CellLaunches) -> Iterator[str]:
    """Notes on everything that makes a cell's number less trustworthy."""
    good = launches.good
    if launches.cell.control == "whole_machine":
        yield f"a reference, never a base case: 1 rank on {launches.cell.cores_per_rank} cores"
    if num_servers := launches.cell.num_servers:
        yield f"{num_servers} server{'s' * (num_servers > 1)} besides the ranks"
    if not good:
        yield "every launch failed"
    if num_unsteady := sum(not case.steady for case in good):
        yield f"not steady in {num_unsteady} of {len(good)} launches"
    if any(case.record.oversubscribed for case in launches.cases):
        yield "oversubscribed: more ranks x cores than the machine has"
    skews = [case.start_skew for case in good if case.start_skew is not None]
    if skews and (skew := float(np.median(skews))) > MAX_START_SKEW:
        yield f"ranks start {skew:.0%} of a window apart"
    if good and (num_windows := min(len(case.seconds) for case in good)) < MIN_WINDOWS:
        yield f"a launch of only {num_windows} windows"
    if retried := sum(case.num_attempts > 1 for case in good):
        yield f"{retried} launch{'es' * (retried > 1)} repeated after other attempts"
    if resumed := [case.pause_seconds for case in good if case.part > 1]:
        yield (
            f"{plural(len(resumed), 'block')} resumed {days(max(resumed))} later: launches before and after the "
            "pause are not paired"
        )
    skipped = [[count for count in record.skipped_samples if count] for record in launches.records]
    if num_skipped := sum(map(sum, skipped)):
        num_ranks = max(map(len, skipped))  # shards and their order are the same in every launch
        yield (
            f"{num_skipped} unreadable sample{'s' * (num_skipped > 1)} left out on {num_ranks} "
            f"rank{'s' * (num_ranks > 1)}"
        )


def input_stall(launches: CellLaunches, relatives: Iterable[CellLaunches]) -> Interval | None:
    """The share of a step that waits for input: seconds to fetch a batch over seconds of a training step.

    This is the loader-only control over `launches`, good ones of one kind of evidence, paired by block like
    an efficiency. Batches are not prefetched, so all of the fetching is waiting. None for controls, and if
    the loader-only control has no number.
    """
    return _control_share(launches, relatives, control="loader")


def input_loss(launches: CellLaunches, relatives: Iterable[CellLaunches]) -> Interval | None:
    """The share of a training step saved by resident tensors: 1 - synthetic / training, in seconds.

    Noise can make it negative. None in the same cases as `input_stall`.
    """
    share = _control_share(launches, relatives, control="synthetic")
    return share and share.complement()


def _control_share(
    launches: CellLaunches, relatives: Iterable[CellLaunches], *, control: Control
) -> Interval | None:
    """A control's seconds per step over those of its training, in the same framework and backend."""
    cell = launches.cell
    if cell.control != "train" or not launches.cases:
        return None
    wanted = cell.model_copy(update={"control": control})
    controls = [
        relative.only(launches.evidence)
        for relative in relatives
        if relative.family == launches.family and relative.cell == wanted
    ]
    if not controls or not controls[0].cases:
        return None
    return block_ratio(controls[0].by_block("world"), launches.by_block("world"))
