"""The quality of an image classifier on images that it was not trained on: what its `quality.py` has."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.models.images.data import ImageSamples
from dlscale.models.quality.metric import Measured, Metric, Predict
from dlscale.models.samples import Arrays, Samples

METRICS = {"top1": Metric(text="top-1 accuracy")}


def read(samples: Samples, indices: NDArray[np.int64]) -> Arrays:
    """Central crops (N, H, W, C) and labels (N,)."""
    if not isinstance(samples, ImageSamples):
        raise TypeError(f"images are needed, got {type(samples).__name__}")
    return samples.read_for_evaluation(indices)


def measure(predict: Predict, images: NDArray[Any], labels: NDArray[Any]) -> Measured:
    """Which images were classified correctly, and which had no finite logits, (N,) each.

    Of equal logits the lower class is taken.
    """
    logits = predict(images)
    finite = np.asarray(np.isfinite(logits).all(axis=1))
    return {"correct": np.asarray(np.argmax(np.nan_to_num(logits), axis=1) == labels), "finite": finite}


def metrics(measured: Measured) -> dict[str, float]:
    """The accuracy; none if a logit is not a finite number."""
    return {"top1": float(np.mean(measured["correct"]))} if measured["finite"].all() else {}
