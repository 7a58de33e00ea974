"""The table of what saving trainings cost."""

import pytest

from dlscale.analysis.findings.checkpoints import savings
from dlscale.benchmarks.records.record import Checkpoint, Resumption
from tests.made_records import make_record


def saved(record, *, seconds=(), every=100, resumed=None):
    first = resumed or 0
    return record.model_copy(
        update={
            "checkpoints": [
                Checkpoint(step=first + every * (index + 1), seconds=one, num_bytes=2_000_000)
                for index, one in enumerate(seconds)
            ],
            "resumed": Resumption(step=resumed, seconds=0.5) if resumed else None,
        }
    )


def test_cost_and_share_of_the_time():
    # 10 windows of 5 steps at 8 samples and 1 of warm-up (9 s): 100 samples/s make 4 s of windows.
    records = [
        saved(make_record(backend="ring", block=block), seconds=(1.0, 3.0, 2.0 + block)) for block in range(6)
    ]
    (found,) = savings(records)
    assert (found.num_launches, found.num_checkpoints, found.num_bytes) == (6, 18, 2_000_000)
    # Each launch's median: 2, 3, 3, 3, 3, 3.
    assert (found.seconds.center, found.seconds.low, found.seconds.high) == (3.0, 2.1, 3.0)
    saving, stepping = 6 * (1 + 3 + 2) + sum(range(6)), 6 * (9 + 4)
    assert found.share == pytest.approx(saving / (saving + stepping))
    assert (found.num_restarts, found.num_lost_steps) == (0, 0)


def test_what_was_trained_twice():
    """51 steps, killed; on from 40 and killed at 91; on from 80."""
    make = {"backend": "ring", "num_ranks": 2}
    attempts = [
        saved(make_record(**make), seconds=(1.0,), every=40),
        saved(make_record(**make, attempt=2), seconds=(1.0,), every=40, resumed=40),
        saved(make_record(**make, attempt=3), resumed=80),
    ]
    (found,) = savings(reversed(attempts))
    assert found.num_lost_steps == (51 - 40) + (91 - 80)
    assert (found.num_restarts, found.read_seconds, found.num_launches) == (2, 0.5, 3)
    assert found.seconds.low is None, "two launches carry no interval"


def test_a_launch_that_ended_before_its_first_checkpoint_lost_all():
    again = saved(make_record(backend="ring", attempt=2), seconds=(1.0,), every=40)
    (found,) = savings([make_record(backend="ring"), again])
    assert found.num_lost_steps == 51


def test_a_control_that_was_measured_again_lost_nothing():
    twice = [make_record(control="synthetic", attempt=attempt) for attempt in (1, 2)]
    (found,) = savings([saved(make_record(), seconds=(1.0,)), *twice])
    assert found.num_lost_steps == 0
