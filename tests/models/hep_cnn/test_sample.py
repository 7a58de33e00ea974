"""The shipped sample: its composition, its weights, and that its physics is that of the published data set."""

from __future__ import annotations

import re

import h5py
import numpy as np
import pytest

from dlscale.models.hep_cnn import WORKLOAD
from dlscale.models.hep_cnn.data import default_input
from dlscale.models.hep_cnn.events.components import load_components

PATH = default_input(WORKLOAD.preset("small")).path


@pytest.fixture(scope="module")
def sample():
    with h5py.File(PATH) as file:
        return {name: file[name][:] for name in file} | {"attributes": dict(file.attrs)}


def test_layout(sample):
    assert sample["data"].shape == (4000, 3, 64, 64)
    assert sample["data"].dtype == np.float32
    for name in ("label", "weight", "normweight", "psr"):
        assert sample[name].shape == (4000,)
    assert PATH.stat().st_size < 8e6


def test_half_of_the_events_are_signal_and_they_are_mixed(sample):
    assert sample["label"].sum() == 2000
    for part in np.split(sample["label"], 8):
        assert 200 < part.sum() < 300


def test_weights_of_every_sample_sum_to_its_cross_section(sample):
    for physics in load_components():
        num_events = dict(
            zip(sample["attributes"]["components"], sample["attributes"]["component_events"], strict=True)
        )
        weight = physics.cross_section_mb / num_events[physics.name]
        of_it = np.isclose(sample["weight"], weight, rtol=1e-12, atol=0)
        assert of_it.sum() == num_events[physics.name]
        assert np.all(sample["label"][of_it] == physics.label)
        assert sample["weight"][of_it].sum() == pytest.approx(physics.cross_section_mb)


def test_the_selection_keeps_the_published_share_of_the_signal(sample):
    """Of the published signal events, from another detector simulation, 5658 / 10000 are in the region."""
    assert sample["psr"][sample["label"] == 1].mean() == pytest.approx(0.5658, abs=0.05)
    assert sample["psr"][sample["label"] == 0].mean() < 0.02


def test_signal_has_the_energy_of_two_gluinos_in_more_towers_than_jets_from_qcd(sample):
    energy = sample["data"][:, 0].astype(np.float64) * sample["attributes"]["channel_maxima"][0]
    signal = sample["label"] == 1
    total = energy.sum(axis=(1, 2))
    assert np.mean(total[signal]) == pytest.approx(2 * 1400, rel=0.1)  # they are made nearly at rest
    num_towers = (energy > 0).sum(axis=(1, 2))
    assert num_towers[signal].mean() > 1.5 * num_towers[~signal].mean()
    # At equal energy too: in the range of the signal, which the slices JZ5 and JZ6 straddle.
    alike = (total > 2200) & (total < 3400)
    assert num_towers[signal & alike].mean() > 1.5 * num_towers[~signal & alike].mean()


def test_attributes_tell_how_it_was_made_and_nothing_of_where(sample):
    attributes = sample["attributes"]
    assert attributes["command"] == "dlscale data hep-cnn --events 4000 --size 64 --seed 2018"
    assert attributes["generator"].startswith("PYTHIA 8.")
    assert "1000021" in attributes["slha"]
    assert "HardQCD:all = on" in attributes["component_settings"][1]
    text = " ".join(str(value) for value in attributes.values())
    assert not re.search(r"(^|\s)/\w", text)  # the beginning of a path
