"""Networks of TensorFlow of which each rank of a replica computes some rows: what it asks its neighbours for.

A network whose `exchanges` are set computes a rank's rows of every map (`frameworks/_tensorflow_layers`). Every
function here has the adjoint of the sum of all ranks' losses (`models/parallel`). Maps are (N, H, W, C), of which H are
a rank's own rows; N may be unknown while a graph is traced.

An exchange is a call of NumPy inside the graph. It waits for the one that was traced before it, in the backward pass
too, so that their order is the same on all ranks, whose programs are the same. They do not wait for exchanges of
gradients, nor these for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.models.parallel import Part

HOST = "/device:CPU:0"  # where arrays are exchanged
Array = NDArray[Any]


def split_rows(networks: Iterable[Any], part: Part) -> None:
    """Let networks compute this rank's rows of every map. Raises UsageError."""
    exchanges = Exchanges(part)
    for network in networks:
        network.exchanges = exchanges


class Exchanges:
    """What the rank with that part of every sample asks its neighbours for."""

    def __init__(self, part: Part) -> None:
        rows, neighbours = part.rows, part.neighbours
        if not tf.executing_eagerly():
            raise UsageError(
                f"split {rows.split} was asked for in a graph of TensorFlow 1, which does not order exchanges of rows; "
                "choose another backend, or leave split out"
            )
        if neighbours.takes_tensors:
            raise UsageError(
                f"split {rows.split} was asked for in TensorFlow over a carrier of torch's tensors on GPUs; choose "
                "another halo"
            )
        self.rows, self._neighbours = rows, neighbours
        self._last: Any = None  # the exchange that was traced last

    def halo(
        self, values: Any, *, above: int, below: int, sides: tuple[int, int] = (0, 0), fill: float = 0.0
    ) -> Any:
        """(N, above + H + below, W', C): own rows between the neighbours'; `fill` beyond the sample and W.

        Raises UsageError if a rank has fewer rows than its neighbour needs.
        """
        _, height, width, _ = values.shape
        left, padding = sides[0], ((0, 0), (above, below), sides, (0, 0))
        self.rows.check_halo(height, max(above, below))
        if not (above or below):
            return tf.pad(values, padding, constant_values=fill) if any(sides) else values

        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def surrounded(values: Any) -> Any:
            edges = values[:, :below], values[:, height - above :]
            from_up, from_down = self._exchange(edges, (above, below), fill)
            padded = tf.pad(values, padding, constant_values=fill)
            padded = _written(padded, from_up, row=0, column=left)
            padded = _written(padded, from_down, row=above + height, column=left)

            def gradient(upstream: Any) -> Any:
                inner = upstream[:, :, left : left + width] if any(sides) else upstream
                edges = inner[:, :above], inner[:, above + height :]
                from_up, from_down = self._exchange(edges, (below, above))
                own = inner[:, above : above + height]
                own = _written(own, from_up, row=0, added=True)
                return _written(own, from_down, row=height - above, added=True)

            return padded, gradient

        return surrounded(values)

    def summed(self, values: Any) -> Any:
        """The sum over the replica's ranks, in the type of `values`; it is made in float32."""

        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def total(values: Any) -> Any:
            return self._sum(values), self._sum

        return total(values)

    def gathered(self, values: Any) -> Any:
        """(N, H', W, C): whole maps of own rows, on all ranks."""
        height = self.rows.height(values.shape[1])
        own = self.rows.own(height)
        return self.summed(tf.pad(values, ((0, 0), (own.start, height - own.stop), (0, 0), (0, 0))))

    def own(self, values: Any) -> Any:
        """(N, H, W, C): own rows of whole maps that all ranks have."""
        return values[:, self.rows.own(values.shape[1])]

    def mean(self, values: Any) -> Any:
        """(N, C): means of whole maps over height and width."""
        num_pixels = self.rows.height(values.shape[1]) * values.shape[2]
        return self.summed(tf.reduce_sum(values, axis=(1, 2)) / num_pixels)

    def normalised(self, values: Any, scale: Any, shift: Any, *, epsilon: float) -> tuple[Any, Any, Any]:
        """(values of batch norm over all ranks' rows, their mean, their unbiased variance).

        A rank contributes n m and n (v + m^2) of its n elements' mean m and variance v about it. In float64 no digits
        of float32 are lost where a mean is far from 0.
        """
        own_count = tf.cast(tf.size(values) // values.shape[3], tf.float64)

        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def normalise(values: Any, scale: Any, shift: Any) -> Any:
            seen = batch_norm(values, tf.ones_like(scale), tf.zeros_like(shift), epsilon=epsilon)
            own_mean, own_variance = (tf.cast(number, tf.float64) for number in seen[1:3])
            own_square = own_variance * ((own_count - 1) / own_count) + own_mean**2
            sums = self._sum(tf.concat([own_count * own_mean, own_count * own_square, [own_count]], 0))
            count = sums[-1]
            mean, square = tf.unstack(tf.reshape(sums[:-1], (2, -1)) / count)
            wide = tf.maximum(square - mean**2, 0)
            unbiased = tf.cast(wide * (count / (count - 1)), scale.dtype)
            mean, variance = tf.cast(mean, scale.dtype), tf.cast(wide, scale.dtype)
            normalised = batch_norm(values, scale, shift, mean, variance, epsilon=epsilon)[0]

            def gradient(upstream: Any, *_: Any) -> Any:
                direct, of_scale, of_shift = _batch_norm_gradients(
                    upstream, values, scale, mean, variance, epsilon=epsilon
                )
                own = tf.cast(tf.concat([of_scale, of_shift], 0), tf.float64)
                sums = tf.unstack(tf.reshape(tf.cast(self._sum(own), scale.dtype), (2, -1)))
                # Through mean and variance comes -scale / deviation / count (sum of upstream + normalised x sum of
                # upstream x normalised), which is a batch norm with another scale and shift.
                factor = -scale * tf.math.rsqrt(variance + epsilon) / tf.cast(count, scale.dtype)
                indirect = batch_norm(
                    values, factor * sums[0], factor * sums[1], mean, variance, epsilon=epsilon
                )[0]
                return direct + indirect, of_scale, of_shift

            return (normalised, mean, unbiased), gradient

        normalised, mean, variance = normalise(values, scale, shift)
        return normalised, mean, variance

    def _exchange(self, edges: tuple[Any, Any], counts: tuple[int, int], fill: float = 0.0) -> list[Any]:
        """The rows (N, count, W, C) from above and below, for the `edges` that go there; `fill` beyond the sample."""

        def move(*rows: Array) -> list[Array]:
            num, _, width, channels = rows[0].shape
            received = [np.full((num, count, width, channels), fill, rows[0].dtype) for count in counts]
            self._neighbours.exchange(*map(_moved, (*rows, *received)))
            return received

        shape = edges[0].shape
        return self._called(move, edges, [(shape[0], count, *shape[2:]) for count in counts])

    def _sum(self, values: Any) -> Any:
        """The sum over the replica's ranks, in the type of `values`; made in float32 or float64."""
        kind = values.dtype

        def add(array: Array) -> Array:
            total = array.copy()
            self._neighbours.sum(total)
            return total

        wide = values if kind == tf.float64 else tf.cast(values, tf.float32)
        return tf.cast(self._called(add, [wide], [values.shape])[0], kind)

    def _called(
        self, function: Callable[..., Any], tensors: Sequence[Any], shapes: Sequence[Sequence[int | None]]
    ) -> list[Any]:
        """The arrays of those shapes, of the tensors' type, that a function of NumPy makes of tensors; in order."""
        graph = tf.compat.v1.get_default_graph()
        before = [self._last] if self._last is not None and self._last.graph is graph else []
        with tf.device(HOST), tf.control_dependencies(before):
            made: list[Any] = tf.numpy_function(function, tensors, [tensors[0].dtype] * len(shapes))
        self._last = made[0].op
        # Else a `tf.function` would order it among exchanges of gradients too.
        if manager := getattr(graph, "experimental_acd_manager", None):
            manager.run_independently(self._last)
        for tensor, shape in zip(made, shapes, strict=True):
            tensor.set_shape(shape)
        return made


def _moved(array: Array) -> Array:
    """An array as neighbours move it: NumPy itself has no bfloat16."""
    return array.view(np.int16) if array.dtype.name == "bfloat16" else array


def _written(maps: Any, rows: Any, *, row: int, column: int = 0, added: bool = False) -> Any:
    """Maps with `rows` from that row and column on, or with them added there. In place where TensorFlow can."""
    if not rows.shape[1]:
        return maps
    last_row, last_column = row + rows.shape[1], column + rows.shape[2]
    if added:
        rows += maps[:, row:last_row, column:last_column]
    whole_axes = 0b1001  # N and C
    return tf.raw_ops.TensorStridedSliceUpdate(
        input=maps,
        begin=[0, row, column, 0],
        end=[0, last_row, last_column, 0],
        strides=[1, 1, 1, 1],
        value=rows,
        begin_mask=whole_axes,
        end_mask=whole_axes,
    )


def batch_norm(
    values: Any, scale: Any, shift: Any, mean: Any = None, variance: Any = None, *, epsilon: float
) -> tuple[Any, Any, Any]:
    """(batch norm, mean, unbiased variance) by these statistics; without them by the values' own.

    TensorFlow's fused operation, which knows no float64: that is for references.
    """
    is_training = mean is None
    if values.dtype == tf.float64:
        count = tf.cast(tf.size(values) // values.shape[3], tf.float64)
        mean, variance = tf.nn.moments(values, (0, 1, 2)) if is_training else (mean, variance)
        normalised = tf.nn.batch_normalization(values, mean, variance, shift, scale, epsilon)
        return normalised, mean, variance * (count / (count - 1))
    normalised, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
        x=values,
        scale=scale,
        offset=shift,
        mean=[] if is_training else mean,
        variance=[] if is_training else variance,
        epsilon=epsilon,
        is_training=is_training,
    )
    return normalised, mean, variance


def _batch_norm_gradients(
    upstream: Any, values: Any, scale: Any, mean: Any, variance: Any, *, epsilon: float
) -> tuple[Any, Any, Any]:
    """Those of values, scale and shift, for statistics that do not depend on the values."""
    if values.dtype == tf.float64:
        inverse = tf.math.rsqrt(variance + epsilon)
        of_scale = tf.reduce_sum(upstream * (values - mean) * inverse, (0, 1, 2))
        return upstream * (scale * inverse), of_scale, tf.reduce_sum(upstream, (0, 1, 2))
    of_values, of_scale, of_shift, *_ = tf.raw_ops.FusedBatchNormGradV3(
        y_backprop=upstream,
        x=values,
        scale=scale,
        reserve_space_1=mean,
        reserve_space_2=variance,
        reserve_space_3=[],
        epsilon=epsilon,
        is_training=False,
    )
    return of_values, of_scale, of_shift
