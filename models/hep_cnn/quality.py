"""How well HEP-CNN tells signal from background, on events that it was not trained on: ROC curves, weighted or not.

Unweighted, an event counts as one of the mixture that was generated; weighted, as the cross section [mb] that it stands
for, where the file says it. Of the shipped events few count then: their weights span eight orders of magnitude.
Background rejection is 1 - background efficiency, an efficiency the weighted share that passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dlscale.models.hep_cnn.data import EventFiles
from dlscale.models.quality.metric import Measured, Metric, Predict
from dlscale.models.samples import Arrays, Samples

REJECTION = 0.99  # of the background

METRICS = {
    "auc": Metric(text="area under the ROC curve"),
    "signal_efficiency": Metric(text=f"signal efficiency at {REJECTION:.0%} background rejection"),
    "weighted_auc": Metric(text="area under the ROC curve of events weighted by cross section"),
}


def read(samples: Samples, indices: NDArray[np.int64]) -> Arrays:
    """Images (N, H, W, C) and labels (N,), and weights (N,) where the files have them."""
    arrays = samples.read(indices)
    weights = samples.weights(indices) if isinstance(samples, EventFiles) else None
    return arrays if weights is None else (*arrays, weights)


def measure(predict: Predict, images: NDArray[Any], labels: NDArray[Any], *weights: NDArray[Any]) -> Measured:
    """Scores, labels and perhaps weights (N,)."""
    measured = {"score": signal_score(predict(images)), "label": labels}
    return measured | ({"weight": weights[0]} if weights else {})


def metrics(measured: Measured) -> dict[str, float]:
    """The metrics of events of both kinds; none of scores that are not finite numbers."""
    scores, labels = measured["score"], measured["label"]
    if not np.isfinite(scores).all():
        return {}
    roc = roc_curve(scores, labels)
    found = {"auc": roc.auc, "signal_efficiency": roc.signal_efficiency_at(REJECTION)}
    if "weight" in measured:
        found["weighted_auc"] = roc_curve(scores, labels, weights=measured["weight"]).auc
    return found


# Two sums of the same weights in different orders differ by rounding, and must not cost a step of the curve.
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Roc:
    """Steps of a ROC curve, each array of shape (steps + 1,): from (0, 0), where nothing passes, to (1, 1).

    At each step the events of the next lower score pass, too. Equal scores make one step.
    """

    background_efficiency: NDArray[np.float64]
    signal_efficiency: NDArray[np.float64]

    @property
    def auc(self) -> float:
        """Area under the curve: the weighted share of pairs whose signal scores higher, ties counted half."""
        height, width = self.signal_efficiency, np.diff(self.background_efficiency)
        return float((width * (height[1:] + height[:-1]) / 2.0).sum())  # NumPy's own has two names

    def signal_efficiency_at(self, background_rejection: float) -> float:
        """Signal efficiency at the loosest threshold that rejects at least this share of the background.

        There is no interpolation between steps: it is the efficiency of a threshold that exists. Raises
        ValueError for a rejection outside [0, 1].
        """
        if not 0 <= background_rejection <= 1:
            raise ValueError(f"a background rejection lies in [0, 1], got {background_rejection}")
        allowed = (1 - background_rejection) * (1 + ROUNDING)
        last = int(np.searchsorted(self.background_efficiency, allowed, side="right")) - 1
        return float(self.signal_efficiency[last])


def signal_score(logits: NDArray[np.floating]) -> NDArray[np.float64]:
    """A score (N,) from the logits (N, 2) of background and signal: their difference.

    It orders events as the softmax does, but does not round to exactly 1 for the best ones, where rejections of
    99.99 % are decided.
    """
    if logits.ndim != 2 or logits.shape[1] != 2:
        raise ValueError(f"need logits of shape (N, 2), got {logits.shape}")
    wide = logits.astype(np.float64)
    return wide[:, 1] - wide[:, 0]


def roc_curve(scores: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None) -> Roc:
    """The ROC curve of `scores` (N,) for `labels` (N,), 1 for signal and 0 for background.

    Without `weights` (N,) all events count alike. Raises ValueError if a score is not finite, a label is
    something else, a weight is negative or not finite, or all weights of a kind are zero.
    """
    score, signal = _checked(scores, labels)
    weight = np.ones(len(score)) if weights is None else np.asarray(weights, dtype=np.float64)
    if weight.shape != score.shape:
        raise ValueError(f"{weight.shape} weights for {score.shape} scores")
    if not np.all(np.isfinite(weight)) or np.any(weight < 0):
        raise ValueError("weights must be finite and at least 0")
    order = np.argsort(-score, kind="stable")
    score, signal, weight = score[order], signal[order], weight[order]
    ends = np.append(np.flatnonzero(np.diff(score)), len(score) - 1)  # the last event of each distinct score
    return Roc(
        background_efficiency=_efficiency(np.where(signal, 0, weight), ends, kind="background"),
        signal_efficiency=_efficiency(np.where(signal, weight, 0), ends, kind="signal"),
    )


def _checked(scores: ArrayLike, labels: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Scores (N,), all finite, and which events are signal (N,). Raises ValueError."""
    score, label = np.asarray(scores, dtype=np.float64), np.asarray(labels)
    if score.ndim != 1 or label.shape != score.shape:
        raise ValueError(f"need scores and labels of one shape (N,), got {score.shape} and {label.shape}")
    if len(score) == 0:
        raise ValueError("there are no events")
    if not np.all(np.isfinite(score)):
        raise ValueError(f"{np.count_nonzero(~np.isfinite(score))} of {len(score)} scores are not finite")
    if not np.all((label == 0) | (label == 1)):
        raise ValueError("labels must be 1 (signal) or 0 (background)")
    return score, label == 1


def _efficiency(weight: NDArray[np.float64], ends: NDArray[np.int64], *, kind: str) -> NDArray[np.float64]:
    passed = np.cumsum(weight)
    if passed[-1] == 0:
        raise ValueError(f"there is no {kind} event with a weight above 0")
    return np.append(0.0, passed[ends] / passed[-1])
