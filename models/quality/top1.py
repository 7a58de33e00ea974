"""Top-1 and top-k accuracy of a classifier, with an interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """`num_correct` of `num_samples` were right; the true accuracy lies in [`low`, `high`] with `level`."""

    num_correct: int
    num_samples: int
    low: float
    high: float
    level: float

    @property
    def value(self) -> float:
        """The share of correct samples."""
        return self.num_correct / self.num_samples

    def sentence(self) -> str:
        """In words, with the interval."""
        return (
            f"{self.value:.2%} correct ({self.num_correct} of {self.num_samples}), "
            f"{self.level:.0%} interval [{self.low:.2%}, {self.high:.2%}]"
        )


def num_correct(logits: NDArray[Any], labels: NDArray[Any], *, k: int = 1) -> int:
    """How many of the samples are correct (`is_correct`), to be summed over local batches."""
    return int(np.count_nonzero(is_correct(logits, labels, k=k)))


def is_correct(logits: NDArray[Any], labels: NDArray[Any], *, k: int = 1) -> NDArray[np.bool_]:
    """Whether a sample's label is among the `k` classes with the highest of its logits (N, K); labels are (N,).

    Of equal logits the lower class goes first, as in argmax. Raises
    ValueError if shapes do not fit, a logit is NaN, a label is no class, or `k` is not in 1 .. K.
    """
    if logits.ndim != 2 or labels.shape != logits.shape[:1]:
        raise ValueError(f"need logits (N, K) and labels (N,), got {logits.shape} and {labels.shape}")
    num_classes = logits.shape[1]
    if not 1 <= k <= num_classes:
        raise ValueError(f"top-{k} of {num_classes} classes")
    if labels.dtype.kind not in "iu" or np.any((labels < 0) | (labels >= num_classes)):
        raise ValueError(f"labels must be whole numbers from 0 to {num_classes - 1}")
    if np.any(np.isnan(logits)):
        raise ValueError("a logit is NaN")
    own = np.take_along_axis(logits, labels[:, None].astype(np.int64), axis=1)
    lower = np.arange(num_classes) < labels[:, None]
    ahead = np.count_nonzero((logits > own) | ((logits == own) & lower), axis=1)
    correct: NDArray[np.bool_] = ahead < k
    return correct


def accuracy(num_correct: int, num_samples: int, *, level: float = LEVEL) -> Accuracy:
    """The accuracy with Wilson's score interval (Wilson, 1927).

    Unlike estimate and standard error it stays inside [0, 1] and has a width where all or none are correct.
    Raises ValueError without samples, or with more correct ones than there are.
    """
    if not 0 <= num_correct <= num_samples or num_samples == 0:
        raise ValueError(f"{num_correct} of {num_samples} samples correct")
    from scipy.special import ndtri

    z = float(ndtri((1 + level) / 2))
    share, spread = num_correct / num_samples, z * z / num_samples
    center = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / num_samples + spread / (4 * num_samples))
    return Accuracy(
        num_correct=num_correct,
        num_samples=num_samples,
        # At the ends the limits are exact but for rounding.
        low=0.0 if num_correct == 0 else center - half,
        high=1.0 if num_correct == num_samples else center + half,
        level=level,
    )


def top_k(logits: NDArray[Any], labels: NDArray[Any], *, k: int = 1, level: float = LEVEL) -> Accuracy:
    """Top-k accuracy of the logits (N, K) for `labels` (N,). Raises ValueError as `num_correct` does."""
    return accuracy(num_correct(logits, labels, k=k), len(labels), level=level)
