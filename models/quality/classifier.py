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
    """Which images were classified correctly, and which had no finite logits, (N,) each."""
    logits = predict(images)
    finite = np.asarray(np.isfinite(logits).all(axis=1))
    return {"correct": is_top1(np.nan_to_num(logits), labels), "finite": finite}


def metrics(measured: Measured) -> dict[str, float]:
    """The accuracy; none if a logit is not a finite number."""
    return {"top1": float(np.mean(measured["correct"]))} if measured["finite"].all() else {}


def is_top1(logits: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether a sample's label is the class with the highest of its logits (N, K); labels are (N,).

    Of equal logits the lower class is taken. Raises ValueError if shapes do not fit, a logit is NaN, or a label is no
    class.
    """
    if logits.ndim != 2 or labels.shape != logits.shape[:1]:
        raise ValueError(f"need logits (N, K) and labels (N,), got {logits.shape} and {labels.shape}")
    num_classes = logits.shape[1]
    if labels.dtype.kind not in "iu" or np.any((labels < 0) | (labels >= num_classes)):
        raise ValueError(f"labels must be whole numbers from 0 to {num_classes - 1}")
    if np.any(np.isnan(logits)):
        raise ValueError("a logit is NaN")
    correct: NDArray[np.bool_] = np.argmax(logits, axis=1) == labels
    return correct
