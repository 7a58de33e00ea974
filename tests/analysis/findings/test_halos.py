"""What ranks that share samples exchange, and how long it takes."""

import math
from typing import Any

import pytest

from dlscale.analysis.findings.halos import FINDING
from dlscale.analysis.load import Study
from dlscale.benchmarks.records.record import Record
from tests.made_records import make_record

CALLS = ["exchange 896 0", "sum 40 0", "exchange 0 896"]


def shared(
    block: int, seconds: tuple[float, ...] = (0.01, 0.02), *, control: str = "train", rate: float = 10
) -> Record:
    """A launch of 2 ranks that share samples, of which a step takes 1 / rate seconds."""
    record = make_record(
        backend="ring", num_ranks=2, split=2, scaling_mode="strong", local_batch=1, global_batch=1, block=block,
        samples_per_second=rate, control=control,
    )  # fmt: skip
    found = {
        "halo_seconds": list(seconds),
        "halo_bytes": [100.0, 300.0][: len(seconds)],
        "halo_calls": [CALLS, CALLS[:1]],
    }
    return record.model_copy(update=found)


def rows(*records: Record) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = FINDING.of(Study(records)).to_dict("records")
    return found


def test_the_rank_that_spends_least_is_the_share_of_the_step_of_its_block() -> None:
    (row,) = rows(shared(0), shared(1, (0.03, 0.02), rate=5), shared(2, (0.04, 0.05), rate=2.5))
    assert row["halo_share"] == pytest.approx(0.1)
    assert (row["halo_share_low"], row["halo_share_n"]) == (pytest.approx(0.1), 3)
    assert row["halo_seconds"] == pytest.approx(0.02)
    assert row["halo_seconds_of_the_last"] == pytest.approx(0.03)
    assert row["halo_bytes"] == 300


def test_calls_are_those_of_the_rank_that_has_most() -> None:
    (row,) = rows(shared(0))
    assert (row["num_exchanges"], row["num_sums"], row["num_gathers"]) == (2, 1, 0)
    assert row["calls"] == CALLS
    sentence = FINDING.sentence(FINDING.of(Study([shared(0)])))
    assert sentence.startswith("Halos on 2 ranks, 300 B in 3 calls per step and rank, take of a step: ring")


def test_the_control_says_what_they_take_alone() -> None:
    (row,) = rows(shared(0), shared(0, control="halos", rate=100))
    assert row["halo_seconds_alone"] == pytest.approx(0.01)


def test_nothing_is_said_where_a_launch_lacks_a_rank_or_no_sample_is_shared() -> None:
    assert rows(shared(0), shared(1, (0.01,))) == []
    assert rows(make_record(backend="ring", num_ranks=2)) == []


def test_a_record_that_does_not_describe_its_ranks_has_halos_without_their_memory() -> None:
    (row,) = rows(shared(0).model_copy(update={"ranks": []}))
    assert row["halo_bytes"] == 300
    assert math.isnan(row["peak_rss_bytes"])
