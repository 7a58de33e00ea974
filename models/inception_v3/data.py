"""Inception v3's data, as `samples.DataModule` asks for it: labelled images, and a dropout mask per step."""

from __future__ import annotations

import numpy as np

from dlscale.base.errors import UsageError
from dlscale.models.images.data import check_input, default_input, open_samples, synthetic_batch
from dlscale.models.inception_v3 import DIVISORS, NUM_FEATURES
from dlscale.models.samples import Arrays, draw_masks
from dlscale.models.workload import Preset

__all__ = ["check_input", "default_input", "open_samples", "step_inputs", "synthetic_batch"]


def step_inputs(preset: Preset, local_batch: int, rng: np.random.Generator, *, gate: bool) -> Arrays:
    """The dropout mask of a step, (N, features) uint8; with `gate` none. Raises UsageError for a batch of 1."""
    if local_batch < 2:
        raise UsageError(
            f"inception_v3 was asked for a local batch of {local_batch}, but its auxiliary head ends in batch norm "
            "of one pixel, which needs 2 images or more; take larger batches or fewer ranks"
        )
    if gate:
        return ()
    return tuple(draw_masks(rng, [(NUM_FEATURES // DIVISORS[preset.name],)], local_batch))
