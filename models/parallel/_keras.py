"""Keras's layers of which each rank of a replica has the rows: Keras's own names, arguments and weights.

They are what a user's `model(layers)` is given. While they do not train they take whole samples and exchange nothing.
Maps are (N, H, W, C).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import keras

from dlscale.base.errors import UsageError
from dlscale.models.parallel._tensorflow import Exchanges

NAMES = ("Conv2D", "MaxPooling2D", "BatchNormalization", "GlobalAveragePooling2D")
WHOLE = SimpleNamespace(**{name: getattr(keras.layers, name) for name in NAMES})


def layers_of(exchanges: Exchanges | None) -> SimpleNamespace:
    """The layers of NAMES, for a rank's rows or for whole samples."""
    return WHOLE if exchanges is None else _layers_of(exchanges)


def _layers_of(exchanges: Exchanges) -> SimpleNamespace:
    """Classes with Keras's names, for names of weights come from them."""
    asked = f"split {exchanges.rows.split} was asked for"

    class Conv2D(keras.layers.Conv2D):  # type: ignore[misc]
        def call(self, inputs: Any, training: bool | None = None) -> Any:
            if not training:
                return super().call(inputs)
            if self.dilation_rate != (1, 1):
                raise UsageError(f"{asked}, but {self.name} has a dilation rate; leave either out")
            return windows(self, inputs, super().call, size=self.kernel_size)

    class MaxPooling2D(keras.layers.MaxPooling2D):  # type: ignore[misc]
        def call(self, inputs: Any, training: bool | None = None) -> Any:
            if not training:
                return super().call(inputs)
            return windows(self, inputs, super().call, size=self.pool_size, fill=inputs.dtype.min)

    class BatchNormalization(keras.layers.BatchNormalization):  # type: ignore[misc]
        def _moments(self, inputs: Any, mask: Any) -> Any:  # while training
            if mask is not None or tuple(self._reduction_axes) != (0, 1, 2):
                raise UsageError(
                    f"{asked}, but {self.name} normalises something else than maps (N, H, W, C) by their channels; "
                    "leave split out"
                )
            return exchanges.moments(inputs)

    class GlobalAveragePooling2D(keras.layers.GlobalAveragePooling2D):  # type: ignore[misc]
        def call(self, inputs: Any, training: bool | None = None) -> Any:
            if not training:
                return super().call(inputs)
            means = exchanges.mean(inputs)
            return means[:, None, None] if self.keepdims else means

    def windows(layer: Any, values: Any, call: Any, *, size: tuple[int, int], fill: float = 0.0) -> Any:
        """What a layer makes of windows of own rows and their halo, of H rows H / stride."""
        (height, width), (down, across), padding = size, layer.strides, layer.padding
        if height > down and padding != "same":
            raise UsageError(
                f"{asked}, but {layer.name} reads {height} rows at a time, every {down}, without padding; write "
                'padding="same", or leave split out'
            )
        rows, columns = max(height - down, 0), 0
        if padding == "same":
            columns = max((-(-values.shape[2] // across) - 1) * across + width - values.shape[2], 0)
        values = exchanges.halo(
            values,
            above=rows // 2,
            below=rows - rows // 2,
            sides=(columns // 2, columns - columns // 2),
            fill=fill,
        )
        layer.padding = "valid"
        try:
            return call(values)
        finally:
            layer.padding = padding

    made = (Conv2D, MaxPooling2D, BatchNormalization, GlobalAveragePooling2D)
    return SimpleNamespace(**dict(zip(NAMES, made, strict=True)))
