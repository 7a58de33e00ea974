"""ResNet-50's data, as `samples.DataModule` asks for it: labelled images."""

from __future__ import annotations

import numpy as np

from dlscale.base.errors import UsageError
from dlscale.models.images.data import check_input, default_input, open_samples, synthetic_batch
from dlscale.models.samples import Arrays
from dlscale.models.workload import Preset

__all__ = ["check_input", "default_input", "open_samples", "step_inputs", "synthetic_batch"]


def step_inputs(preset: Preset, local_batch: int, rng: np.random.Generator, *, gate: bool) -> Arrays:  # noqa: ARG001
    """Nothing: the network has no dropout. Raises UsageError for a batch that batch norm cannot do with."""
    _, height, width = preset.input_shape
    if local_batch < 2 and max(height, width) <= 32:  # five halvings leave one pixel
        raise UsageError(
            f"resnet50 ({preset.name}) was asked for a local batch of {local_batch}, but its last batch norms see one "
            "pixel per image, which needs 2 images or more; take larger batches or fewer ranks"
        )
    return ()
