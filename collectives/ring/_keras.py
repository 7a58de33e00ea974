"""Keras 3 over a ring: an optimizer that averages gradients before it does anything else, and what else `model.fit`
needs on several ranks: equal models at the start, one metric for all, and a check of both.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from dlscale.base.errors import UsageError
from dlscale.collectives.backend import Collective
from dlscale.collectives.buffers import check_buffers_match
from dlscale.collectives.ring.engine import Ring

WRAP_THE_WHOLE = "give keras.optimizers.LossScaleOptimizer(optimizer) to ring.keras_optimizer as a whole"


def averaging_optimizer(optimizer: Any, rings: Sequence[Collective], *, threads: bool | None) -> Any:
    """`optimizer` itself, which from now on averages its gradients over the rings; collective.

    Only its class changes, so hyper-parameters, schedules, slots and whatever else it holds stay. Everything that
    Keras does in `apply`, clipping to begin with, sees averaged gradients. It is saved as what it was before.
    """
    if keras.config.backend() != "tensorflow":
        raise UsageError(
            f"keras_optimizer averages in TensorFlow, but Keras runs on {keras.config.backend()}; set "
            "KERAS_BACKEND=tensorflow, or train in your own loop (with torch: ring.torch_hook)"
        )
    optimizer = keras.optimizers.get(optimizer)
    if isinstance(optimizer, Averaging) or isinstance(getattr(optimizer, "inner_optimizer", None), Averaging):
        raise UsageError("this optimizer averages its gradients over a ring already; wrap it once")
    scales = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    if keras.config.dtype_policy().name == "mixed_float16" and not scales:
        raise UsageError(f"with mixed_float16 Keras scales the loss around the optimizer; {WRAP_THE_WHOLE}")
    # Only here: where Keras runs on something else, TensorFlow may not even be installed.
    from dlscale.collectives.training._tensorflow_buckets import exchange_over

    exchange = exchange_over(rings, threads=threads)
    kind = type(optimizer)
    # Keras saves the name of `__class__`. The plain optimizer's can be loaded wherever Keras is.
    averaging = type(f"Averaging{kind.__name__}", (Averaging, kind), {"__class__": property(lambda _: kind)})
    object.__setattr__(optimizer, "__class__", averaging)
    object.__setattr__(optimizer, "_dlscale_exchange", exchange)
    return optimizer


class Averaging:
    """The class that `averaging_optimizer` puts before an optimizer's own."""

    _dlscale_exchange: Any

    def apply(self, grads: Sequence[Any], trainable_variables: Any = None) -> Any:
        """Average the gradients over ranks, and go on with the means."""
        from dlscale.collectives.training._tensorflow_buckets import average

        means = average(self._dlscale_exchange, grads)
        return super().apply(means, trainable_variables)  # type: ignore[misc]


class StartEqual(keras.callbacks.Callback):  # type: ignore[misc]
    """All ranks begin with the model's and the optimizer's variables of rank 0, the optimizer's slots included.

    Left out are the states of random generators (dropout), which each rank keeps. Raises UsageError where training
    would go wrong on several ranks, and BuffersDifferError after an epoch that left ranks with different weights.
    """

    def __init__(self, ring: Ring) -> None:
        super().__init__()
        self._ring = ring

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002
        """Check and broadcast; collective."""
        self._check_model()
        steps = self.params.get("steps") or 0
        _check_equal(
            self._ring,
            str(steps),
            f"ranks have different numbers of steps per epoch, this one {steps}, and would wait for each other "
            "without end; give all ranks equally many samples, or steps_per_epoch",
        )
        if not self.model.optimizer.built:
            self.model.optimizer.build(self.model.trainable_variables)
        broadcast_variables(self._ring, [*self.model.variables, *self.model.optimizer.variables])

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002
        """Make sure that all ranks still hold the same weights; collective."""
        variables = self.model.trainable_variables
        names = [variable.path for variable in variables]
        check_buffers_match(self._ring, [np.asarray(variable) for variable in variables], names=names)

    def _check_model(self) -> None:
        model = self.model
        own_step = type(model).train_step is not keras.Model.train_step
        if not (isinstance(model.optimizer, Averaging) or own_step):
            name = type(model.optimizer).__name__
            scales = isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
            raise UsageError(
                f"every rank would train alone: the model's {name} does not average its gradients; "
                + (WRAP_THE_WHOLE if scales else "compile with optimizer=ring.keras_optimizer(...)")
            )
        if model.jit_compile:
            raise UsageError(
                "the model is compiled with jit_compile=True, but XLA cannot call an MPI library; "
                "compile it with jit_compile=False"
            )
        if not model.built:
            raise UsageError("the model has no variables yet; build it before fit, by build() or one call")


class AverageMetrics(keras.callbacks.Callback):  # type: ignore[misc]
    """At the end of an epoch every rank's logs hold the means over ranks, for the callbacks after this one."""

    def __init__(self, ring: Ring) -> None:
        super().__init__()
        self._ring = ring

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002
        """Average the logs in place; collective. Raises UsageError if ranks have different metrics."""
        if not logs:
            return
        names = sorted(logs)
        said = ", ".join(names)
        _check_equal(
            self._ring,
            said,
            f"ranks have different metrics, this one {said}; compile and validate all alike",
        )
        values = np.array([float(logs[name]) for name in names])
        self._ring.allreduce(values, "average")
        logs.update(zip(names, values.tolist(), strict=True))


def broadcast_variables(ring: Ring, variables: Sequence[Any]) -> None:
    """Give all ranks the values of rank 0, but for states of random generators; collective.

    Raises UsageError if ranks have different variables.
    """
    variables = [variable for variable in variables if "seed_generator_state" not in variable.path]
    arrays = [np.asarray(variable) for variable in variables]
    _check_equal(
        ring,
        ", ".join(f"{array.dtype}{list(array.shape)}" for array in arrays),
        f"ranks built different models: this one has {len(arrays)} variables with "
        f"{sum(array.size for array in arrays)} numbers; build the same model and optimizer on all ranks",
    )
    for variable, array in zip(variables, arrays, strict=True):
        # As words of 4 bytes: a ring has no operations on booleans and bytes.
        words = np.zeros(-(-array.nbytes // 4), np.int32)
        part = words.view(np.uint8)[: array.nbytes]
        part[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        ring.broadcast(words)
        if ring.rank:
            variable.assign(part.view(array.dtype).reshape(array.shape))


def _check_equal(ring: Ring, text: str, problem: str) -> None:
    """Returns if all ranks have the same text; collective. Raises UsageError."""
    digest = zlib.crc32(text.encode())
    extremes = np.array([digest, -digest], dtype=np.int64)
    ring.allreduce(extremes, "min")
    if extremes[0] != -extremes[1]:
        raise UsageError(problem)
