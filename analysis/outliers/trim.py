"""Launches without those that stand out: for what is told beside a number, never instead of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dlscale.analysis.family import Family
from dlscale.analysis.launches import Launches
from dlscale.analysis.outliers.cells import Outliers

StandingOut = Mapping[tuple[Family, str, str], Outliers]  # by family, cell and kind of evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Trimmed:
    """A study's launches without those that stand out. `families` are those in which any does."""

    out: StandingOut
    launches: tuple[Launches, ...]
    families: frozenset[Family]


def trimmed(measured: Sequence[Launches], found: Iterable[Outliers]) -> Trimmed:
    """Of all cells."""
    out = {(one.family, one.cell.id, one.evidence): one for one in found}
    return Trimmed(
        out=out,
        launches=tuple(trim(launches, out) for launches in measured),
        families=frozenset(one.family for one in out.values() if one.launches),
    )


def trim(launches: Launches, out: StandingOut) -> Launches:
    """The launches without those that stand out; the same object where none does."""
    cases = launches.cases
    names = {
        (one.evidence, *outlier.block)
        for kind in set(cases["evidence"])
        if (one := out.get((launches.family, launches.cell.id, str(kind))))
        for outlier in one.launches
    }
    if not names:
        return launches
    rows = zip(cases["evidence"], cases["study"], cases["block"], strict=True)
    kept = np.array([row not in names for row in rows])
    return Launches(cell=launches.cell, family=launches.family, cases=cases[kept])
