"""How much studies of the same cells differ from each other, and where along a history a cell changed for good.

Studies of unchanged software on an unchanged machine differ by more than their launches let expect: by placement,
neighbours, temperature. The logarithm of cell c in study i is, in a random-effects model,

    y[i, c] = level[c] + common[i] + own[i, c]

`common` moves all cells of a study, `own` one cell. Both hold what differs between studies and what a median of few
launches leaves. The variance of `common` has about as many degrees of freedom as there are studies; that of `own` is
learnt from all cells (`_variances`), so that three studies say something of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from dlscale.analysis.statistics import LEVEL, Floats

MIN_BASELINES = 3  # they have a spread, from which a further study may differ
POWER = 0.8  # with which a change that counts as seen is shown
OF_MEDIAN = math.pi / 2  # variance of the median of many normal values over that of their mean
KNOWN_SHARE, KNOWN_CELLS = 1 / 3, 2  # what counts of the degrees of freedom that are learnt from all cells
TINY = 1e-12  # the variance of logarithms below which values are equal

Labels = NDArray[np.int64]  # the stretch of its cell that a study belongs to, [k][C]; -1: it has no number


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The cells of one metric: `values` are logarithms by study and cell, [k][C], NaN where a study has no number.

    `launches` are how many each is the median of, [k][C]; `within` is the variance of one launch's logarithm, [C].
    """

    values: Floats
    launches: Floats
    within: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """How much higher a cell's studies from `place` on are than those before, as logarithms, in the stretch around it.

    `p` is `single`, corrected, and so is the interval `size` +- `half_width`. A true change of `seen` is shown with
    probability POWER. `spread` is the standard deviation of one study's value.
    """

    group: int
    cell: int
    place: int
    size: float
    single: float
    p: float
    half_width: float
    seen: float
    spread: float

    @property
    def shown(self) -> bool:
        return self.p <= 1 - LEVEL


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Where cells changed, by place; and the last study against those since the cell's last change, where there are.

    Both are corrected for the same comparisons. With fewer than four studies nothing can be said.
    """

    found: tuple[Shift, ...] = ()
    latest: tuple[Shift, ...] = ()


def changes(groups: Sequence[Group]) -> Changes:
    """Where cells changed; at most 5 % of all histories without a change have one that is `found`.

    At each place the studies before it are held against those after it by a t test with the variance within both
    sides: its maximum over places is the likelihood-ratio test of a shift at an unknown place (K. J. Worsley, J. Am.
    Statist. Assoc. 74, 1979). Bonferroni's correction counts all places of all cells of all groups, and so holds
    whatever moves cells together. A find cuts its cell's history in two, and what is left is looked at again (A. J.
    Scott and M. Knott, Biometrics 30, 1974). Studies count as independent and nearly normal: of a slow drift it makes
    steps, and a rise and an equal fall soon after it can hide each other.
    """
    if not groups or len(groups[0].values) <= MIN_BASELINES:
        return Changes()
    cuts = [np.zeros(group.values.shape, np.int64) for group in groups]
    found: list[Shift] = []
    num_tests = 0
    while True:
        tests = [
            _tests_at(index, group, own, place)
            for index, (group, own) in enumerate(zip(groups, cuts, strict=True))
            for place in range(1, len(group.values))
        ]
        num_tests = num_tests or sum(len(test.cells) for test in tests)
        shown = [shift for test in tests for shift in test.shifts(num_tests, only_shown=True)]
        if not shown:
            break
        best: dict[tuple[int, int], Shift] = {}
        for shift in sorted(shown, key=lambda shift: shift.p):
            best.setdefault((shift.group, shift.cell), shift)
        first = next(iter(best.values()))
        here = [shift for shift in best.values() if shift.place == first.place]  # an upgrade moves many cells
        for shift in here:
            cuts[shift.group][shift.place :, shift.cell] += 1
        found += here
    ends = [test for test in tests if test.place == len(groups[0].values) - 1]
    return Changes(
        found=tuple(sorted(found, key=lambda shift: (shift.place, shift.group, shift.cell))),
        latest=tuple(shift for test in ends for shift in test.shifts(num_tests)),
    )


def newest(groups: Sequence[Group]) -> list[Shift]:
    """The last study against all before it, of every cell that has both, with Holm's correction over all of them."""
    tests = [
        _tests_at(index, group, np.zeros(group.values.shape, np.int64), len(group.values) - 1)
        for index, group in enumerate(groups)
    ]
    num_tests = sum(len(test.cells) for test in tests)
    shifts = [shift for test in tests for shift in test.shifts(num_tests)]
    least, ordered = 0.0, sorted(shifts, key=lambda shift: shift.single)
    for place, shift in enumerate(ordered):
        least = max(least, min(1.0, shift.single * (num_tests - place)))
        ordered[place] = replace(shift, p=least)
    return sorted(ordered, key=lambda shift: (shift.group, shift.cell))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tests:
    """The comparisons of the studies on both sides of a place: each array is by cell that has both."""

    group: int
    place: int
    cells: NDArray[np.intp]
    sizes: Floats
    errors: Floats  # standard errors of `sizes`
    freedom: Floats
    spreads: Floats

    def shifts(self, num_tests: int, *, only_shown: bool = False) -> list[Shift]:
        """Each as one of so many, by Bonferroni; `only_shown` those that are significant."""
        single = 2 * stdtr(self.freedom, -abs(self.sizes) / self.errors)
        chosen = np.flatnonzero(single * num_tests <= (1 - LEVEL if only_shown else math.inf))
        width = -stdtrit(self.freedom, (1 - LEVEL) / 2 / max(num_tests, 1))
        seen = width + stdtrit(self.freedom, POWER)
        return [
            Shift(
                group=self.group,
                cell=int(self.cells[i]),
                place=self.place,
                size=float(self.sizes[i]),
                single=float(single[i]),
                p=min(1.0, float(single[i]) * num_tests),
                half_width=float(width[i] * self.errors[i]),
                seen=float(seen[i] * self.errors[i]),
                spread=float(self.spreads[i]),
            )
            for i in chosen
        ]


