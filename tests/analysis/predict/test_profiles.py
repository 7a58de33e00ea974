"""Profiles: stored, derived from what is published, and measured; and what is no profile."""

import math
from dataclasses import replace

import pytest

from dlscale.analysis.predict.costs import table_of
from dlscale.analysis.predict.measured import profile_of
from dlscale.analysis.predict.network import Machine, completed, network_of
from dlscale.analysis.predict.profile import at_batch, checked
from dlscale.analysis.predict.public_profiles import (
    profile_of_file,
    public_profile,
    stored_names,
    stored_profile,
)
from dlscale.base.definitions import names
from dlscale.base.errors import UsageError
from dlscale.benchmarks.systems.system import load_system
from dlscale.models import NAMES, load_workload
from dlscale.models.layers import step_flops
from tests.made_records import profile_record

CORI = load_system("cori")


def has_all_gradients_in_order(profile):
    total = sum(gradient.num_bytes for gradient in profile.gradients)
    assert total == 4 * load_workload(profile.workload).preset("paper").num_parameters
    ready = [gradient.ready_seconds for gradient in profile.gradients]
    assert ready == sorted(ready)
    assert ready[-1] == pytest.approx(profile.backward_seconds)


def test_a_stored_profile_is_what_was_published():
    profile = checked(stored_profile(CORI, "hep_cnn"))
    assert profile.backward_seconds == pytest.approx(128 * CORI.sample_times["hep_cnn"].number)
    has_all_gradients_in_order(profile)
    assert profile.forward_seconds < profile.gradients[0].ready_seconds
    assert profile.gradients[0].name == "classifier.bias"
    assert [it.kind for it in profile.origins[:2]] == ["published", "derived"]


def test_every_stored_profile_can_be_loaded():
    for name in stored_names():
        system, _, workload = name.rpartition("-")
        assert stored_profile(load_system(system), workload).workload == load_workload(workload).name


def test_half_the_batch_takes_half_the_time_but_for_the_update_and_what_a_step_costs_anyway():
    profile = stored_profile(CORI, "hep_cnn")
    half = at_batch(profile, 64)
    assert 0 < profile.fixed_seconds == half.fixed_seconds < 0.01 * profile.backward_seconds
    of_samples = [it.backward_seconds - it.fixed_seconds for it in (profile, half)]
    assert of_samples[1] == pytest.approx(of_samples[0] / 2)
    assert half.update_seconds == profile.update_seconds
    assert half.mean_step_seconds == pytest.approx(half.backward_seconds + half.update_seconds)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"gradients": ()}, "has no layers"),
        ({"step_seconds": ()}, "negative, infinite or missing"),
        ({"step_seconds": (float("nan"),)}, "negative, infinite or missing"),
        ({"update_seconds": -1.0}, "negative, infinite or missing"),
        ({"backward_seconds": 0.0}, "take no time"),
    ],
)
def test_a_profile_that_cannot_be_is_refused(changes, said):
    with pytest.raises(UsageError, match=said):
        checked(replace(stored_profile(CORI, "hep_cnn"), **changes))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('sample_time = { value = "0 ms", source = "a" }', "not positive"),
        ('sample_time = { value = "nan ms", source = "a" }', "is not in seconds"),
        ('sample_time = { value = "-1 ms", source = "a" }', "is not in seconds"),
        ('sample_time = { value = "40 ms", source = "b" }', "source 'b' is not in"),
    ],
)
def test_a_file_with_a_rate_that_cannot_be_is_refused(tmp_path, line, said):
    values = {
        "system": '"cori"',
        "workload": '"hep_cnn"',
        "preset": '"paper"',
        "framework": '"tensorflow"',
        "local_batch": '{ value = 128, source = "a" }',
        "sample_time": '{ value = "40 ms", source = "a" }',
        "variation": '{ low = 0.01, high = 0.02, source = "a" }',
    }
    key, _, value = line.partition(" = ")
    lines = [f"{name} = {text}" for name, text in (values | {key: value}).items()]
    path = tmp_path / "one.toml"
    path.write_text("\n".join([*lines, "[sources]", 'a = "the paper, table 1"']))
    with pytest.raises(UsageError, match=said):
        profile_of_file(str(path), CORI)


def derived(system, workload, *, preset="paper", **changes):
    machine = completed(load_system(system)).system
    options = {"device": machine.default_device, "ranks_per_node": 1}
    return public_profile(machine, workload, preset, "torch", **options | changes)


SCHEDULED = [name for name in names("systems") if load_system(name).has_jobs]


