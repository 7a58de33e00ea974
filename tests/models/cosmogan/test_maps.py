"""Convergence maps: their statistics, and what the file holds."""

from __future__ import annotations

import json
import os
import re
from itertools import pairwise

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import fft
from scipy.stats import skew

from dlscale.benchmarks.cli.data import cosmogan
from dlscale.models.cosmogan import WORKLOAD
from dlscale.models.cosmogan.data import check_input
from dlscale.models.cosmogan.maps import generate, generation, lognormal, settings
from dlscale.models.cosmogan.maps.settings import load_settings
from dlscale.models.workload import Input

SETTINGS = load_settings()
SHIFT = SETTINGS.lensing.lognormal_shift
SIZE = 16


def power_law(multipoles):
    """About as strong and as steep as convergence."""
    return 1e-9 * (multipoles / 500) ** -1.4


def prepare(size=SIZE, smoothing_arcmin=1.0, spectrum=power_law):
    return lognormal.prepare_field(
        spectrum, size=size, pixel_arcmin=0.5, smoothing_arcmin=smoothing_arcmin, shift=SHIFT
    )


def draw_grids(field, number):
    rng = np.random.default_rng(7)
    return np.array([field.draw_grid(rng) for _ in range(number)])


def measured_power(grids):
    """C(l) of every grid, frequency by frequency, as rfft2 orders them."""
    side_steradian = (grids.shape[-1] * np.deg2rad(0.5 / 60)) ** 2
    return np.abs(fft.rfft2(grids)) ** 2 * side_steradian / grids.shape[-1] ** 4


@pytest.mark.parametrize("smoothing_arcmin", [0.0, 1.0])
def test_maps_have_the_wanted_power_at_all_scales(smoothing_arcmin):
    grids = draw_grids(prepare(smoothing_arcmin=smoothing_arcmin), 4000)
    multipoles = lognormal.grid_multipoles(SIZE, 0.5)
    sigma = np.deg2rad(smoothing_arcmin / 60) / 2.3548
    power = measured_power(grids)
    edges = np.geomspace(multipoles[0, 1] * 0.99, multipoles.max() * 1.01, 9)
    for low, high in pairwise(edges):
        inside = (multipoles >= low) & (multipoles < high)
        wanted = power_law(multipoles[inside]) * np.exp(-((multipoles[inside] * sigma) ** 2))
        ratio = (power[:, inside] / wanted).mean(axis=1)
        error = ratio.std() / np.sqrt(len(grids))
        assert error < 0.03
        assert abs(ratio.mean() - 1) < 4 * error


def test_convergence_has_mean_0_and_the_skewness_of_a_lognormal_field():
    grids = draw_grids(prepare(smoothing_arcmin=0), 4000)
    means = grids.mean(axis=(1, 2))
    assert abs(means.mean()) < 4 * means.std() / np.sqrt(len(means))
    assert means.std() < 0.1 * grids.std()
    assert grids.min() > -SHIFT
    ratio = grids.std() / SHIFT
    assert ratio > 0.3
    assert skew(grids, axis=None) == pytest.approx(3 * ratio + ratio**3, rel=0.05)


def test_smoothing_keeps_the_skewness_positive():
    grids = draw_grids(prepare(), 200)
    assert grids.min() > -SHIFT
    assert 0.5 < skew(grids, axis=None) < 3


def test_a_map_is_a_quarter_of_a_grid_so_that_its_edges_do_not_meet():
    field = prepare()
    drawn, grid = field.draw(np.random.default_rng(1)), field.draw_grid(np.random.default_rng(1))
    assert grid.shape == (2 * SIZE, 2 * SIZE)
    np.testing.assert_array_equal(drawn, grid[:SIZE, :SIZE])


@pytest.mark.parametrize(
    ("amplitude", "message"), [(1e-6, "no lognormal field with shift"), (2e-9, "miss this spectrum by")]
)
def test_a_spectrum_that_no_lognormal_field_has_is_refused(amplitude, message):
    """One scale only: strongly correlated here and as strongly the other way there."""

    def ring(multipoles):
        return amplitude * np.exp(-(((multipoles - 4000) / 500) ** 2)) + 1e-16

    with pytest.raises(ValueError, match=message):
        prepare(spectrum=ring)


