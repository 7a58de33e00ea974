"""Planted launches and windows that stand out, and how often any that do not are flagged."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.outliers import outlier_notes
from dlscale.analysis.findings.scaling import scaling_row
from dlscale.analysis.launches import launches_of, outliers
from dlscale.analysis.measured import measure
from dlscale.analysis.outliers import median_of_others, outlying, without_block_effects
from tests.analysis.reading import row_of, table_text
from tests.made_records import make_record, make_study

KEPT = {"none": (1.0, 0.98), "ring": (0.99, 0.92), "mpi": (0.985, 0.86)}


def study(factors=(), num_blocks=8, noise=0.002, efficiency=None, of=("ring", 2), **fields):
    """Records of a study; some launches `of` a cell, block -> factor, take so many times as long."""
    found = []
    for record in make_study(efficiency=efficiency or KEPT, num_blocks=num_blocks, noise=noise, **fields):
        cell, block = record.case.cell, record.case.block
        factor = dict(factors).get(block, 1.0) if (cell.backend, cell.num_ranks) == of else 1.0
        windows = [
            window.model_copy(update={"seconds": [one * factor for one in window.seconds]})
            for window in record.windows
        ]
        found.append(record.model_copy(update={"windows": windows}))
    return found


def ring_of(records):
    found = {(one.cell.backend, one.cell.num_ranks): one for one in outliers(launches_of(records))}
    assert all(not one.launches for key, one in found.items() if key != ("ring", 2))
    return found["ring", 2]


def test_a_launch_that_stands_out_is_found_with_its_size_and_counts():
    clean, found = ring_of(study()), ring_of(study({3: 1.12}))
    assert clean.launches == ()
    assert clean.rate_without is None
    (one,) = found.launches
    assert one.block == ("weak-scaling", 3)
    assert one.factor == pytest.approx(1.12, rel=0.01)
    assert found.num_launches == 8
    # The machine drifts by up to 40 % from block to block; that is no launch's own.
    assert found.blocks == {("weak-scaling", 3)}


def test_the_rate_without_it_is_that_of_the_others():
    records = study({2: 2.0}, num_blocks=7, noise=0.0, drift=(1.0,) * 10)
    found = ring_of(records)
    assert found.rate == pytest.approx(184)
    assert found.rate_without == pytest.approx(184)
    uneven = [
        make_record(backend="ring", num_ranks=2, block=block, samples_per_second=rate)
        for block, rate in enumerate([100.0, 101.0, 102.0, 103.0, 104.0, 60.0])
    ]
    (only,) = outliers(launches_of(uneven))
    assert [one.block[1] for one in only.launches] == [5]
    assert only.rate == pytest.approx(16 / np.median([16 / rate for rate in (100, 101, 102, 103, 104, 60)]))
    assert only.rate_without == pytest.approx(102)


def test_less_than_two_percent_stands_out_to_nobody():
    assert ring_of(study({3: 1.015}, noise=0.0)).launches == ()
    assert [one.block[1] for one in ring_of(study({3: 1.03}, noise=0.0)).launches] == [3]


def test_of_five_launches_none_is_said_to_stand_out():
    assert ring_of(study({3: 2.0}, num_blocks=5)).launches == ()
    assert len(ring_of(study({3: 2.0}, num_blocks=6)).launches) == 1


def test_a_cell_among_few_others_is_held_against_itself_alone():
    """With 2 cells nobody knows whose the drift is: what all launches of a block share is not taken out."""
    records = make_study(efficiency={"ring": (1.0, 0.9)}, noise=0.002)
    assert all(not one.launches for one in outliers(launches_of(records)))


def test_a_slow_moment_of_the_machine_is_no_launch_of_anybody():
    drift = (1.0, 1.0, 1.0, 0.5, 1.0, 1.0, 1.0, 1.0)
    assert ring_of(study(drift=drift)).launches == ()


def test_kinds_of_evidence_and_studies_are_held_apart():
    both = study({3: 1.12}) + study(study="weak-scaling-2", evidence="emulated")
    found = [one for one in outliers(launches_of(both)) if one.launches]
    assert [(one.evidence, one.num_launches) for one in found] == [("measured", 8)]


def test_windows_that_stand_out_are_counted_and_change_no_rate():
    factors = [1.0, 1.001, 0.999, 1.002, 0.998] * 4
    factors[7], factors[12] = 3.0, 1.5
    records = [
        make_record(backend="ring", num_ranks=2, block=block, window_factors=factors) for block in range(6)
    ]
    (found,) = outliers(launches_of(records))
    assert (found.num_windows, found.num_windows_out) == (120, 12)
    assert found.longest == pytest.approx(3.0, rel=0.01)
    assert found.rate_without_windows == pytest.approx(found.rate, rel=0.002)
    assert list(outlier_notes(found)) == []
    short = [make_record(block=block, window_factors=factors[4:13]) for block in range(6)]
    assert outliers(launches_of(short))[0].num_windows_out == 0


def test_windows_that_change_the_rate_are_told():
    factors = [*np.linspace(0.97, 1.03, 13).tolist(), *[3.0] * 7]
    (found,) = outliers(launches_of([make_record(block=block, window_factors=factors) for block in range(6)]))
    assert found.rate_without_windows > 1.01 * found.rate
    (note,) = outlier_notes(found)
    assert note.startswith("42 of 120 windows stand out")


def test_notes():
    assert list(outlier_notes(ring_of(study()))) == []
    found = ring_of(study({3: 1.12}, noise=0.0))
    assert list(outlier_notes(found)) == [
        f"1 launch of 8 is 12 % slower (block 3) than the others; without it {found.rate_without:.0f} samples/s"
    ]
    (several,) = outlier_notes(ring_of(study({1: 0.8, 5: 1.2, 6: 1.3}, noise=0.0)))
    assert several.startswith(
        "3 launches of 8 are 20 to 30 % slower (blocks 5, 6) and 20 % faster (block 1) than the others; without them "
    )
    (unsteady,) = outlier_notes(ring_of(study({3: 1.12}, noise=0.0, steady=False)))
    assert "(block 3, never steady)" in unsteady


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=12))
def test_the_median_of_the_others_is_the_median_of_the_others(values):
    found = median_of_others(np.array(values))
    for index, one in enumerate(found):
        assert one == np.median(values[:index] + values[index + 1 :])


@given(st.integers(0, 2**32 - 1), st.integers(4, 8), st.integers(3, 8))
def test_what_all_launches_of_a_block_share_is_nobodys(seed, num_cells, num_blocks):
    generator = np.random.default_rng(seed)
    drift = 10 * generator.standard_normal(num_blocks)
    left = without_block_effects([dict(enumerate(drift + 5 * index)) for index in range(num_cells)])
    assert all(abs(value) < 1e-12 for cell in left for value in cell.values())


def test_with_fewer_than_three_others_nothing_is_taken_out():
    drift = {0: 0.0, 1: 1.0, 2: -1.0}
    assert without_block_effects([drift] * 3) == [drift] * 3
    assert without_block_effects([drift] * 4)[0] == {0: 0.0, 1: 0.0, 2: 0.0}
    # A block that only one cell has says nothing of that cell's other blocks either.
    assert without_block_effects([{**drift, 3: 5.0}, *[drift] * 4])[0][3] > 4


def flagged(num_cells, num_launches, *, planted=0.0, num_studies=200):
    """Shares of clean launches that are flagged, and of the planted ones; noise of 2 %."""
    generator = np.random.default_rng(1993)
    wrong = right = 0
    for _ in range(num_studies):
        logs = 0.02 * generator.standard_normal((num_cells, num_launches))
        logs += 0.1 * generator.standard_normal(num_launches) * (num_cells > 3)
        logs[0, 0] += planted
        costs = [{block: float(np.exp(log)) for block, log in enumerate(one)} for one in logs]
        found = outlying(costs, systems=["local"] * num_cells)
        is_right = planted and 0 in found[0]
        right += is_right
        wrong += sum(map(len, found)) - is_right
    return wrong / (num_studies * (num_cells * num_launches - bool(planted))), right / num_studies


@pytest.mark.parametrize(
    ("num_cells", "num_launches", "most"), [(1, 6, 0.035), (4, 6, 0.015), (8, 6, 0.01), (8, 10, 0.005)]
)
def test_how_often_a_clean_launch_is_flagged(num_cells, num_launches, most):
    """As docs/metrics.md says it: 1 % where there are several cells."""
    assert flagged(num_cells, num_launches, num_studies=200 if num_cells > 1 else 1000)[0] <= most


@pytest.mark.parametrize(("planted", "least"), [(0.1, 0.5), (0.2, 0.95), (0.4, 0.99)])
def test_how_often_one_that_stands_out_is_found(planted, least):
    """5, 10 and 20 standard deviations, by 8 launches of 8 cells."""
    assert flagged(8, 8, planted=planted)[1] >= least


RING, NONE = {"backend": "ring", "num_ranks": 2}, {"backend": "none", "num_ranks": 1}


def test_nothing_is_dropped_and_both_numbers_are_there():
    clean, slow = measure(study()), measure(study({3: 1.5}, noise=0.001))
    row = row_of(slow, **RING)
    assert row.num_launches == 8
    assert row.throughput.n == 8
    assert row.efficiency_none.n == 8
    assert row.efficiency_none.center < row_of(clean, **RING).efficiency_none.center - 0.02
    assert row_of(clean, **RING).notes == ()
    assert len(row.notes) == 2
    assert row.notes[0].startswith("1 launch of 8 is 50 % slower (block 3) than the others")
    assert row.notes[1].startswith("efficiency without outliers 92")
    assert "1 launch of 8 is 50 % slower" in table_text(slow)
    assert scaling_row(row)["num_launches_out"] == 1
    assert scaling_row(row)["share_of_launches_out_high"] == pytest.approx(0.5265, abs=1e-4)
    assert scaling_row(row)["samples_per_second"] == row.throughput.center


def test_an_outlying_base_case_is_told_where_it_matters():
    slow = measure(study({3: 1.5}, noise=0.001, of=("none", 1)))
    assert any("without outliers 92" in note for note in row_of(slow, **RING).notes)
    assert not any("of 8 is" in note for note in row_of(slow, **RING).notes)
    assert any("of 8 is 50 % slower" in note for note in row_of(slow, **NONE).notes)


def test_canaries_and_failed_launches_stand_out_nowhere():
    records = make_study(efficiency=KEPT, noise=0.001)
    records += [make_record(control="canary", block=block, samples_per_second=1.0) for block in range(2)]
    records += [make_record(backend="gloo", num_ranks=2, block=block, failure="hung") for block in range(6)]
    found = measure(records)
    assert all(row.outliers is None or not row.outliers.launches for row in scaling.FINDING.of(found))
    assert row_of(found, backend="gloo").outliers is None
