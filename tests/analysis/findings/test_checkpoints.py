"""What saving trainings cost."""

import numpy as np
import pytest

from dlscale.analysis.findings.checkpoints import FINDING
from dlscale.analysis.load import Study
from dlscale.benchmarks.records.record import Checkpoint, Resumption
from tests.made_records import make_record


def saved(record, *, seconds=(), every=100, resumed=None):
    states = [
        Checkpoint(step=(resumed or 0) + every * (index + 1), seconds=one, num_bytes=2_000_000)
        for index, one in enumerate(seconds)
    ]
    restart = Resumption(step=resumed, seconds=0.5) if resumed else None
    return record.model_copy(update={"checkpoints": states, "resumed": restart})


def cost(records):
    (row,) = FINDING.of(Study(records)).to_dict("records")
    return row


def test_cost_and_share_of_the_time():
    # 10 windows of 5 steps at 8 samples and 1 of warm-up (9 s): 100 samples/s make 4 s of windows.
    records = [
        saved(make_record(backend="ring", block=block), seconds=(1.0, 3.0, 2.0 + block)) for block in range(6)
    ]
    row = cost(records)
    assert (row["num_launches"], row["num_checkpoints"], row["num_bytes"]) == (6, 18, 2_000_000)
    # Each launch's median: 2, 3, 3, 3, 3, 3.
    assert (row["seconds"], row["seconds_low"], row["seconds_high"]) == (3.0, 2.1, 3.0)
    assert row["bytes_per_second"] == pytest.approx(2e6 / 3)
    saving, stepping = 6 * (1 + 3 + 2) + sum(range(6)), 6 * (9 + 4)
    assert row["share"] == pytest.approx(saving / (saving + stepping))
    assert (row["num_restarts"], row["num_lost_steps"]) == (0, 0)


def test_what_was_trained_twice():
    """51 steps, killed; on from 40 and killed at 91; on from 80."""
    make = {"backend": "ring", "num_ranks": 2}
    attempts = [
        saved(make_record(**make), seconds=(1.0,), every=40),
        saved(make_record(**make, attempt=2), seconds=(1.0,), every=40, resumed=40),
        saved(make_record(**make, attempt=3), resumed=80),
    ]
    row = cost(reversed(attempts))
    assert row["num_lost_steps"] == (51 - 40) + (91 - 80)
    assert (row["num_restarts"], row["read_seconds"], row["num_launches"]) == (2, 0.5, 3)
    assert np.isnan(row["seconds_low"]), "two launches carry no interval"


def test_a_launch_that_ended_before_its_first_checkpoint_lost_all():
    again = saved(make_record(backend="ring", attempt=2), seconds=(1.0,), every=40)
    assert cost([make_record(backend="ring"), again])["num_lost_steps"] == 51


def test_a_control_that_was_measured_again_lost_nothing():
    twice = [make_record(control="synthetic", attempt=attempt) for attempt in (1, 2)]
    assert cost([saved(make_record(), seconds=(1.0,)), *twice])["num_lost_steps"] == 0


def test_a_launch_that_only_resumed_has_no_size_and_no_share():
    row = cost([saved(make_record(), resumed=40)])
    assert np.isnan([row["num_bytes"], row["seconds"], row["share"], row["bytes_per_second"]]).all()


@pytest.mark.parametrize("records", [[], [make_record()], [make_record(failure="no")]])
def test_without_states_there_is_no_row(records):
    assert not len(FINDING.of(Study(records)))
