"""Start-up: medians over launches of the slowest rank's seconds in each phase."""

import pytest

from dlscale.analysis.findings.start_up import FINDING, SECONDS
from dlscale.analysis.load import Study
from dlscale.benchmarks.records.record import Record
from tests.made_records import make_record


def started(block: int, *connect: float | None, **fields: object) -> Record:
    record = make_record(num_ranks=len(connect), backend="ring", block=block, **fields)  # type: ignore[arg-type]
    return record.model_copy(update={"phases": record.phases.model_copy(update={"connect": [*connect]})})


def test_the_slowest_rank_counts_and_the_median_launch() -> None:
    (row,) = FINDING.of(Study([started(0, 1.0, 4.0), started(1, 9.0, 2.0), started(2, 3.0, 3.5)])).to_dict(
        "records"
    )
    assert (row["connect_seconds"], row["num_launches"]) == (4.0, 3)
    assert row["total_seconds"] == pytest.approx(1 + 0.1 + 4 + 1 + 1)


def test_a_phase_that_a_rank_did_not_reach_is_not_known_and_neither_is_the_sum() -> None:
    frame = FINDING.of(Study([started(0, 1.0, None)]))
    assert frame[["connect_seconds", "total_seconds"]].isna().all(axis=None)
    assert frame[SECONDS].notna().sum(axis=None) == 4


def test_each_training_has_its_own_row() -> None:
    frame = FINDING.of(Study([started(0, 1.0, 1.0), started(0, 5.0, 5.0, workload="cosmogan")]))
    assert dict(zip(frame["workload"], frame["connect_seconds"], strict=True)) == {
        "hep_cnn": 1.0,
        "cosmogan": 5.0,
    }
