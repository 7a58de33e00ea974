"""examples/data: what the scripts write is what the workloads read, without the generators of physics."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from dlscale.models import load_workload

FOLDER = Path(__file__).parents[2] / "examples" / "data"


def script(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(name, path, count):
    """The first samples of a file, in the preset `tiny`."""
    workload, preset = load_workload(name), load_workload(name).preset("tiny")
    source = workload.input("tiny", path, num_samples=count)
    return workload.data().open_samples(source, preset, seed=(0, 0)).read(np.arange(count))


def test_collisions(tmp_path):
    events, rng = script("hep_events"), np.random.default_rng(1)
    assert events.shares(27) == [14, 3, 2, 2, 2, 2, 2]
    photon = np.array([[30.0, 0.0, 0.0, 30.0, 0.0, 22.0]])  # px, py, pz, energy, charge, kind
    image = events.image_counts(photon, 64, rng)
    assert image[0].sum() == image[1].sum() == pytest.approx(60, abs=8)  # half GeV, in one cell
    assert (np.count_nonzero(image[0]), image[2].sum()) == (1, 0)
    cells = np.flatnonzero(image).astype(np.uint32)
    made = [[(cells, image.reshape(-1)[cells])] for _ in events.COMPONENTS]
    events.write(tmp_path / "events.h5", made, 64, np.random.default_rng(2))
    images, labels = read("hep_cnn", tmp_path / "events.h5", 7)
    assert labels.sum() == 1
    assert images.max(axis=(1, 2)).tolist() == [[1, 1, 0]] * 7


def test_maps_have_the_wanted_power(tmp_path):
    maps = script("cosmology_maps")

    def power_law(multipoles):
        return 1e-9 * (multipoles / 500) ** -1.4

    field = maps.LognormalField(32, power_law)
    maps.write(tmp_path / "maps.npy", field, 400, dtype="float32", seed=3, num_threads=2)
    (pixels,) = read("cosmogan", tmp_path / "maps.npy", 400)
    assert -1 < pixels.min() < pixels.max() < 1
    x = maps.MIDDLE * (1 + pixels.astype(np.float64)) / (1 - pixels)
    wanted = 2 * field.variance  # of a lognormal field, smoothed: less
    assert (x - 1).mean() == pytest.approx(0, abs=0.02)
    assert 0.2 * wanted < (x - 1).var() < wanted
