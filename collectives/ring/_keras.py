"""Keras 3 over a ring: an optimizer that averages gradients first, and a callback for the rest of `model.fit`."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from dlscale.base.errors import UsageError
from dlscale.collectives.backend import Collective
from dlscale.collectives.buffers import all_equal, check_buffers_match
from dlscale.collectives.ring.engine import Ring


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
        # Keras would scale around it, and a rank whose gradients overflow would leave the exchange out.
        raise UsageError(
            "with mixed_float16 Keras scales the loss around the optimizer; give "
            "keras.optimizers.LossScaleOptimizer(optimizer) to ring.keras_optimizer as a whole"
        )
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
        """Average the gradients over ranks, and go on with the means. None stays None; sparse ones come back dense.

        Raises UsageError inside a function that XLA compiles.
        """
        self._dlscale_exchange.refuse_xla()
        means = iter(self._dlscale_exchange.average([gradient for gradient in grads if gradient is not None]))
        all_means = [None if gradient is None else next(means) for gradient in grads]
        return super().apply(all_means, trainable_variables)  # type: ignore[misc]


class SeveralRanks(keras.callbacks.Callback):  # type: ignore[misc]
    """Training begins with rank 0's variables, and each epoch ends with the metrics' means over ranks in the logs.

    The optimizer's slots are among the variables; states of random generators (dropout) are not, which each rank keeps.
    Raises UsageError where training would go wrong on several ranks, and BuffersDifferError after an epoch that left
    ranks with different weights.
    """

    def __init__(self, ring: Ring) -> None:
        super().__init__()
        self._ring = ring

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002
        """Check and broadcast; collective."""
        model, steps = self.model, self.params.get("steps") or 0
        own_step = type(model).train_step is not keras.Model.train_step
        if not (isinstance(model.optimizer, Averaging) or own_step):
            raise UsageError(
                f"every rank would train alone: the model's {type(model.optimizer).__name__} does not average its "
                "gradients; compile with optimizer=ring.keras_optimizer(...), outside of a LossScaleOptimizer"
            )
        if not model.built:
            raise UsageError("the model has no variables yet; build it before fit, by build() or one call")
        self._check_equal(
            steps,
            f"ranks have different numbers of steps per epoch, this one {steps}, and would wait for each other "
            "without end; give all ranks equally many samples, or steps_per_epoch",
        )
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        self._broadcast([*model.variables, *model.optimizer.variables])

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002
        """Check that all ranks still hold the same weights, and average the logs in place; collective."""
        variables = self.model.trainable_variables
        names = [variable.path for variable in variables]
        check_buffers_match(self._ring, [np.asarray(variable) for variable in variables], names=names)
        if logs:
            metrics = sorted(logs)
            self._check_equal(
                metrics,
                f"ranks have different metrics, this one {', '.join(metrics)}; compile and validate all alike",
            )
            values = np.array([float(logs[name]) for name in metrics])
            self._ring.allreduce(values, "average")
            logs.update(zip(metrics, values.tolist(), strict=True))

    def _broadcast(self, variables: Sequence[Any]) -> None:
        variables = [variable for variable in variables if "seed_generator_state" not in variable.path]
        arrays = [np.asarray(variable) for variable in variables]
        self._check_equal(
            [f"{array.dtype}{array.shape}" for array in arrays],
            f"ranks built different models: this one has {len(arrays)} variables with "
            f"{sum(array.size for array in arrays)} numbers; build the same model and optimizer on all ranks",
        )
        for variable, array in zip(variables, arrays, strict=True):
            # As words of 4 bytes: a ring has no operations on booleans and bytes.
            words = np.zeros(-(-array.nbytes // 4), np.int32)
            part = words.view(np.uint8)[: array.nbytes]
            part[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            self._ring.broadcast(words)
            if self._ring.rank:
                variable.assign(part.view(array.dtype).reshape(array.shape))

    def _check_equal(self, value: object, problem: str) -> None:
        """Returns if all ranks have equal values; collective. Raises UsageError."""
        digest = zlib.crc32(str(value).encode())
        if not all_equal(self._ring, np.array([digest], np.int64))[0]:
            raise UsageError(problem)
