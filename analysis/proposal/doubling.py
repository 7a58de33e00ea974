"""Speed-up per doubling of the ranks, from launches of the same blocks."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping

from dlscale.analysis.frame import tidy
from dlscale.analysis.launches import Launches
from dlscale.analysis.scaling import Row
from dlscale.analysis.statistics import Interval, block_ratio
from dlscale.benchmarks.record import Record

Key = tuple[str, str, str]  # system, cell, kind of evidence
Rates = Mapping[Key, Mapping[Hashable, float]]  # -> block -> samples/s


def rates_of(records: Iterable[Record]) -> Rates:
    """Samples per second of every launch that gave a number. Raises UsageError as `frame.tidy`."""
    records = list(records)
    cells = {record.case.cell.id: record.case.cell for record in records}
    found = {}
    for (system, cell_id), cases in tidy(records).groupby(["system", "cell_id"], sort=False):
        launches = Launches.of(cells[str(cell_id)], system=str(system), cases=cases)
        for kind in launches.kinds:
            by_block = launches.only(kind).by_block("samples_per_second")
            found[str(system), str(cell_id), kind] = by_block
    return found


def per_doubling(row: Row, before: Row | None, rates: Rates) -> Interval | None:
    """(T(p) / T(q)) ^ (1 / log2(p / q)) for `row` on p and `before` on q < p ranks; 2 is ideal.

    The factor by which each doubling multiplied the throughput on the way from q to p. None where one has no number.
    """
    if before is None:
        return None
    over, under = rates.get(_key(row), {}), rates.get(_key(before), {})
    if not over or not under:
        return None
    return power(block_ratio(over, under), 1 / math.log2(row.cell.num_ranks / before.cell.num_ranks))


def power(ratio: Interval, exponent: float) -> Interval:
    """Of a positive ratio, by a positive exponent: limits keep their places."""
    return Interval(
        center=ratio.center**exponent,
        low=None if ratio.low is None else ratio.low**exponent,
        high=None if ratio.high is None else ratio.high**exponent,
        level=ratio.level,
        method=ratio.method,
        n=ratio.n,
    )


def _key(row: Row) -> Key:
    return row.family.system, row.cell.id, row.evidence or ""
