"""The goals that we set ourselves for the ring, judged on a run of `dlscale collectives`, hot calls only.

    python tests/benchmark/ring_goals.py results/collectives/<time> [LOW:HIGH]

Runs on 2 ranks decide all goals but the last, which needs --ranks 2,4 on 2 cores. The exit status is 1 if a goal was
missed. Launches of the ring and of its peers took turns; with LOW:HIGH only those blocks of calls count around which a
flag took so many nanoseconds, as by `dlscale collectives report --round-trip`.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from dlscale.analysis.message_sizes.measurements import (
    PEER,
    RING,
    RING_SHARED,
    MessageSizeRow,
    RoundTrip,
    fastest,
    only_at_distance,
)
from dlscale.analysis.message_sizes.summary import summarise
from dlscale.analysis.statistics import Interval
from dlscale.analysis.text import number, ratio_text, size_text
from dlscale.benchmarks.records.message_sizes import load_run

KIB, MIB = 2**10, 2**20
# The sizes, and the least that the ring's rate over the best tuned peer's must be at every one of them: the lower end
# of the interval, or its centre.
SPEED = [
    (4 * KIB, 256 * KIB, 0.97, "low"),
    (1 * MIB, 32 * MIB, 1.3, "center"),
    (64 * MIB, 256 * MIB, 1.8, "center"),
]
# Likewise over the memory bound.
BOUNDS = [
    (RING, "ordinary memory", 64 * MIB, 256 * MIB, 0.8),
    (RING_SHARED, "own memory", 16 * MIB, 256 * MIB, 0.9),
]
MOST_OVERSUBSCRIBED, COLLAPSE, COLLAPSE_SECONDS = 2.5, 10.0, 1e-3


def verdicts(rows: list[MessageSizeRow], num_cpus: int) -> Iterator[tuple[str, bool | None, str]]:
    """A goal, whether it was met (None: not measured), and the numbers."""
    rows = [row for row in rows if row.collective == "allreduce"]
    two = [row for row in rows if (row.mode, row.num_ranks) == ("hot", 2)]
    for first, last, least, end in SPEED:
        peers = [row for row in two if row.role == PEER and first <= row.message_bytes <= last]
        sizes = {row.message_bytes for row in peers}
        best = [fastest([row for row in peers if row.message_bytes == size]) for size in sizes]
        ratios = {row.message_bytes: row.ring_speedup for row in best if row and row.ring_speedup}
        which = {"low": "lower end", "center": "estimate"}[end]
        goal = (
            f"{size_text(first)} to {size_text(last)}: {which} at least {least:g} times the best tuned peer"
        )
        yield _judged(goal, ratios, least, end)
    for role, memory, first, last, least in BOUNDS:
        bounds = {
            row.message_bytes: row.fraction_of_bound
            for row in two
            if row.role == role and row.fraction_of_bound and first <= row.message_bytes <= last
        }
        goal = f"{size_text(first)} to {size_text(last)}, {memory}: at least {least:g} of the memory bound"
        yield _judged(goal, bounds, least, "center")
    yield _oversubscribed(rows, num_cpus)


def _judged(goal: str, ratios: dict[int, Interval], least: float, end: str) -> tuple[str, bool | None, str]:
    ends = {size: getattr(ratio, end) for size, ratio in ratios.items()}
    if not ends:
        return goal, None, "not measured"
    if None in ends.values():
        return goal, None, "too few launches for an interval"
    worst = min(ends, key=ends.__getitem__)
    return goal, ends[worst] >= least, f"at worst {ratio_text(ratios[worst])} at {size_text(worst)}"


def _oversubscribed(rows: list[MessageSizeRow], num_cpus: int) -> tuple[str, bool | None, str]:
    goal = f"4 ranks on 2 cores: at most {MOST_OVERSUBSCRIBED:g} times the time of 2 ranks at 25 MiB, no collapse"
    two, four = (
        {
            row.message_bytes: row.seconds.center
            for row in rows
            if (row.role, row.mode, row.num_ranks) == (RING, "hot", num_ranks) and row.seconds
        }
        for num_ranks in (2, 4)
    )
    both = set(two) & set(four)
    if num_cpus != 2 or 25 * MIB not in both:
        return goal, None, "needs 2 cores, --ranks 2,4 and 25MiB among --sizes"
    collapsed = [size for size in sorted(both) if four[size] > COLLAPSE * two[size] + COLLAPSE_SECONDS]
    ratio = four[25 * MIB] / two[25 * MIB]
    text = f"{number(ratio)} times; collapses at: {', '.join(map(size_text, collapsed)) or 'no size'}"
    return goal, ratio <= MOST_OVERSUBSCRIBED and not collapsed, text


def main() -> None:
    campaign, launches = load_run(Path(sys.argv[1]))
    if sys.argv[2:]:
        least, most = map(float, sys.argv[2].split(":"))
        launches = only_at_distance(campaign, launches, RoundTrip(least=least, most=most))
    judged = list(verdicts(list(summarise(campaign, launches).rows), len(campaign.cpus)))
    for goal, met, text in judged:
        print(f"{ {True: 'met', False: 'missed', None: 'not judged'}[met] }: {goal}: {text}")
    sys.exit(any(met is False for _, met, _ in judged))


if __name__ == "__main__":
    main()
