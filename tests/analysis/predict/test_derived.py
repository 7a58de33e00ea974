"""Profiles and networks of systems that nobody has measured: from what, and how it is said."""

import math

import pytest

from dlscale.analysis.predict.network import network_of, with_assumed
from dlscale.analysis.predict.profile import checked
from dlscale.analysis.predict.published_profiles import derived_profile, load_sustained
from dlscale.base.definitions import names
from dlscale.base.errors import UsageError
from dlscale.benchmarks.systems.system import load_system
from dlscale.models import NAMES, load_workload


def derived(system, workload, *, preset="paper", **changes):
    machine, _ = with_assumed(load_system(system))
    options = {"device": machine.default_device, "ranks_per_node": 1}
    return derived_profile(machine, workload, preset, "torch", **options | changes)


SCHEDULED = [name for name in names("systems") if load_system(name).has_jobs]


@pytest.mark.parametrize("system", SCHEDULED)
@pytest.mark.parametrize("workload", NAMES)
def test_every_workload_has_a_profile_on_every_system(system, workload):
    profile = checked(derived(system, workload))
    assert profile.evidence == "derived"
    total = sum(gradient.num_bytes for gradient in profile.gradients)
    assert total == 4 * load_workload(workload).preset("paper").num_parameters
    ready = [gradient.ready_seconds for gradient in profile.gradients]
    assert ready == sorted(ready)
    assert ready[-1] == pytest.approx(profile.backward_seconds)
    low, high = profile.time_factors
    assert low <= 1 <= high


def test_a_published_rate_is_taken_as_it_is_and_shared_by_the_ranks_of_a_node():
    seconds = derived("cori", "resnet50").backward_seconds
    assert seconds == pytest.approx(
        load_workload("resnet50").preset("paper").local_batch / math.sqrt(64 * 76)
    )
    assert derived("theta", "resnet50", ranks_per_node=4).backward_seconds == pytest.approx(4 * seconds)
    assert "published" in derived("cori", "resnet50").source


def test_without_one_the_band_is_that_of_the_rates_in_operations():
    profile = derived("cori", "cosmogan")
    low, high = profile.time_factors
    slowest = 3 * load_workload("hep_cnn").preset("paper").forward_flops_per_sample * 25.0
    assert high / low == pytest.approx(2e12 / slowest)
    assert "of other networks on such a node" in profile.source


def test_a_peak_counts_as_the_shares_of_it_that_are_published():
    assert (
        "no rate is published for such a device: at 6.6 to 33 % of its stated fp32 peak of 19.5 TFLOP/s"
        in (derived("perlmutter", "hep_cnn").source)
    )
    system = load_system("perlmutter")
    bare = system.model_copy(update={"devices": system.devices.model_copy(update={"peak": {}})})
    with pytest.raises(
        UsageError, match=r"no rate of hep_cnn is published for perlmutter, and its file states no fp32"
    ):
        derived_profile(bare, "hep_cnn", "paper", "torch", device="gpu", ranks_per_node=1)


def test_every_rate_has_a_system_and_a_source():
    known = load_sustained()
    for rate in (*known.rates, *known.flops):
        assert set(rate.systems) <= set(names("systems"))
        assert rate.low <= rate.high
        assert rate.source


@pytest.mark.parametrize("system", SCHEDULED)
def test_what_a_network_lacks_is_assumed_in_words(system):
    filled, texts = with_assumed(load_system(system))
    assert network_of(filled).latency_seconds > 0
    try:
        network_of(load_system(system))
    except UsageError:
        assert texts
    else:
        assert not texts
        assert filled == load_system(system)


def test_the_rate_of_links_is_never_assumed():
    system = load_system("cooley")
    bare = system.model_copy(update={"fabric": system.fabric.model_copy(update={"bandwidth": None})})
    with pytest.raises(UsageError, match=r"cooley states no fabric.bandwidth"):
        network_of(with_assumed(bare)[0])
