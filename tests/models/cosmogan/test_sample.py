"""The shipped maps, and that they are what CAMB and this code make."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dlscale.models.cosmogan import WORKLOAD
from dlscale.models.cosmogan.data import check_input, default_input
from dlscale.models.cosmogan.maps import DEFAULT_SEED, generation, lognormal
from dlscale.models.cosmogan.maps.settings import load_settings

SETTINGS = load_settings()
SHIFT, MIDDLE = SETTINGS.lensing.lognormal_shift, SETTINGS.pixels.middle
PATH = default_input(WORKLOAD.preset("tiny")).path


@pytest.fixture(scope="module")
def maps():
    return np.load(PATH, mmap_mode="r", allow_pickle=False)


@pytest.mark.parametrize("name", list(WORKLOAD.presets))
def test_it_serves_every_preset(maps, name):
    preset = WORKLOAD.preset(name)
    tiles = (256 // preset.input_shape[1]) ** 2
    check_input(default_input(preset), preset, num_samples=tiles * len(maps))


def test_it_says_how_it_was_made():
    about = json.loads(generation.sidecar_of(PATH).read_text())
    assert about["command"] == (
        "dlscale data cosmogan --maps 32 --size 256 --dtype float16 --seed 2019 --out sample_256.npy"
    )
    assert about["settings"] == SETTINGS.model_dump()


@pytest.fixture(scope="module")
def found():
    """The spectrum of the shipped maps; it takes seconds."""
    return lognormal.convergence_spectrum(SETTINGS, lognormal.multipole_range(256, 0.5))


@pytest.mark.nightly
@pytest.mark.requires("camb")
def test_the_spectrum_is_the_one_that_camb_has_for_a_thin_shell_of_sources(found):
    from camb.sources import GaussianSourceWindow

    params = lognormal.camb_parameters(SETTINGS.cosmology)
    params.SourceWindows = [GaussianSourceWindow(redshift=1.0, source_type="lensing", sigma=0.01)]
    params.Want_CMB = False
    params.SourceTerms.limber_windows = True
    params.set_for_lmax(700)
    shell = lognormal.load_camb().get_results(params).get_source_cls_dict(raw_cl=True)["W1xW1"]
    multipoles = np.array([100, 200, 300, 400, 500])
    np.testing.assert_allclose(found(multipoles.astype(float)), shell[multipoles], rtol=0.005)


@pytest.mark.nightly
@pytest.mark.requires("camb")
def test_the_shipped_sample_is_what_this_code_makes(maps, found, monkeypatch):
    made_with = json.loads(generation.sidecar_of(PATH).read_text())["versions"]["camb"]
    installed = lognormal.load_camb().__version__
    if made_with != installed:
        pytest.skip(f"the sample is of CAMB {made_with}, installed is {installed}")
    monkeypatch.setattr(lognormal, "convergence_spectrum", lambda *_: found)
    field = generation.prepare(SETTINGS, 256)
    for index in (0, len(maps) - 1):
        drawn = generation.draw_map(field, SETTINGS, seed=DEFAULT_SEED, index=index)
        np.testing.assert_allclose(maps[index], drawn, atol=1e-3)
