"""How well GPT predicts text that it was not trained on: bits per byte, the mean of -log2 of a byte's probability.

8 for a guess at random among 256 bytes; an untrained network may be a little above.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.models.quality.metric import Measured, Metric, Predict
from dlscale.models.samples import Arrays, Samples

METRICS = {"bits_per_byte": Metric(text="bits per byte", higher_is_better=False, most=8.0)}


def read(samples: Samples, indices: NDArray[np.int64]) -> Arrays:
    """Tokens (N, T) and labels (N, T)."""
    return samples.read(indices)


def measure(predict: Predict, tokens: NDArray[Any], labels: NDArray[Any]) -> Measured:
    """Mean bits per byte of each sample (N,)."""
    return {"bits": bits_per_byte(predict(tokens), labels)}


def metrics(measured: Measured) -> dict[str, float]:
    """The mean over samples, which all have as many bytes; none if a logit is not a finite number."""
    bits = float(np.mean(measured["bits"]))
    return {"bits_per_byte": bits} if np.isfinite(bits) else {}


def bits_per_byte(logits: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.float64]:
    """Mean cross-entropy in bits (N,) of logits (N, T, V) and labels (N, T).

    Raises ValueError if shapes do not fit or a label is no token.
    """
    if logits.ndim != 3 or labels.shape != logits.shape[:2]:
        raise ValueError(f"need logits (N, T, V) and labels (N, T), got {logits.shape} and {labels.shape}")
    if np.any((labels < 0) | (labels >= logits.shape[2])):
        raise ValueError(f"labels must be whole numbers from 0 to {logits.shape[2] - 1}")
    with np.errstate(invalid="ignore"):  # of logits that are not finite
        shifted = logits - logits.max(axis=2, keepdims=True)
        chosen = np.take_along_axis(shifted, labels[..., None], axis=2)[..., 0].astype(np.float64)
        nats = np.log(np.exp(shifted).sum(axis=2, dtype=np.float64)) - chosen
    mean: NDArray[np.float64] = nats.mean(axis=1) / np.log(2)
    return mean
