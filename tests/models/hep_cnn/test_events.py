"""The parts of the event generation that need no generator: components, calorimeter, selection."""

from __future__ import annotations

import numpy as np
import pytest

from dlscale.models.hep_cnn.events import calorimeter
from dlscale.models.hep_cnn.events.calorimeter import LEAST_COUNT_GEV, Particles, image_counts
from dlscale.models.hep_cnn.events.components import load_components, share_events
from dlscale.models.hep_cnn.events.pythia import in_signal_region, passes_preselection


def test_components_are_the_published_ones():
    components = load_components()
    assert [component.name for component in components] == [
        "RPV10_1400_850",
        *(f"JZ{n}" for n in range(3, 9)),
    ]
    assert [component.label for component in components] == [1, 0, 0, 0, 0, 0, 0]
    assert components[1].cross_section_mb == 1.643e-04
    assert "PhaseSpace:pTHatMin = 160." in components[1].settings
    assert "PhaseSpace:pTHatMax = 400." in components[1].settings


@pytest.mark.parametrize("num_events", [12, 13, 100, 4000, 4001])
def test_events_are_shared_evenly(num_events):
    signal, *slices = share_events(num_events, load_components())
    assert signal + sum(slices) == num_events
    assert signal - sum(slices) in (0, 1)
    assert max(slices) - min(slices) <= 1
    assert min(slices) >= 1


def particle(*, pt, eta, phi, charge, pdg_id):
    return Particles(
        px=np.array([pt * np.cos(phi)]),
        py=np.array([pt * np.sin(phi)]),
        pz=np.array([pt * np.sinh(eta)]),
        energy=np.array([pt * np.cosh(eta)]),
        charge=np.array([float(charge)]),
        pdg_id=np.array([pdg_id]),
    )


def image(*, size=64, **of_particle):
    return image_counts(particle(**of_particle), size=size, rng=np.random.default_rng(0))


@pytest.mark.parametrize("size", [64, 224])
def test_a_photon_fills_one_electromagnetic_cell_at_its_place(size):
    eta, phi = 1.3, -2.0
    counts = image(size=size, pt=100.0, eta=eta, phi=phi, charge=0, pdg_id=22)
    cell = (int((eta + 2.5) / 5.0 * size), int((phi + 3.15) / 6.3 * size))
    assert np.argwhere(counts[0]).tolist() == [list(cell)]
    assert counts[0][cell] == counts[1][cell] == pytest.approx(100 / LEAST_COUNT_GEV, rel=0.05)
    assert not counts[2].any()


def test_a_charged_hadron_leaves_a_track_and_hadronic_energy():
    counts = image(pt=50.0, eta=0.0, phi=0.0, charge=-1, pdg_id=-211)
    assert counts[0].sum() == pytest.approx(50 / LEAST_COUNT_GEV, rel=0.3)
    assert counts[1].sum() == 0
    assert counts[2].sum() == 1


def test_a_muon_leaves_a_track_only():
    counts = image(pt=50.0, eta=0.0, phi=0.0, charge=-1, pdg_id=13)
    assert counts.sum(axis=(1, 2)).tolist() == [0, 0, 1]


@pytest.mark.parametrize("charge", [-1, 1])
def test_the_field_bends_by_charge_and_keeps_the_softest(charge):
    """At twice the pT that just arrives, a particle arrives 30 degrees aside."""
    counts = image(pt=2 * 0.345, eta=0.0, phi=1.0, charge=charge, pdg_id=11 * -charge)
    (column,) = np.flatnonzero(counts[0].any(axis=0))
    assert (column + 0.5) / 64 * 6.3 - 3.15 == pytest.approx(1.0 - charge * np.pi / 6, abs=6.3 / 64)
    assert not image(pt=0.3, eta=0.0, phi=1.0, charge=charge, pdg_id=11 * -charge).any()


@pytest.mark.parametrize("eta", [-2.6, 2.6])
def test_what_is_outside_is_not_seen(eta):
    assert not image(pt=50.0, eta=eta, phi=0.0, charge=1, pdg_id=211).any()


@pytest.mark.parametrize("phi", [-np.pi, np.pi, np.nextafter(np.pi, 0)])
@pytest.mark.parametrize("eta", [np.nextafter(-2.5, 0), np.nextafter(2.5, 0)])
def test_the_edges_belong_to_the_image(eta, phi):
    hits = calorimeter._histogram(np.array([eta]), np.array([phi]), np.array([True]), size=64)
    assert hits.shape == (64, 64)
    assert hits.sum() == 1


def test_energies_below_half_a_count_are_zero():
    assert not image(pt=0.4 * LEAST_COUNT_GEV, eta=0.0, phi=0.0, charge=0, pdg_id=22).any()


@pytest.mark.parametrize(
    ("pt", "eta", "mass", "expected"),
    [
        ([500, 400, 300, 250], [0, 0, 0, 0], [300, 200, 200, 101], True),
        ([500, 400, 300, 250], [0, 0, 0, 0], [300, 200, 200, 99], False),  # masses, of 4 jets
        ([500, 400, 300, 250, 210], [0, 0, 0, 0, 0], [200, 200, 101, 100, 50], True),  # of 5 jets
        ([500, 400, 300, 250, 210], [0, 0, 0, 0, 0], [200, 200, 100, 50, 500], False),  # the leading 4 count
        ([430, 400, 300, 250], [0, 0, 0, 0], [300, 300, 300, 300], False),  # leading pT
        ([500, 400, 300], [0, 0, 0], [500, 500, 500], False),  # too few jets
        ([500, 400, 300, 190], [0, 0, 0, 0], [300, 300, 300, 300], False),  # the fourth is soft
        ([500, 400, 300, 250], [0, 0, 0, 2.1], [300, 300, 300, 300], False),  # the fourth is forward
        ([500, 400, 300, 250], [0.8, -0.7, 0, 0], [300, 300, 300, 300], False),  # leading two far apart
        ([], [], [], False),
    ],
)
def test_signal_region(pt, eta, mass, expected):
    assert in_signal_region(*(np.array(values, dtype=np.float64) for values in (pt, eta, mass))) is expected


@pytest.mark.parametrize(
    ("pt", "eta", "expected"),
    [
        ([441, 300, 201], [0, 1.9, -1.9], True),
        ([439, 300, 201], [0, 0, 0], False),  # the leading one
        ([441, 300, 199], [0, 0, 0], False),  # the third is soft
        ([441, 300, 201], [0, 0, 2.1], False),  # the third is forward
        ([900, 430, 300, 201], [2.1, 0, 0, 0], False),  # the leading one that is central
        ([900, 441, 300, 201], [2.1, 0, 0, 0], True),
        ([], [], False),
    ],
)
def test_preselection(pt, eta, expected):
    pt, eta = np.array(pt, dtype=np.float64), np.array(eta, dtype=np.float64)
    assert passes_preselection(pt, eta) is expected