@pytest.mark.parametrize("system", SCHEDULED)
@pytest.mark.parametrize("workload", NAMES)
def test_every_workload_has_a_profile_on_every_system(system, workload):
    profile = checked(derived(system, workload))
    assert profile.evidence == "derived"
    has_all_gradients_in_order(profile)
    low, high = profile.time_factors
    assert low <= 1 <= high


def test_a_published_rate_is_taken_as_it_is_and_shared_by_the_ranks_of_a_node():
    seconds = derived("cori", "resnet50").backward_seconds
    assert seconds == pytest.approx(
        load_workload("resnet50").preset("paper").local_batch / math.sqrt(64 * 76)
    )
    assert derived("theta", "resnet50", ranks_per_node=4).backward_seconds == pytest.approx(4 * seconds)
    assert derived("cori", "resnet50").origins[0].kind == "published"


def test_without_one_the_band_is_that_of_the_rates_in_operations():
    profile = derived("cori", "cosmogan")
    low, high = profile.time_factors
    facts = load_workload("hep_cnn")
    slowest = 25.0 * step_flops(facts.layers(facts.preset("paper")))
    assert high / low == pytest.approx(2e12 / slowest)
    assert "of other networks on such a node" in profile.source


def test_a_peak_counts_as_the_shares_of_it_that_are_published():
    source = derived("perlmutter", "hep_cnn").source
    assert source.startswith("6.4 to 33 % of the fp32 peak of 19.5 TFLOP/s (")
    assert "), as on cori: " in source
    system = load_system("perlmutter")
    bare = system.model_copy(update={"devices": system.devices.model_copy(update={"peak": {}})})
    with pytest.raises(
        UsageError, match=r"no rate of hep_cnn is published for perlmutter, and its file states no fp32"
    ):
        public_profile(bare, "hep_cnn", "paper", "torch", device="gpu", ranks_per_node=1)


def test_every_rate_has_a_system_and_a_source():
    known = table_of("sustained")
    for rate in (*known["rates"], *known["flops"], *known["least_batches"]):
        assert set(rate["systems"]) <= set(names("systems"))
        assert 0 < rate["low"] <= rate["high"]
        assert rate["source"]
        assert rate["of"] in ("node", "device")
    for cost in table_of("costs")["steps"]:
        assert 0 < cost["seconds"][0] <= cost["seconds"][1]


@pytest.mark.parametrize("system", SCHEDULED)
def test_what_a_network_lacks_is_assumed_in_words(system):
    machine = completed(load_system(system))
    assert network_of(machine).latency_seconds > 0
    try:
        network_of(Machine(load_system(system)))
    except UsageError:
        assert machine.assumed
    else:
        assert not machine.assumed


def test_the_rate_of_links_is_never_assumed():
    system = load_system("cooley")
    bare = system.model_copy(update={"fabric": system.fabric.model_copy(update={"bandwidth": None})})
    with pytest.raises(UsageError, match=r"cooley states no fabric.bandwidth"):
        completed(bare)


def test_a_profile_is_the_median_of_its_launches_without_what_the_stamps_cost():
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
    assert "times 0.800" in found.origins[1].value
    assert found.source.startswith("weak-scaling, hep_cnn-tiny-torch-none-1r-profile-")


def test_a_resampled_step_is_as_long_as_a_measured_one():
    """Noise is resampled from steps over their mean, so a profile's step is the mean one, not the usual one."""
    found = profile_of([profile_record(drift=2.0, stamps=1.1)], "hep_cnn", "torch")
    mean = sum(found.step_seconds) / len(found.step_seconds)
    assert found.backward_seconds + found.update_seconds == pytest.approx(mean)
    assert mean > 0.033


def test_of_several_profiles_one_is_to_be_chosen():
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
            r"none of 2 launches is good \(.*killed\)",
        ),
        ([{}, {"block": 1, "fingerprint": "e" * 12}], r"2 fingerprints \(eeeeeeeeeeee, ffffffffffff\)"),
        ([{}, {"block": 1, "system": "cori"}], r"2 systems \(cori, local\)"),
        ([{}, {"block": 1, "evidence": "emulated"}], "2 kinds of evidence"),
        ([{"num_steps": 20}, {"block": 1, "num_steps": 20}], "40 steps, of which 200 are needed"),
        ([{}, {"block": 1, "names": ("b", "w")}], "different gradients"),
    ],
)
def test_what_is_no_profile_is_one_line(plan, problem):
    with pytest.raises(UsageError, match=problem) as caught:
        profile_of([profile_record(**fields) for fields in plan], "hep_cnn", "torch")
    assert "\n" not in str(caught.value)


def test_a_failed_launch_beside_good_ones_does_not_count():
    records = [profile_record(), profile_record(block=1, failure="killed")]
    assert len(profile_of(records, "hep_cnn", "torch").step_seconds) == 200