def test_between_its_nodes_a_spectrum_is_a_power_law():
    nodes = np.geomspace(10, 1000, 5)
    found = lognormal.interpolated(nodes, power_law(nodes))
    multipoles = np.array([10.0, 33.0, 400.0, 1000.0])
    np.testing.assert_allclose(found(multipoles), power_law(multipoles), rtol=1e-12)
    for outside in (9.9, 1001.0):
        with pytest.raises(ValueError, match="known for l from 10 to 1000"):
            found(np.array([100.0, outside]))


def test_pixels_are_in_the_range_of_tanh():
    convergence = SHIFT * np.array([-1.0, -0.5, 0.0, 3.0, 20.0])
    found = settings.to_pixels(convergence, shift=SHIFT, middle=4.0)
    np.testing.assert_allclose(found, [-1, -7 / 9, -0.6, 0, 17 / 25], atol=1e-12)


@pytest.mark.usefixtures("quick_maps")
def test_it_is_complete_and_alone(tmp_path):
    out, reported = tmp_path / "maps.npy", []
    generate(5, out, size=SIZE, seed=3, progress=reported.append)
    assert sum(reported) == 5
    assert sorted(os.listdir(tmp_path)) == ["maps.npy", "maps.npy.json"]
    maps = np.load(out, allow_pickle=False)
    assert (maps.shape, maps.dtype) == ((5, SIZE, SIZE), np.dtype("<f4"))
    field = generation.prepare(SETTINGS, SIZE)
    for index, stored in enumerate(maps):
        drawn = generation.draw_map(field, SETTINGS, seed=3, index=index)
        np.testing.assert_array_equal(stored, drawn.astype(np.float32))
    assert -1 < maps.min() < maps.max() < 1
    assert len(np.unique(maps[:, 0, 0])) == 5


@pytest.mark.usefixtures("quick_maps")
def test_threads_and_the_number_of_maps_change_nothing(tmp_path):
    generate(40, tmp_path / "one.npy", size=SIZE, seed=3)
    generate(40, tmp_path / "three.npy", size=SIZE, seed=3, num_threads=3)
    assert (tmp_path / "one.npy").read_bytes() == (tmp_path / "three.npy").read_bytes()
    generate(2, tmp_path / "two.npy", size=SIZE, seed=3)
    generate(2, tmp_path / "other.npy", size=SIZE, seed=4)
    one, two, other = (np.load(tmp_path / f"{name}.npy") for name in ("one", "two", "other"))
    np.testing.assert_array_equal(one[:2], two)
    assert not np.any(two == other)


@pytest.mark.usefixtures("quick_maps")
def test_half_precision(tmp_path):
    generate(3, tmp_path / "half.npy", size=SIZE, dtype="float16")
    generate(3, tmp_path / "single.npy", size=SIZE)
    half, single = np.load(tmp_path / "half.npy"), np.load(tmp_path / "single.npy")
    assert half.dtype == np.float16
    np.testing.assert_array_equal(half, single.astype(np.float16))


@pytest.mark.usefixtures("quick_maps")
def test_what_lies_beside_it_tells_how_it_was_made_and_nothing_of_where(tmp_path):
    generate(1, tmp_path / "maps.npy", size=SIZE, seed=3)
    text = (tmp_path / "maps.npy.json").read_text()
    about = json.loads(text)
    assert about["command"] == (
        f"dlscale data cosmogan --maps 1 --size {SIZE} --dtype float32 --seed 3 --out maps.npy"
    )
    assert about["settings"] == SETTINGS.model_dump()
    assert about["field_degrees"] == pytest.approx(SIZE / 120)
    assert about["versions"] == {name: f"{name}'s version" for name in ("dlscale", "camb", "numpy", "scipy")}
    assert not re.search(r"(^|[\s\"])/\w", text)  # the beginning of a path


@pytest.mark.usefixtures("quick_maps")
def test_the_command(tmp_path):
    out = tmp_path / "maps.npy"
    arguments = ["--maps", "3", "--size", "64", "--seed", "5", "--jobs", "2", "--out", str(out)]
    done = CliRunner().invoke(cosmogan, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    assert f"{out}: 3 maps of 64x64 pixels" in done.output.replace("\n", "")
    check_input(Input(path=out), WORKLOAD.preset("tiny"), num_samples=3 * 4)
