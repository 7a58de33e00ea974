"""Profiles of steps: arithmetic, the row, and a report that has them and nothing else of them."""

import pytest

from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.profiles import PROFILES, step_parts, to_profile_row
from dlscale.analysis.launches import launches_of
from dlscale.analysis.measured import measure
from tests.analysis.reading import data_of, table_text
from tests.made_records import make_study, profile_record


def test_a_step_is_cut_into_its_parts():
    (parts,) = step_parts(launches_of([profile_record(block=block) for block in range(3)]))
    row = to_profile_row(parts)
    assert {name: pytest.approx(row[f"{name}_seconds"]) for name in ("fetching", "forward", "backward")} == {
        "fetching": 0.001,
        "forward": 0.009,
        "backward": 0.020,
    }
    assert (row["step_seconds"], row["update_seconds"]) == (pytest.approx(0.033), pytest.approx(0.003))
    assert [row[f"{which}_ready_seconds"] for which in ("first", "median", "last")] == [0.012, 0.028, 0.028]
    assert row["hideable_seconds"] == pytest.approx(0.016)
    assert (row["num_launches"], row["num_steps"], row["num_gradients"]) == (3, 600, 2)


def test_two_objectives_have_two_passes():
    passes = {"forward": (0.010, 0.022), "backward": (0.015, 0.030)}
    (parts,) = step_parts(launches_of([profile_record(**passes)]))
    assert (parts.forward_seconds, parts.backward_seconds) == (
        pytest.approx(0.009 + 0.007),
        pytest.approx(0.005 + 0.008),
    )


def test_stamps_cost_what_their_steps_take_longer_whatever_drifts():
    (parts,) = step_parts(launches_of([profile_record(stamps=1.02, drift=3.0)]))
    assert parts.stamps.center == pytest.approx(1.02, rel=1e-6)
    assert parts.stamps.low <= 1.02 + 1e-9
    assert parts.stamps.high >= 1.02 - 1e-9


def test_a_report_has_profiles_in_a_table_of_their_own():
    study = make_study()
    table = measure([*study, profile_record(block=0), profile_record(block=1, failure="killed")])
    assert len(scaling.FINDING.of(table)) == len(scaling.FINDING.of(measure(study)))
    text = table_text(table, width=160)
    assert PROFILES.caption in text
    assert PROFILES.caption not in table_text(measure(study), width=160)
    (row,) = data_of(table)["profiles"]
    assert (row["workload"], row["num_launches"]) == ("hep_cnn", 1)
    assert not data_of(measure(study))["profiles"]
