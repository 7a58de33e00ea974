"""The quality of a user's own model on held-out samples: its file's metrics, its accuracy, its loss."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.models.own.file import load_file
from dlscale.models.own.model import FilePlace, OwnModel, known_place
from dlscale.models.quality.metric import Measured, Metric, Predict
from dlscale.models.samples import Arrays, Samples

TEXTS = {"accuracy": "accuracy", "loss": "loss"}


class OwnQuality:
    """`quality.metric.QualityModule` of a file; it is run when something is measured."""

    def __init__(self, model: OwnModel, place: FilePlace | None) -> None:
        self._model, self._place = model, place

    @property
    def METRICS(self) -> Mapping[str, Metric]:  # noqa: N802 - the interface's name
        """The metrics of the file, which know no limits, and its accuracy and loss."""
        return {
            name: Metric(
                text=TEXTS.get(name, name),
                higher_is_better=higher,
                least=0.0 if name == "accuracy" else -math.inf,
                most=1.0 if name == "accuracy" else math.inf,
            )
            for name, higher in self._model.metrics.items()
        }

    def read(self, samples: Samples, indices: NDArray[np.int64]) -> Arrays:
        """The same samples as in training: a file has no other data."""
        return samples.read(indices)

    def measure(self, predict: Predict, *arrays: NDArray[Any]) -> Measured:
        """Outputs and labels (N, ...)."""
        *inputs, labels = arrays
        return {"outputs": predict(*inputs), "labels": labels}

    def metrics(self, measured: Measured) -> dict[str, float]:
        """All that can be computed; none where an output is no finite number."""
        outputs, labels = measured["outputs"], measured["labels"]
        if not np.isfinite(outputs).all():
            return {}
        own = load_file(known_place(self._model, self._place), self._model.digest)
        found = {
            name: own.run(partial(_number, call, outputs, labels), what=f"metric {name}(outputs, labels)")
            for name, call in own.metrics.items()
        }
        if "accuracy" in self._model.metrics and "accuracy" not in found:
            found["accuracy"] = float(np.mean(outputs.argmax(axis=1) == labels))
        if "loss" not in found:
            framework = importlib.import_module(f"dlscale.models.own._{self._model.framework}")
            found["loss"] = own.run(lambda: framework.loss_value(own, outputs, labels), what="loss")
        return found


def _number(call: Callable[..., Any], outputs: NDArray[Any], labels: NDArray[Any]) -> float:
    return float(call(outputs.copy(), labels.copy()))  # which a metric may overwrite
