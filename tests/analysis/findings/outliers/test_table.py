"""Where a table tells of what stands out: numbers hold all launches, notes say what they would be without."""

import pytest

from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.scaling import scaling_row
from dlscale.analysis.measured import measure

KEPT = {"none": (1.0, 0.98), "ring": (0.99, 0.92), "mpi": (0.985, 0.86)}


@pytest.fixture
def table(make_study):
    """Of a study with one launch that took so many times as long."""

    def make(factor, backend="ring", num_ranks=2, **options):
        records = []
        for record in make_study(efficiency=KEPT, num_blocks=8, noise=0.001, **options):
            cell = record.case.cell
            if (cell.backend, cell.num_ranks, record.case.block) == (backend, num_ranks, 3):
                windows = [
                    one.model_copy(update={"seconds": [factor * value for value in one.seconds]})
                    for one in record.windows
                ]
                record = record.model_copy(update={"windows": windows})
            records.append(record)
        return measure(records)

    return make


def row_of(table, backend="ring", num_ranks=2):
    found = [
        row
        for row in scaling.FINDING.of(table)
        if (row.cell.backend, row.cell.num_ranks) == (backend, num_ranks)
    ]
    return found[0]


def test_nothing_is_dropped_and_both_numbers_are_there(table, table_text):
    clean, slow = table(1.0), table(1.5)
    row = row_of(slow)
    assert row.num_launches == 8
    assert row.throughput.n == 8
    assert row.efficiency_none.n == 8
    assert row.efficiency_none.center < row_of(clean).efficiency_none.center - 0.02
    assert row_of(clean).notes == ()
    assert len(row.notes) == 2
    assert row.notes[0].startswith("1 launch of 8 is 50 % slower (block 3) than the others; without it ")
    assert row.notes[1].startswith(
        "without outlying launches, its own and the base case's, efficiency (a) is 92"
    )
    assert "1 launch of 8 is 50 % slower" in table_text(slow)
    assert scaling_row(row)["num_launches_out"] == 1
    assert scaling_row(row)["samples_per_second"] == row.throughput.center


def test_an_outlying_base_case_is_told_where_it_matters(table):
    slow = table(1.5, backend="none", num_ranks=1)
    assert any("efficiency (a) is 92" in note for note in row_of(slow).notes)
    assert not any("of 8 is" in note for note in row_of(slow).notes)
    assert any("of 8 is 50 % slower" in note for note in row_of(slow, backend="none", num_ranks=1).notes)


def test_canaries_and_failed_launches_stand_out_nowhere(table, make_record, make_study):
    records = make_study(efficiency=KEPT, noise=0.001)
    records += [make_record(control="canary", block=block, samples_per_second=1.0) for block in range(2)]
    records += [make_record(backend="gloo", num_ranks=2, block=block, failure="hung") for block in range(6)]
    found = measure(records)
    assert all(row.outliers is None or not row.outliers.launches for row in scaling.FINDING.of(found))
    assert row_of(found, backend="gloo").outliers is None
