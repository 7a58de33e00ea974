"""Profiles: the parts of a step, when gradients are complete, and what stamps cost."""

from typing import Any

import numpy as np
import pytest

from dlscale.analysis.findings.profile import FINDING
from dlscale.analysis.load import Study
from dlscale.benchmarks.records.record import Record
from tests.made_records import make_record, profile_record


def row(*records: Record) -> dict[str, Any]:
    (found,) = FINDING.of(Study(records)).to_dict("records")
    return dict(found)


def test_the_parts_of_a_step() -> None:
    found = row(profile_record())
    assert found["step_seconds"] == pytest.approx(0.033)
    assert found["fetching_seconds"] == pytest.approx(0.001)
    assert found["forward_seconds"] == pytest.approx(0.009)
    assert found["backward_seconds"] == pytest.approx(0.020)
    assert found["update_seconds"] == pytest.approx(0.003)
    assert (found["num_steps"], found["num_gradients"], found["num_bytes"]) == (200, 2, 4040)


def test_half_of_the_bytes_are_complete_with_the_larger_gradient() -> None:
    found = row(profile_record(last=0.025))
    assert found["first_ready_seconds"] == pytest.approx(0.012)
    assert found["median_ready_seconds"] == found["last_ready_seconds"] == pytest.approx(0.025)
    assert found["hideable_seconds"] == pytest.approx(0.013)


def test_passes_of_several_objectives_alternate() -> None:
    found = row(profile_record(forward=(0.004, 0.014), backward=(0.010, 0.030)))
    assert found["forward_seconds"] == pytest.approx(0.003 + 0.004)
    assert found["backward_seconds"] == pytest.approx(0.006 + 0.016)
    assert np.allclose(found["moments"], [0, 0.001, 0.004, 0.010, 0.014, 0.030, 0.033])


def test_stamps_are_compared_with_their_neighbours_whatever_drifts() -> None:
    found = row(profile_record(stamps=1.02, drift=1.5))
    assert found["stamps_ratio"] == pytest.approx(1.02)
    assert found["stamps_ratio_high"] == pytest.approx(1.02)
    odd = row(profile_record(stamps=1.02, num_steps=199))
    assert (odd["stamps_ratio"], odd["stamps_ratio_n"]) == (pytest.approx(1.02), 1)


def test_the_median_launch_counts_and_those_without_a_profile_do_not() -> None:
    launches = [profile_record(last=last, block=block) for block, last in enumerate((0.02, 0.024, 0.03))]
    found = row(*launches, profile_record(block=3, failure="no end"), make_record())
    assert (found["last_ready_seconds"], found["num_launches"]) == (pytest.approx(0.024), 3)
