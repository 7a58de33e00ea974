"""Efficiencies and names of trainings whose ranks share samples."""

import pytest

from dlscale.analysis.curves import with_curve_names
from dlscale.analysis.measured import measure
from dlscale.analysis.text import backend_name
from tests.analysis.reading import row_of
from tests.made_records import make_record

STRONG = {"scaling_mode": "strong", "global_batch": 2}
ALONE = {"num_ranks": 1, "local_batch": 2, "samples_per_second": 100.0}


def six(**fields):
    return [make_record(block=block, **fields) for block in range(6)]


def names(records):
    found, _ = with_curve_names(records, [])
    cells = {record.case.cell.id: record.case.cell for record in found}
    return sorted({(backend_name(cell), cell.num_ranks) for cell in cells.values()})


def strong(splits, *, backend="ring", **fields):
    """A strong scaling of 2 samples, each {ranks: ranks per sample}, that keeps 80 % of 1 rank's speed per rank."""
    records = six(backend=backend, **STRONG, **ALONE)
    for ranks, split in splits.items():
        own = {"local_batch": 2 * split // ranks, "split": split, "samples_per_second": 80.0 * ranks}
        records += six(backend=backend, num_ranks=ranks, **STRONG | own | fields)
    return records


def test_efficiency_goes_on_beyond_the_batch_relative_to_whole_samples():
    table = measure(six(**STRONG, **ALONE) + strong({2: 1, 4: 2}))
    for ranks in (2, 4):
        row = row_of(table, backend="ring", num_ranks=ranks)
        assert row.efficiency_none.center == pytest.approx(0.8)
        assert row.efficiency_backend.center == pytest.approx(0.8)
        assert row.speed_up.center == pytest.approx(0.8 * ranks)


def test_weak_scaling_with_replicas_is_of_the_same_family_as_without():
    records = six(backend="ring", local_batch=8)
    records += six(
        backend="ring", num_ranks=4, local_batch=16, global_batch=32, split=2, samples_per_second=320.0
    )
    row = row_of(measure(records), num_ranks=4)
    assert (row.family.batch, row.efficiency_backend.center) == (8, pytest.approx(0.8))


def test_a_curve_of_one_split_has_its_base_case():
    assert names(strong({2: 2})) == [("ring, split 2", 1), ("ring, split 2", 2)]


def test_a_curve_of_one_split_is_named_after_it_where_it_must_be_so_too():
    beyond = strong({4: 2})
    assert names(beyond) == [("ring, split 2", 1), ("ring, split 2", 4)]


def test_a_curve_through_the_wall_is_one():
    found = names(strong({2: 1, 4: 2, 8: 4}))
    assert {name for name, _ in found} == {"ring, split auto"}


def test_splits_on_as_many_ranks_are_curves_of_their_own():
    records = strong({2: 1}) + strong({2: 2, 4: 2})[6:]
    assert names(records) == [("ring", 1), ("ring", 2), ("ring, split 2", 2), ("ring, split 2", 4)]
    table = measure(records)
    assert row_of(table, backend="ring", num_ranks=4).efficiency_backend.center == pytest.approx(0.8)
