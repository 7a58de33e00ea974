"""ResNet-50's data, as `samples.DataModule` asks for it: labelled images."""

from __future__ import annotations

import numpy as np

from dlscale.models.images.data import check_input, default_input, open_samples, synthetic_batch
from dlscale.models.samples import Arrays
from dlscale.models.workload import Preset

__all__ = ["check_input", "default_input", "open_samples", "step_inputs", "synthetic_batch"]


def step_inputs(preset: Preset, local_batch: int, rng: np.random.Generator, *, gate: bool) -> Arrays:  # noqa: ARG001
    """Nothing: the network has no dropout."""
    return ()
