"""The shipped sample: its composition, its weights, and that its physics is that of the published data set."""

from __future__ import annotations

import re

import h5py
import numpy as np
import pytest

from dlscale.models.hep_cnn import WORKLOAD
from dlscale.models.hep_cnn.data import default_input

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


def test_the_selection_keeps_the_published_share_of_the_signal(sample):
    """Of the published signal events, from another detector simulation, 5658 / 10000 are in the region."""
    assert sample["psr"][sample["label"] == 1].mean() == pytest.approx(0.5658, abs=0.05)
    assert sample["psr"][sample["label"] == 0].mean() < 0.02


def test_attributes_tell_how_it_was_made_and_nothing_of_where(sample):
    attributes = sample["attributes"]
    assert attributes["command"] == "dlscale data hep-cnn --events 4000 --size 64 --seed 2018"
    assert attributes["generator"].startswith("PYTHIA 8.")
    assert "1000021" in attributes["slha"]
    assert "HardQCD:all = on" in attributes["component_settings"][1]
    text = " ".join(str(value) for value in attributes.values())
    assert not re.search(r"(^|\s)/\w", text)  # the beginning of a path
