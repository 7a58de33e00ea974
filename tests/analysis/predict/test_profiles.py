"""Profiles: the stored one adds up to what its sources state, and what cannot be is refused."""

from dataclasses import replace

import pytest

from dlscale.analysis.predict.profile import at_batch, checked
from dlscale.analysis.predict.published_profiles import load_stored, profile_of_file, stored_names
from dlscale.base.errors import UsageError
from dlscale.benchmarks.systems.system import load_system
from dlscale.models import hep_cnn, load_workload

CORI = load_system("cori")


@pytest.mark.parametrize("preset", hep_cnn.NETWORKS)
def test_layers_add_up_to_the_facts_of_the_preset(preset):
    facts, layers = hep_cnn.WORKLOAD.preset(preset), hep_cnn.layers(preset)
    assert sum(layer.kernel + layer.bias for layer in layers) == facts.num_parameters
    assert sum(layer.forward_flops for layer in layers) == facts.forward_flops_per_sample


def test_a_stored_profile_is_what_was_published():
    profile = checked(load_stored(CORI, "hep_cnn"))
    assert profile.backward_seconds == pytest.approx(128 * CORI.sample_seconds["hep_cnn"])
    assert sum(gradient.num_bytes for gradient in profile.gradients) == 4 * 594_178
    ready = [gradient.ready_seconds for gradient in profile.gradients]
    assert ready == sorted(ready)
    assert profile.forward_seconds < ready[0]
    assert ready[-1] == pytest.approx(profile.backward_seconds)
    assert profile.gradients[0].name == "classifier.bias"
    assert profile.derived


def test_every_stored_profile_can_be_loaded():
    for name in stored_names():
        system, _, workload = name.rpartition("-")
        assert load_stored(load_system(system), workload).workload == load_workload(workload).name


def test_half_the_batch_takes_half_the_time_but_for_the_update():
    profile = load_stored(CORI, "hep_cnn")
    half = at_batch(profile, 64)
    assert half.backward_seconds == pytest.approx(profile.backward_seconds / 2)
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
        checked(replace(load_stored(CORI, "hep_cnn"), **changes))


def test_without_a_stored_profile_the_stored_ones_are_named():
    with pytest.raises(UsageError, match="no stored profile of resnet50 on cori; stored are: cori-hep_cnn"):
        load_stored(CORI, "resnet50")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('sample_time = { value = "0 ms", source = "a" }', "not positive"),
        ('sample_time = { value = "nan ms", source = "a" }', "is not in seconds"),
        ('sample_time = { value = "-1 ms", source = "a" }', "is not in seconds"),
        ('sample_time = { value = "40 ms", source = "b" }', "source 'b' is not in"),
        ('workload = "cosmogan"', "facts of cosmogan have no layers"),
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
