"""Gradient exchange by TensorFlow operations of our own: the shared object `_tensorflow_ops`, built from src/.

An operation takes all gradients where TensorFlow left them, packs them into staging memory piece by piece while a
piece is in the cache, and writes the means back to where they came from. With threads, buckets of gradients are sent
off while backpropagation goes on, and a second operation waits for them.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from dlscale.collectives.backend import BUCKET_SIZES, Collective
from dlscale.collectives.fronts._tensorflow import Setting
from dlscale.collectives.fronts._tensorflow_library import Library, library
from dlscale.collectives.fronts.c_table import NATIVE_DTYPES, CallbackTable
from dlscale.models.errors import UsageError

# Small enough to stay in the caches from copy-in to copy-out, large enough for a collective to be near its best
# (docs/decisions/0009): inside a node, between nodes, and where it is not said which.
NODE_STAGING_BYTES = 512 << 10
NETWORK_STAGING_BYTES = 25 << 20
STAGING_BYTES = 4 << 20

# DistributedDataParallel's sizes: a small first bucket starts the exchange early.
FIRST_BUCKET_BYTES = 1 << 20
BUCKET_BYTES = 25 << 20


class NativeExchange:
    """Averages gradients over `collectives`, one per team, by threads or in line (`Exchange`).

    Collective: all ranks make it, and build graphs with it, alike. An error of a collective raises
    tf.errors.InternalError, whose text holds its own; what is in `failure` says no more than that.
    """

    def __init__(self, collectives: Sequence[Collective], *, threads: bool) -> None:
        self._library = library()
        self._operations = self._library.operations
        self._collectives, self._threads = tuple(collectives), threads
        self._sizes: list[int] = []
        self._num_copies = 0
        self._staging_bytes = _staging_bytes(collectives[0])
        # All of these must stay in place as long as the exchange is open.
        self._tables = [None if hasattr(c, "c_interface") else CallbackTable(c) for c in collectives]
        self._stagings = [c.empty(self._staging_bytes // 4) for c in collectives]
        self._dtypes = CallbackTable.dtypes if any(self._tables) else NATIVE_DTYPES
        self._handle = self._library.open(
            [
                table.address if table else c.c_interface  # type: ignore[attr-defined]
                for table, c in zip(self._tables, collectives, strict=True)
            ],
            [staging.ctypes.data for staging in self._stagings],
            staging_bytes=self._staging_bytes,
            threads=threads,
        )
        # Also at the end of the interpreter, before MPI is finalised: no thread may be inside MPI then.
        self._finalizer = weakref.finalize(self, _close_in, os.getpid(), self._library, self._handle)

    @property
    def failure(self) -> BaseException | None:
        """What went wrong in a collective, as it was raised there, or as a RuntimeError with its text."""
        raised = next((table.failure for table in self._tables if table and table.failure), None)
        text = self._library.error(self._handle)
        return raised or (RuntimeError(text) if text else None)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def average(self, gradients: Sequence[Any]) -> list[Any]:
        """The means over ranks, in order; sparse gradients come back dense."""
        dense = self._checked(gradients)
        if not dense or self._collectives[0].size == 1:
            return dense
        if not self._threads:
            self._num_copies = 2  # into the staging and out of it
            return list(self._operations.dlscale_average(dense, handle=self._handle))
        sent = self._send(dense)
        return self._in_order(dense, self._operations.dlscale_wait(sent, handle=self._handle))

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def send(self, gradients: Sequence[Any]) -> None:
        """Begin to average; `collect` fetches the means, in this step's graph or in that of a later one."""
        self._send(self._checked(gradients))

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def collect(self, like: Sequence[Any]) -> list[Any]:
        """The means of what was sent; `like` has its order, shapes and dtypes."""
        order = [index for bucket in self._buckets(like) for index in bucket]
        kinds = [like[index].dtype for index in order]
        found = self._in_order(like, self._operations.dlscale_collect(T=kinds, handle=self._handle))
        for mean, tensor in zip(found, like, strict=True):
            mean.set_shape(tensor.shape)
        return found

    def synchronize(self) -> None:
        """Return when nothing is under way; what went wrong is raised by the step that waits for it."""
        self._library.synchronize(self._handle)

    def settings(self) -> dict[str, Setting]:
        """Bytes per step, who exchanges them when, copies of all gradients, and the collective's own decisions."""
        return {
            BUCKET_SIZES: ",".join(map(str, self._sizes)),
            "overlap": self._threads,
            "teams": len(self._collectives) if self._threads else 0,
            "exchange": "operation",
            "staging_copies": self._num_copies,
            "staging_bytes": self._staging_bytes,
            **self._collectives[0].settings(),
        }

    def close(self) -> None:
        """End the threads; the collectives stay open. A second close does nothing."""
        self._finalizer()

    def _checked(self, gradients: Sequence[Any]) -> list[Any]:
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        for index, gradient in enumerate(dense):
            if gradient.dtype.name not in self._dtypes:
                raise UsageError(
                    f"gradient {index} is {gradient.dtype.name}, which this collective cannot average; "
                    f"it can {', '.join(self._dtypes)}"
                )
        self._sizes = [sum(_num_bytes(dense[index]) for index in bucket) for bucket in self._buckets(dense)]
        return dense

    def _send(self, gradients: Sequence[Any]) -> list[Any]:
        self._num_copies = 2
        buckets = self._buckets(gradients)
        sent: list[Any] = []
        for number, bucket in enumerate(buckets):
            sent += self._operations.dlscale_send(
                [gradients[index] for index in bucket],
                handle=self._handle,
                bucket=number,
                num_buckets=len(buckets),
            )
        return sent

    def _buckets(self, tensors: Sequence[Any]) -> list[list[int]]:
        """Indices in backward order, cut where a bucket reaches its size; without threads a single bucket."""
        buckets: list[list[int]] = []
        filled = 0
        for index in reversed(range(len(tensors))):
            limit = FIRST_BUCKET_BYTES if len(buckets) <= 1 else BUCKET_BYTES
            if not buckets or (self._threads and filled >= limit):
                buckets.append([])
                filled = 0
            buckets[-1].append(index)
            filled += _num_bytes(tensors[index])
        return buckets

    def _in_order(self, tensors: Sequence[Any], by_bucket: Sequence[Any]) -> list[Any]:
        """What came back bucket by bucket, in the order of `tensors`."""
        order = [index for bucket in self._buckets(tensors) for index in bucket]
        return [found for _, found in sorted(zip(order, by_bucket, strict=True), key=lambda pair: pair[0])]


def _staging_bytes(collective: Collective) -> int:
    num_nodes = collective.settings().get("num_nodes")
    if num_nodes is None:
        return STAGING_BYTES
    return NODE_STAGING_BYTES if num_nodes == 1 else NETWORK_STAGING_BYTES


def _num_bytes(tensor: Any) -> int:
    """Of a tensor or variable; 0 where TensorFlow does not know its shape yet."""
    return int(tensor.shape.num_elements() or 0) * int(tensor.dtype.size)


def _close_in(process: int, library: Library, handle: int) -> None:
    """Close an exchange, unless this is a forked child: the threads to be joined are its parent's."""
    if os.getpid() == process:
        library.close(handle)
