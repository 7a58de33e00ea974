"""What stands out, in words: notes for a table's row."""

from __future__ import annotations

from collections.abc import Iterator

from dlscale.analysis.outliers.cells import Outlier, Outliers
from dlscale.analysis.statistics import Interval
from dlscale.analysis.words import number, percent

MANY = 0.05  # of the windows
MATTERS = 0.01  # of the rate


def notes(found: Outliers) -> Iterator[str]:
    """None where nothing stands out. A few windows that change nothing are in the rows, and no note."""
    if found.launches and found.rate_without:
        num = len(found.launches)
        which, those = (f"{num} launches", "them") if num > 1 else ("1 launch", "it")
        yield (
            f"{which} of {found.num_launches} {'are' if num > 1 else 'is'} {_how_far(found.launches)} than the others; "
            f"without {those} {number(found.rate_without)} samples/s"
        )
    share = found.num_windows_out / max(1, found.num_windows)
    change = abs(found.rate_without_windows / found.rate - 1)
    if share >= MANY or change >= MATTERS:
        yield (
            f"{found.num_windows_out} of {found.num_windows} windows stand out, by up to {found.longest:.1f} times the "
            f"launch's median; without them {number(found.rate_without_windows)} samples/s"
        )


def efficiency_notes(told: Interval | None, without: Interval | None) -> Iterator[str]:
    """What an efficiency (a) is without outlying launches, its own and the base case's; none if there are none."""
    if told and without and without.n < told.n:
        yield f"without outlying launches, its own and the base case's, efficiency (a) is {percent(without)}"


def _how_far(launches: tuple[Outlier, ...]) -> str:
    """`12 % slower (block 3)`, `11 % to 14 % slower (blocks 2, 3)`, or both sides."""
    sides = []
    for side in ("slower", "faster"):
        here = [one for one in launches if (one.factor > 1) == (side == "slower")]
        if here:
            sizes = sorted({f"{100 * abs(one.factor - 1):.0f}" for one in here}, key=int)
            ends = dict.fromkeys((sizes[0], sizes[-1]))
            sides.append(f"{' to '.join(ends)} % {side} ({_blocks(here)})")
    return " and ".join(sides)


def _blocks(launches: list[Outlier]) -> str:
    names = [f"{one.block[1]}{'' if one.steady else ', never steady'}" for one in launches]
    return f"block{'s' * (len(names) > 1)} {', '.join(names)}"
