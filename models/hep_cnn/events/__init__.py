"""Collision events for HEP-CNN: signal and background of the published data set, generated with PYTHIA 8."""

from __future__ import annotations

from dlscale.models.hep_cnn.events.generation import DEFAULT_SEED, IMAGE_SIZES, generate

__all__ = ["DEFAULT_SEED", "IMAGE_SIZES", "generate"]
