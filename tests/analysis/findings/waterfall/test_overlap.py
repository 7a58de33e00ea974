"""Overlap: what is left exposed, beside a planted time of the exchange alone."""

import pytest

from dlscale.analysis.findings.overlap import NOT_OVERLAPPED, overlap
from dlscale.analysis.findings.waterfall_parts import waterfalls_of
from dlscale.analysis.launches import launches_of
from tests.made_records import rows_of

from .conftest import DRIFT, MS, Planted, plant

ALL = Planted(co_running=0.2 * MS, input=0.1 * MS, delays=(0.4 * MS,), exposed=1.2 * MS)


def measured(records):
    """Block -> seconds per step of the training over a backend."""
    return {
        (one.study, one.case.block): max(rows_of(one.windows)[1].seconds) / rows_of(one.windows)[1].num_steps
        for one in records
        if one.case.cell.backend != "none"
    }


def drifting(seconds, study="weak-scaling", noise=(1.0,) * 6):
    return {(study, block): seconds * DRIFT[block] * noise[block] for block in range(6)}


def test_overlap_is_the_share_of_the_exchange_that_is_not_exposed():
    records = plant(ALL)
    (one,) = waterfalls_of(launches_of(records))
    for factor, share in ((4, 0.75), (1, 0.0), (0.5, -1.0)):
        found = overlap(one, drifting(factor * ALL.exposed), measured(records), exchange="overlapped")
        assert (found.center, found.low, found.high) == pytest.approx((share,) * 3)
        assert (found.method, found.n) == ("paired t", 6)


def test_the_interval_of_an_overlap_has_both_uncertainties():
    records = plant(ALL, noise=0.02)
    (one,) = waterfalls_of(launches_of(records))
    some = dict(list(drifting(4 * ALL.exposed).items())[:4])
    assert overlap(one, some, measured(records), exchange="").n == 4, "only common blocks count"
    exact = overlap(one, drifting(4 * ALL.exposed), measured(records), exchange="")
    noisy = drifting(4 * ALL.exposed, noise=(1.3, 0.7, 1.2, 0.8, 1.0, 1.1))
    rough = overlap(one, noisy, measured(records), exchange="")
    assert exact.low < 0.75 < exact.high
    assert rough.high - rough.low > exact.high - exact.low


def test_a_waterfall_without_blocks_gives_an_unpaired_overlap():
    records = plant(ALL, base_block=6)
    (one,) = waterfalls_of(launches_of(records))
    assert one.by_block == ()
    found = overlap(one, drifting(4 * ALL.exposed), measured(records), exchange="")
    assert found.center == pytest.approx(0.75, abs=0.02)
    assert found.method == "unpaired t"
    assert found.low < 0.75 < found.high
    few = dict(list(drifting(4 * ALL.exposed).items())[:2])
    assert overlap(one, few, measured(records), exchange="").low is None


def test_what_is_not_known_of_an_overlap_has_a_reason():
    records = plant(ALL)
    (one,) = waterfalls_of(launches_of(records))
    alone = drifting(1.0)
    assert overlap(one, alone, measured(records), exchange="in line") == NOT_OVERLAPPED
    assert "not measured" in overlap(one, {}, measured(records), exchange="overlapped")
    (merged,) = waterfalls_of(launches_of(plant(ALL, stamps=False)))
    assert "not known by itself" in overlap(merged, alone, measured(records), exchange="overlapped")
    with pytest.raises(ValueError, match="positive"):
        overlap(one, drifting(0.0), measured(records), exchange="overlapped")