def _tests_at(index: int, group: Group, cuts: Labels, place: int) -> _Tests:
    """Each cell with studies on both sides of a place, within the stretch around it."""
    known = ~np.isnan(group.values)
    labels = np.where(known, 2 * cuts + (np.arange(len(known))[:, None] >= place), -1)
    common, own, freedom = _variances(group.values, labels)
    few, values = _excess_of_few(group, known), np.where(known, group.values, 0.0)
    means, errors, counts = [], [], []
    for side in (labels == 2 * cuts[place], labels == 2 * cuts[place] + 1):
        count = np.maximum(side.sum(axis=0), 1)
        counts.append(side.sum(axis=0))
        means.append((values * side).sum(axis=0) / count)
        errors.append((common + own + (few * side).sum(axis=0) / count) / count)
    cells = np.flatnonzero((counts[0] > 0) & (counts[1] > 0))
    return _Tests(
        group=index,
        place=place,
        cells=cells,
        sizes=(means[1] - means[0])[cells],
        errors=np.sqrt(errors[0] + errors[1])[cells],
        freedom=freedom[cells],
        spreads=np.sqrt(common + own)[cells],
    )


def _excess_of_few(group: Group, known: NDArray[np.bool_]) -> Floats:
    """By how much the variance of a study with fewer launches than usual is larger, [k][C]."""
    inverse = 1 / np.where(known, group.launches, np.inf)
    usual = inverse.sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    excess: Floats = OF_MEDIAN * group.within * np.maximum(inverse - usual, 0.0)
    return excess


def _variances(values: Floats, labels: Labels) -> tuple[float, Floats, Floats]:
    """Variances within stretches: common to all cells, each cell's own [C], and degrees of freedom of their sum [C].

    `common` is that of the mean over cells. A cell's own is the larger of its own and the mean over cells, with a third
    of that mean's degrees of freedom (Satterthwaite), two cells' at least, so that cells may differ in their spread:
    by a factor of exp(0.5) alarms are false in 5 % of histories, in 7 % of those of five or six studies
    (test_between_studies.py).
    """
    known = labels >= 0
    rest, pieces = np.zeros(values.shape), np.zeros(values.shape[1])
    for label in range(int(labels.max(initial=0)) + 1):
        inside = labels == label
        count = inside.sum(axis=0)
        means = np.where(inside, values, 0.0).sum(axis=0) / np.maximum(count, 1)
        rest, pieces = np.where(inside, values - means, rest), pieces + (count > 0)
    num_cells = np.maximum(known.sum(axis=1), 1)
    mean = rest.sum(axis=1) / num_cells
    free = max(int(known.any(axis=1).sum()) - float(pieces.mean()), TINY)
    common = max(float((mean**2).sum()) / free, TINY)
    most = values.shape[1]
    if most == 1:
        return common, np.zeros(1), np.full(1, free)
    alone = np.where(known, rest - mean[:, None], 0.0)
    each_free = np.maximum((known.sum(axis=0) - pieces) * (most - 1) / most, TINY)
    varied = each_free > TINY  # a cell with one study on either side says nothing of its own
    each = np.where(varied, np.maximum((alone**2).sum(axis=0) / each_free, TINY), TINY)
    learnt = each.sum() ** 2 / (each**2 / (each_free + 2)).sum()
    learnt = min(learnt, each_free.sum())
    own_free = np.maximum(KNOWN_SHARE * learnt, np.minimum(learnt, KNOWN_CELLS * each_free))
    own = np.maximum(each, each[varied].mean() if varied.any() else TINY)
    return common, own, (common + own) ** 2 / (common**2 / free + own**2 / own_free)
