"""The file that is written of collision events, of events that need no generator, and the example that reads it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from dlscale.models.hep_cnn import WORKLOAD
from dlscale.models.hep_cnn.data import check_input
from dlscale.models.hep_cnn.events import block, generation, pythia
from dlscale.models.hep_cnn.events.calorimeter import Particles
from dlscale.models.hep_cnn.events.components import load_components
from dlscale.models.workload import Input

EXAMPLE = Path(__file__).parents[3] / "examples" / "physics_selection.py"
NAMES = ("RPV10_1400_850", "JZ4", "JZ5")
GENERATED = {"RPV10_1400_850": 80, "JZ4": 200, "JZ5": 90}


class FakePythia:
    """Stands for PYTHIA: jets by a coin for every component, and particles to tell the events apart."""

    def __init__(self, component, seed):
        self.name, self.rng = component.name, np.random.default_rng(seed)

    def parm(self, _):
        return 8.317

    def collisions(self):
        while True:
            num_jets = 4 if self.rng.random() < (0.9 if self.name.startswith("RPV") else 0.2) else 2
            heavy = self.rng.random() < 0.6
            pt, eta = np.full(num_jets, 500.0), np.zeros(num_jets)
            num_particles = 60 if self.name.startswith("RPV") else 20
            energy = self.rng.uniform(5, 50, num_particles)
            phi = self.rng.uniform(-3, 3, num_particles)
            yield pythia.Collision(
                particles=Particles(
                    px=energy * np.cos(phi),
                    py=energy * np.sin(phi),
                    pz=np.zeros(num_particles),
                    energy=energy,
                    charge=np.ones(num_particles),
                    pdg_id=np.full(num_particles, 211),
                ),
                jet_pt=pt,
                jet_eta=eta,
                jet_mass=np.full(num_jets, 250.0 if heavy else 50.0),
            )


@pytest.fixture
def blocks(tmp_path, monkeypatch):
    """Blocks of three components, as a generation would make them."""
    monkeypatch.setattr(pythia, "start", lambda component, *, seed: FakePythia(component, seed))
    monkeypatch.setattr(pythia, "collisions", FakePythia.collisions)
    components = [component for component in load_components() if component.name in NAMES]
    return [
        block.make(
            block.Block(
                component=component,
                seed=1,
                stream=(place, part),
                num_events=GENERATED[component.name] // 2,
                image_size=64,
            ),
            tmp_path / f"{place}-{part}.npz",
        )
        for place, component in enumerate(components)
        for part in range(2)
    ]


@pytest.fixture
def path(tmp_path, blocks):
    path = tmp_path / "events.h5"
    generation.write_events(path, blocks, row_seed=np.random.SeedSequence(0), command="dlscale data hep-cnn")
    return path


def test_the_file_says_what_was_generated(path):
    check_input(Input(path=path), WORKLOAD.preset("small"))
    with h5py.File(path) as file:
        assert (
            dict(zip(file.attrs["components"], file.attrs["component_generated"], strict=True)) == GENERATED
        )
        np.testing.assert_array_equal(np.bincount(file["component"][:]), list(GENERATED.values()))
        np.testing.assert_array_equal(file["label"][:], file.attrs["component_labels"][file["component"][:]])
        assert 0 < file["preselection"][:].mean() < 1
        weights = file.attrs["component_cross_sections_mb"] / list(GENERATED.values())
        np.testing.assert_allclose(file["weight"][:], weights[file["component"][:]])


def test_rows_hold_what_the_blocks_made(path, blocks):
    with h5py.File(path) as file:
        rows = np.random.default_rng(np.random.SeedSequence(0)).permutation(len(file["data"]))
        made = [event for done in blocks for event in block.read(done)]
        maxima = np.max([event.image.max(axis=(1, 2)) for event in made], axis=0)
        for row, event in zip(rows[::20], made[::20], strict=True):
            stored = file["data"][row] * maxima[:, None, None]
            np.testing.assert_allclose(stored, event.image, atol=1e-3)
            assert file["psr"][row] == event.psr


@pytest.mark.slow
def test_the_example_trains_and_compares(path):
    command = [sys.executable, str(EXAMPLE), str(path), "--preset", "tiny", "--epochs", "6"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    # The fake events differ in plain sight: what has learnt separates them all.
    assert "network 100.00%" in done.stdout
    assert done.stdout.rstrip().endswith(": better")
