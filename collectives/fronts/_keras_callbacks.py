"""What else `model.fit` needs on several ranks: equal models at the start, one metric for all, and a look at both."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import keras  # type: ignore[import-untyped]
import numpy as np
from numpy.typing import NDArray

from dlscale.collectives.fronts._keras import WRAP_THE_WHOLE, is_averaging
from dlscale.collectives.matching import check_buffers_match
from dlscale.collectives.ring.engine import Ring
from dlscale.models.errors import UsageError


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
        self._check()
        if not self.model.optimizer.built:
            self.model.optimizer.build(self.model.trainable_variables)
        broadcast_variables(self._ring, [*self.model.variables, *self.model.optimizer.variables])

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002
        """Make sure that all ranks still hold the same weights; collective."""
        variables = self.model.trainable_variables
        names = [variable.path for variable in variables]
        check_buffers_match(self._ring, [np.asarray(variable) for variable in variables], names=names)

    def _check(self) -> None:
        model = self.model
        own_step = type(model).train_step is not keras.Model.train_step
        if not (is_averaging(model.optimizer) or own_step):
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
        steps = self.params.get("steps") or 0
        extremes = np.array([steps, -steps], dtype=np.int64)
        self._ring.allreduce(extremes, "min")
        if extremes[0] != -extremes[1]:
            raise UsageError(
                f"ranks have from {extremes[0]} to {-extremes[1]} steps per epoch, this one {steps}, and would wait "
                "for each other without end; give all ranks equally many samples, or steps_per_epoch"
            )


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
        digest = zlib.crc32(",".join(names).encode())
        extremes = np.array([digest, -digest], dtype=np.int64)
        self._ring.allreduce(extremes, "min")
        if extremes[0] != -extremes[1]:
            raise UsageError(
                f"ranks have different metrics, this one {', '.join(names)}; compile and validate all alike"
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
    _check_layout(ring, arrays)
    # As words of 4 bytes: a ring has no operations on booleans and bytes.
    num_bytes = sum(array.nbytes for array in arrays)
    flat = np.zeros(-(-num_bytes // 4) * 4, dtype=np.uint8)
    ends = np.cumsum([array.nbytes for array in arrays])[:-1]
    parts = np.split(flat[:num_bytes], ends)
    for part, array in zip(parts, arrays, strict=True):
        part[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    ring.broadcast(flat.view(np.int32))
    if ring.rank == 0:
        return
    for variable, part, array in zip(variables, parts, arrays, strict=True):
        variable.assign(part.view(array.dtype).reshape(array.shape))


def _check_layout(ring: Ring, arrays: Sequence[NDArray[Any]]) -> None:
    layout = ", ".join(f"{array.dtype}{list(array.shape)}" for array in arrays)
    digest = zlib.crc32(layout.encode())
    extremes = np.array([digest, -digest], dtype=np.int64)
    ring.allreduce(extremes, "min")
    if extremes[0] != -extremes[1]:
        raise UsageError(
            f"ranks built different models: this one has {len(arrays)} variables with "
            f"{sum(array.size for array in arrays)} numbers; build the same model and optimizer on all ranks"
        )
