"""Slow hosts and ranks are found where they are slow launch after launch, and nowhere else."""

import numpy as np
import pytest

from dlscale.analysis.findings.stragglers import ALPHA, FINDING, HOST_ALPHA
from dlscale.analysis.load import Study
from tests.analysis.findings.planted import MS, cluster, launch
from tests.made_records import make_record


def found(records):
    return FINDING.of(Study(records))


def test_a_slow_host_is_late_as_a_whole():
    (row,) = found(cluster(slow={"b": 1.1})).to_dict("records")
    assert (row["host"], row["verdict"], row["num_launches"]) == ("b", "late", 6)
    assert np.isnan(row["rank"])
    assert row["slower"] == pytest.approx(0.1, abs=0.01)
    assert row["slower_low"] < 0.1 < row["slower_high"]
    assert row["p_value"] <= HOST_ALPHA
    sentence = FINDING.sentence(found(cluster(slow={"b": 1.1})))
    assert sentence.startswith("Host b is late on 8 ranks: 9.9 % [")


def test_a_slow_rank_makes_no_slow_host():
    (row,) = found(cluster(slow_ranks={3: 1.2}, num_blocks=10)).to_dict("records")
    assert (row["host"], row["rank"], row["verdict"]) == ("b", 3, "late")
    assert row["p_value"] <= ALPHA - HOST_ALPHA
    assert FINDING.sentence(found(cluster(slow_ranks={3: 1.2}, num_blocks=10))).startswith(
        "Rank 3 (host b) is late"
    )


def test_one_launch_held_up_is_no_straggler():
    records = [*cluster(num_blocks=5), *list(cluster(slow={"b": 3.0}))[5:]]
    frame = found(records)
    assert (frame["verdict"] != "late").all()
    assert "No host or rank is consistently late (6 launches" in FINDING.sentence(frame)


def test_few_launches_cannot_tell():
    (row,) = found(cluster(hosts=("a", "b"), slow={"b": 1.2}, num_blocks=3)).to_dict("records")
    assert row["verdict"] == "not known"
    assert row["reason"] == "3 launches; 6 are needed to tell it from chance"


def test_two_launches_are_too_few_to_tell():
    assert FINDING.sentence(found(cluster(num_blocks=2))).startswith("Too few launches to tell")


def test_equal_ranks_have_a_row_that_says_so():
    frame = found(cluster())
    assert frame["verdict"].tolist() == ["none"]
    assert frame["p_value"].isna().all()


def test_ranks_that_step_apart_are_compared_by_their_own_steps():
    """Rank 1 takes half the steps in the same time: it is slow, though windows are equal."""
    records = []
    for block in range(7):
        record = launch(block, [10 * MS] * 2)
        steps = np.tile([4.0, 2.0], (len(record.windows), 1))
        windows = record.windows.model_copy(update={"rank_steps": steps})
        records.append(record.model_copy(update={"windows": windows}))
    (row,) = found(records).to_dict("records")
    assert (row["rank"], row["verdict"]) == (1, "late")
    assert row["slower"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    "records",
    [
        [],
        [make_record()],
        [make_record(failure="gone", num_ranks=2)],
        [make_record(backend="ring", num_ranks=2)],
    ],
)
def test_without_ranks_of_none_there_is_no_row(records):
    frame = found(records)
    assert frame.empty
    assert FINDING.sentence(frame) == ""


def test_the_heat_map_has_a_row_per_rank_and_a_column_per_window_of_all_launches() -> None:
    launches = [
        make_record(num_ranks=3, block=block, rank_delays=(0, 0, 0.05), window_factors=(1.0,) * num_windows)
        for block, num_windows in enumerate((10, 100))
    ]
    shown = FINDING.of(Study(launches))["windows"].iloc[0]
    assert shown.shape == (3, 10 + 40)
    assert (shown[:2] == 1).all()
    assert (shown[2] > 1).all()
