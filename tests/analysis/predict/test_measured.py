"""A node's profile from a study's records, and what is no profile."""

import pytest

from dlscale.analysis.predict.measured_profiles import profile_of
from dlscale.base.errors import UsageError


def test_a_profile_is_the_median_of_its_launches_without_what_the_stamps_cost(profile_record):
    records = [
        profile_record(block=0, last=0.026, stamps=1.25),
        profile_record(block=1, last=0.028, stamps=1.25),
        profile_record(block=2, last=0.029, stamps=1.25),
    ]
    found = profile_of(records, "hep_cnn", "torch")
    assert (found.workload, found.preset, found.framework, found.local_batch) == (
        "hep_cnn",
        "tiny",
        "torch",
        8,
    )
    assert [(each.name, each.num_bytes) for each in found.gradients] == [("bias", 40), ("weight", 4000)]
    assert found.gradients[1].ready_seconds == pytest.approx(0.028)
    assert (found.forward_seconds, found.backward_seconds) == (pytest.approx(0.010), pytest.approx(0.030))
    assert found.update_seconds == pytest.approx(0.003)
    assert found.step_seconds == pytest.approx([0.033] * 600)
    assert found.evidence == "measured"
    assert "times 0.800" in found.derived[0]
    assert found.source.startswith("weak-scaling, hep_cnn-tiny-torch-none-1r-profile-")


def test_a_resampled_step_is_as_long_as_a_measured_one(profile_record):
    """Noise is resampled from steps over their mean, so a profile's step is the mean one, not the usual one."""
    found = profile_of([profile_record(drift=2.0, stamps=1.1)], "hep_cnn", "torch")
    mean = sum(found.step_seconds) / len(found.step_seconds)
    assert found.backward_seconds + found.update_seconds == pytest.approx(mean)
    assert mean > 0.033


def test_of_several_profiles_one_is_to_be_chosen(profile_record):
    records = [profile_record(), profile_record(local_batch=4)]
    with pytest.raises(
        UsageError, match=r"several profiles of hep_cnn in torch: local_batch 8, 4; say which"
    ):
        profile_of(records, "hep_cnn", "torch")
    assert profile_of(records, "hep_cnn", "torch", local_batch=4, precision=None).local_batch == 4


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        ([], r"no profile of hep_cnn in torch; measure one: dlscale run .* --set controls=profile"),
        ([{"framework": "tensorflow"}], "no profile of hep_cnn in torch"),
        (
            [{"failure": "killed"}, {"failure": "killed", "block": 1}],
            r"none of 2 launches is good \(killed\)",
        ),
        ([{}, {"block": 1, "fingerprint": "e" * 12}], r"2 fingerprints \(eeeeeeeeeeee, ffffffffffff\)"),
        ([{}, {"block": 1, "system": "cori"}], r"2 systems \(cori, local\)"),
        ([{}, {"block": 1, "evidence": "emulated"}], "2 kinds of evidence"),
        ([{"num_steps": 20}, {"block": 1, "num_steps": 20}], "40 steps, of which 200 are needed"),
        ([{}, {"block": 1, "names": ("b", "w")}], "different gradients"),
    ],
)
def test_what_is_no_profile_is_one_line(profile_record, plan, problem):
    with pytest.raises(UsageError, match=problem) as caught:
        profile_of([profile_record(**fields) for fields in plan], "hep_cnn", "torch")
    assert "\n" not in str(caught.value)


def test_a_failed_launch_beside_good_ones_does_not_count(profile_record):
    records = [profile_record(), profile_record(block=1, failure="killed")]
    assert len(profile_of(records, "hep_cnn", "torch").step_seconds) == 200
