"""Keras 3 over a ring: an optimizer that averages gradients before it does anything else, under `model.fit` too."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import keras  # type: ignore[import-untyped]

from dlscale.collectives.backend import Collective
from dlscale.models.errors import UsageError

WRAP_THE_WHOLE = "give keras.optimizers.LossScaleOptimizer(optimizer) to ring.keras_optimizer as a whole"


def averaging_optimizer(optimizer: Any, rings: Sequence[Collective], *, threads: bool | None) -> Any:
    """`optimizer` itself, which from now on averages its gradients over the rings; collective.

    Only its class changes, so hyper-parameters, schedules, slots and whatever else it holds stay. Everything that
    Keras does in `apply`, clipping to begin with, sees averaged gradients. It is saved as what it was before.
    """
    if keras.config.backend() != "tensorflow":
        raise UsageError(
            f"keras_optimizer averages in TensorFlow, but Keras runs on {keras.config.backend()}; set "
            "KERAS_BACKEND=tensorflow, or train in a loop of your own (with torch: ring.torch_hook)"
        )
    optimizer = keras.optimizers.get(optimizer)
    if is_averaging(optimizer) or is_averaging(getattr(optimizer, "inner_optimizer", None)):
        raise UsageError("this optimizer averages its gradients over a ring already; wrap it once")
    scales = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    if keras.config.dtype_policy().name == "mixed_float16" and not scales:
        raise UsageError(f"with mixed_float16 Keras scales the loss around the optimizer; {WRAP_THE_WHOLE}")
    # Only here: where Keras runs on something else, TensorFlow may not even be installed.
    from dlscale.collectives.fronts._tensorflow_gradients import exchange_over

    exchange = exchange_over(rings, threads=threads)
    kind = type(optimizer)
    # Keras saves the name of `__class__`. The plain optimizer's can be loaded wherever Keras is.
    averaging = type(f"Averaging{kind.__name__}", (Averaging, kind), {"__class__": property(lambda _: kind)})
    object.__setattr__(optimizer, "__class__", averaging)
    object.__setattr__(optimizer, "_dlscale_exchange", exchange)
    return optimizer


class Averaging:
    """What `averaging_optimizer` puts before an optimizer's own class."""

    _dlscale_exchange: Any

    def apply(self, grads: Sequence[Any], trainable_variables: Any = None) -> Any:
        """Average the gradients over ranks, and go on with the means."""
        from dlscale.collectives.fronts._tensorflow_gradients import average

        if _is_scaled(self):
            raise UsageError(
                "a LossScaleOptimizer leaves steps out when its own rank's gradients overflow, and other ranks "
                f"would wait for it without end; {WRAP_THE_WHOLE}"
            )
        means = average(self._dlscale_exchange, grads)
        return super().apply(means, trainable_variables)  # type: ignore[misc]


def _is_scaled(optimizer: Any) -> bool:
    """Whether a LossScaleOptimizer is what calls: the optimizer inside one is not told."""
    frame = inspect.currentframe()
    while frame := frame and frame.f_back:
        caller = frame.f_locals.get("self")
        if isinstance(caller, keras.optimizers.LossScaleOptimizer) and caller.inner_optimizer is optimizer:
            return True
    return False


def is_averaging(optimizer: Any) -> bool:
    """Whether it came from `averaging_optimizer`."""
    return isinstance(optimizer, Averaging)
