"""What tests of several workloads use."""

import pytest


@pytest.fixture
def quick_maps(monkeypatch):
    """A spectrum at once and without CAMB, where it does not matter which: as strong and steep as convergence."""
    from dlscale.models.cosmogan.maps import generation, lognormal

    monkeypatch.setattr(lognormal, "load_camb", lambda: None)
    monkeypatch.setattr(
        lognormal, "convergence_spectrum", lambda *_: lambda multipoles: 1e-9 * (multipoles / 500) ** -1.4
    )
    monkeypatch.setattr(generation, "version", lambda name: f"{name}'s version")
