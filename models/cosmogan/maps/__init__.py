"""Convergence maps for CosmoGAN: lognormal fields with the power spectrum of a stated cosmology.

They have the two-point statistics and about the skewness of weak lensing on one source plane. The higher orders,
haloes and filaments among them, are those of a lognormal field and not of an N-body simulation.
"""

from __future__ import annotations

from dlscale.models.cosmogan.maps.generation import DEFAULT_SEED, DTYPES, MAX_SIZE, MIN_SIZE, generate

__all__ = ["DEFAULT_SEED", "DTYPES", "MAX_SIZE", "MIN_SIZE", "generate"]
