"""Generating events with PYTHIA: the physics of the processes, and the file that comes of it."""

from __future__ import annotations

import os
from collections import Counter
from itertools import islice

import h5py
import numpy as np
import pytest

from dlscale.models.hep_cnn import WORKLOAD
from dlscale.models.hep_cnn.data import check_input, default_input
from dlscale.models.hep_cnn.events import DEFAULT_SEED, block, generate, pythia
from dlscale.models.hep_cnn.events.components import load_components
from dlscale.models.workload import Input

pytestmark = [pytest.mark.requires("pythia8mc"), pytest.mark.nightly]

SIGNAL, *SLICES = load_components()
GLUINO, NEUTRALINO = 1000021, 1000022


def descendants(event, particle):
    """The partons at the ends of a decay chain of the hard process."""
    daughters = particle.daughterList()
    if not daughters:
        return [particle]
    return [end for daughter in daughters for end in descendants(event, event[daughter])]


def test_both_gluinos_decay_to_five_light_quarks_by_a_neutralino():
    generator = pythia.start(SIGNAL, seed=1)
    for _ in range(20):
        assert generator.next()
        process = generator.process
        gluinos = [particle for particle in process if particle.id() == GLUINO]
        assert len(gluinos) == 2
        for gluino in gluinos:
            assert gluino.m() == pytest.approx(1400, abs=10)
            (neutralino,) = [process[i] for i in gluino.daughterList() if process[i].id() == NEUTRALINO]
            assert neutralino.m() == pytest.approx(850, abs=10)
            quarks = [quark.id() for quark in descendants(process, neutralino)]
            assert len(quarks) == 3
            assert abs(sum(np.sign(quarks))) == 3  # three quarks or three antiquarks: a baryon number
            assert len(descendants(process, gluino)) == 5
            assert {abs(quark.id()) for quark in descendants(process, gluino)} <= {1, 2, 3, 4}
        assert not any(
            1_000_000 < abs(particle.id()) < 3_000_000 and particle.isFinal() for particle in generator.event
        )


def test_signal_has_many_jets_and_their_mass():
    collisions = list(islice(pythia.collisions(pythia.start(SIGNAL, seed=2)), 50))
    assert np.mean([len(collision.jet_pt) for collision in collisions]) > 3.5
    assert np.mean([collision.jet_mass[:4].sum() for collision in collisions]) > 500
    for collision in collisions:
        assert np.all(np.diff(collision.jet_pt) <= 0)
        # Neutrinos take a little; nothing is made of nothing.
        total_gev = np.hypot(collision.particles.px, collision.particles.py).sum()
        assert 1000 < total_gev < 13_000


@pytest.mark.parametrize("slice_", SLICES, ids=lambda component: component.name)
def test_qcd_jets_have_the_momentum_of_their_slice(slice_):
    low, high = slice_.pt_range_gev
    collisions = list(islice(pythia.collisions(pythia.start(slice_, seed=3)), 15))
    leading = [collision.jet_pt[0] for collision in collisions if len(collision.jet_pt)]
    assert low * 0.7 < np.median(leading) < high
    assert Counter(len(collision.jet_pt) for collision in collisions).most_common(1)[0][0] <= 3


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """20 events made by one process, and the events reported while they came."""
    out = tmp_path_factory.mktemp("made") / "events.h5"
    reported = []
    generate(20, out, seed=5, progress=reported.append)
    return out, reported


def test_the_file_is_complete_and_alone(made):
    out, reported = made
    assert sum(reported) == 20
    assert os.listdir(out.parent) == [out.name]
    check_input(Input(path=out), WORKLOAD.preset("small"))
    with h5py.File(out) as file:
        assert sorted(file) == ["component", "data", "label", "normweight", "preselection", "psr", "weight"]
        assert file["data"].chunks == (1, 3, 64, 64)
        assert file["label"][:].sum() == 10
        assert file["data"][:].max(axis=(0, 2, 3)).tolist() == [1, 1, 1]
        assert file.attrs["command"] == "dlscale data hep-cnn --events 20 --size 64 --seed 5"


def test_two_processes_make_the_same_file(made, tmp_path):
    generate(20, tmp_path / "events.h5", seed=5, num_processes=2)
    assert (tmp_path / "events.h5").read_bytes() == made[0].read_bytes()


def test_larger_images_show_the_same_events(made, tmp_path):
    out = tmp_path / "events.h5"
    out.write_text("old")
    generate(20, out, image_size=224, seed=5, num_processes=2, overwrite=True)
    with h5py.File(made[0]) as small, h5py.File(out) as large:
        np.testing.assert_array_equal(large["label"][:], small["label"][:])
        np.testing.assert_array_equal(large["psr"][:], small["psr"][:])
        assert large["data"].shape == (20, 3, 224, 224)
        tracks = [
            file["data"][:, 2].sum(axis=(1, 2)) * file.attrs["channel_maxima"][2] for file in (small, large)
        ]
        np.testing.assert_allclose(*tracks, rtol=1e-4)


def test_the_shipped_sample_is_what_this_code_makes(tmp_path):
    """Its first block, made again; the others differ in their seeds and settings only."""
    first = block.Block(component=SIGNAL, seed=DEFAULT_SEED, stream=(0, 0), num_events=250, image_size=64)
    done = block.make(first, tmp_path / "0.npz")
    path = default_input(WORKLOAD.preset("small")).path
    with h5py.File(path) as file:
        if file.attrs["generator"] != f"PYTHIA {done.pythia_version}":
            pytest.skip(f"the sample is of {file.attrs['generator']}, installed is {done.pythia_version}")
        order = np.random.SeedSequence(DEFAULT_SEED, spawn_key=(len(SLICES) + 1,))
        rows = np.random.default_rng(order).permutation(len(file["data"]))[:250]
        maxima = (file.attrs["channel_maxima"] / [0.5, 0.5, 1])[:, None, None]
        for row, event in zip(rows, block.read(done), strict=True):
            np.testing.assert_array_equal(file["data"][row], (event.image / maxima).astype(np.float32))
            assert (file["label"][row], file["psr"][row]) == (1, event.psr)
