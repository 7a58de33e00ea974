"""How well HEP-CNN tells signal from background, on events that it was not trained on.

Unweighted, an event counts as one of the mixture that was generated; weighted, as the cross section that it stands for,
where the file says it. Of the shipped events few count then: their weights span eight orders of magnitude.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.models.hep_cnn.data import EventFiles
from dlscale.models.quality.metric import Measured, Metric, Predict
from dlscale.models.quality.roc import roc_curve, signal_score
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
