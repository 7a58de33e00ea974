"""What is computed of a study once, for all findings."""

import pytest

from dlscale.analysis.measured import measure
from dlscale.base.errors import UsageError


def study(make_record):
    """Blocks of trainings, with a control apart and a failed attempt."""
    records = [
        make_record(backend=backend, num_ranks=num_ranks, block=block, samples_per_second=100.0 * num_ranks)
        for block in range(3)
        for backend, num_ranks in [("none", 1), ("ring", 2)]
    ]
    return [*records, make_record(control="exchange", backend="ring", num_ranks=2)]


def test_controls_apart_are_cells_but_not_launches_that_count(make_record):
    measured = measure(study(make_record))
    assert {launches.cell.control for launches in measured.cells} == {"train", "exchange"}
    assert [launches.cell.backend for launches in measured.launches] == ["none", "ring"]
    assert measured.by_family == {measured.families[0]: measured.launches}


def test_planned_cells_count_without_records(make_record):
    records = study(make_record)
    case = records[1].case
    missing = case.model_copy(update={"cell": case.cell.model_copy(update={"framework": "tensorflow"})})
    measured = measure(records, planned=[records[0].case, case, case, missing])
    counts = [(cell.cell.framework, cell.num_launches) for cell in measured.planned_cells.values()]
    assert counts == [("torch", 1), ("torch", 2), ("tensorflow", 1)]
    assert {family.framework for family in measured.families} == {"torch", "tensorflow"}
    assert all(pair.comparable is None for pair in measured.pairs.values())
    assert len(measured.pairs) == 2


@pytest.mark.parametrize(("base", "num_ranks"), [("1", 1), ("smallest", 1), ("node", 2)])
def test_base_ranks(make_record, base, num_ranks):
    measured = measure(study(make_record), base=base)
    assert set(measured.base_ranks.values()) == {num_ranks}


def test_values_are_computed_once(make_record):
    measured = measure(study(make_record))
    assert measured.outliers is measured.outliers
    assert measured.trimmed.launches == measured.launches  # nothing stands out


def test_records_of_two_fingerprints_are_refused_at_once(make_record):
    other = make_record(backend="none", num_ranks=1, block=9)
    other = other.model_copy(update={"fingerprint": other.fingerprint.model_copy(update={"digest": "other"})})
    with pytest.raises(UsageError, match="fingerprints"):
        measure([*study(make_record), other])
