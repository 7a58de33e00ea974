"""What is said of outliers: the launches and windows of every cell that stand out (`analysis.outliers`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dlscale.analysis.censored import share_of
from dlscale.analysis.outliers import Outlier, Outliers
from dlscale.analysis.statistics import Interval
from dlscale.analysis.text import number, percent


def outlier_columns(flagged: Outliers | None) -> dict[str, Any]:
    """Columns on outliers, all None without a good launch. Rates here exclude outliers; all other columns include them.

    `launches_out` gives study, block and time factor of each: `weak-scaling-1a2b 3: 1.120`.
    """
    return {name: flagged and value(flagged) for name, value in _OUTLIER_COLUMNS.items()}


def _launches_out(flagged: Outliers) -> str:
    each = ((*outlier.block, outlier.factor) for outlier in flagged.launches)
    return "; ".join(f"{study} {block}: {factor:.3f}" for study, block, factor in each)


_OUTLIER_COLUMNS: Mapping[str, Callable[[Outliers], Any]] = {
    "num_launches_out": lambda flagged: len(flagged.launches),
    # 0 of 7 may still be up to 41 % in the long run.
    "share_of_launches_out_high": lambda flagged: share_of(len(flagged.launches), flagged.num_launches).high,
    "launches_out": _launches_out,
    "samples_per_second_without_launches_out": lambda flagged: flagged.rate_without,
    "num_windows": lambda flagged: flagged.num_windows,
    "num_windows_out": lambda flagged: flagged.num_windows_out,
    "longest_window_out": lambda flagged: flagged.longest,
    "samples_per_second_without_windows_out": lambda flagged: flagged.rate_without_windows,
}

MATTERS = 0.01  # of the rate


def outlier_notes(flagged: Outliers) -> Iterator[str]:
    """Notes on outlying launches and windows; what a rate is without them only where that differs by 1 %."""
    if flagged.launches and flagged.rate_without:
        num = len(flagged.launches)
        which, those = (f"{num} launches", "them") if num > 1 else ("1 launch", "it")
        changes = abs(flagged.rate_without / flagged.rate - 1) >= MATTERS
        without = f"; without {those} {number(flagged.rate_without)} samples/s" if changes else ""
        verb = "are" if num > 1 else "is"
        yield f"{which} of {flagged.num_launches} {verb} {_how_far(flagged.launches)} than the others{without}"
    if abs(flagged.rate_without_windows / flagged.rate - 1) >= MATTERS:
        yield (
            f"{flagged.num_windows_out} of {flagged.num_windows} windows stand out, "
            f"by up to {flagged.longest:.1f} times "
            f"the launch's median; without them {number(flagged.rate_without_windows)} samples/s"
        )


def efficiency_notes(efficiency: Interval | None, without: Interval | None) -> Iterator[str]:
    """A note with the efficiency without its and the base case's outlying launches; none if there are none."""
    if efficiency and without and without.n < efficiency.n:
        yield f"efficiency without outliers {percent(without)}"


def _how_far(launches: tuple[Outlier, ...]) -> str:
    """`12 % slower (block 3)`, `11 % to 14 % slower (blocks 2, 3)`, or both sides."""
    sides = []
    for side in ("slower", "faster"):
        here = [outlier for outlier in launches if (outlier.factor > 1) == (side == "slower")]
        if here:
            sizes = sorted({f"{100 * abs(outlier.factor - 1):.0f}" for outlier in here}, key=int)
            ends = dict.fromkeys((sizes[0], sizes[-1]))
            sides.append(f"{' to '.join(ends)} % {side} ({_blocks(here)})")
    return " and ".join(sides)


def _blocks(launches: list[Outlier]) -> str:
    names = [f"{outlier.block[1]}{'' if outlier.steady else ', never steady'}" for outlier in launches]
    return f"block{'s' * (len(names) > 1)} {', '.join(names)}"
