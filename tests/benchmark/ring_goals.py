"""The goals that we set ourselves for the ring, judged on a run of `dlscale collectives`, hot calls only.

    python tests/benchmark/ring_goals.py results/collectives/<time>

Runs on 2 ranks decide all goals but the last, which needs --ranks 2,4 on 2 cores. The exit status is 1 if a goal was
missed. Launches of the ring and of its peers follow each other block by block.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from dlscale.analysis.message_sizes.measurements import (
    PEER,
    RING,
    UNSYNCHRONISED,
    MessageSizeRow,
    fastest,
)
from dlscale.analysis.message_sizes.summary import summarise
from dlscale.analysis.render.text import number, ratio_text, size_text
from dlscale.benchmarks.records.message_sizes import load_run

KIB, MIB = 2**10, 2**20
# What the ring's rate is divided by, the sizes, and the least that the ratio must be at every one of them.
GOALS: list[tuple[str, Callable[[MessageSizeRow], bool], int, int, float]] = [
    ("the best tuned peer", lambda row: row.role == PEER, 1 * MIB, 32 * MIB, 1.1),
    ("the best tuned peer", lambda row: row.role == PEER, 64 * MIB, 256 * MIB, 1.8),
    ("the best peer but Intel MPI", lambda row: row.role == PEER and row.backend != "intelmpi", 4 * KIB, 256 * KIB, 1),
    ("MPICH's default", lambda row: row.backend == "mpich" and row.setting.startswith("default"), 25 * MIB, 2**62, 3),
    ("the ring without waiting", lambda row: row.role == UNSYNCHRONISED, 1 * MIB, 32 * MIB, 0.85),
]  # fmt: skip
BOUND = (64 * MIB, 256 * MIB, 0.8)
MOST_OVERSUBSCRIBED, COLLAPSE, COLLAPSE_SECONDS = 3.0, 10.0, 1e-3


def verdicts(rows: list[MessageSizeRow], num_cpus: int) -> Iterator[tuple[str, bool | None, str]]:
    """A goal, whether it was met (None: not measured), and the numbers."""
    rows = [row for row in rows if row.collective == "allreduce"]
    two = [row for row in rows if (row.mode, row.num_ranks) == ("hot", 2)]
    for against, wanted, first, last, least in GOALS:
        at = [row for row in two if first <= row.message_bytes <= last and wanted(row)]
        best = [
            fastest([row for row in at if row.message_bytes == size])
            for size in {r.message_bytes for r in at}
        ]
        ratios = {row.message_bytes: row.ring_speedup for row in best if row and row.ring_speedup}
        goal = f"{size_text(first)} and more: at least {least:g} times {against}"
        yield _judged(goal, ratios, least)
    first, last, least = BOUND
    bounds = {
        row.message_bytes: row.fraction_of_bound for row in two if row.role == RING and row.fraction_of_bound
    }
    at_sizes = {size: ratio for size, ratio in bounds.items() if first <= size <= last}
    yield _judged(f"{size_text(first)} and more: at least {least:g} of the memory bound", at_sizes, least)
    yield _oversubscribed(rows, num_cpus)


def _judged(goal: str, ratios: dict, least: float) -> tuple[str, bool | None, str]:
    if not ratios:
        return goal, None, "not measured"
    worst = min(ratios, key=lambda size: ratios[size].center)
    return goal, ratios[worst].center >= least, f"at worst {ratio_text(ratios[worst])} at {size_text(worst)}"


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
    judged = list(verdicts(list(summarise(campaign, launches).rows), len(campaign.cpus)))
    for goal, met, text in judged:
        print(f"{ {True: 'met', False: 'missed', None: 'not judged'}[met] }: {goal}: {text}")
    sys.exit(any(met is False for _, met, _ in judged))


if __name__ == "__main__":
    main()
