"""Gradient exchange by TensorFlow operations of our own: the shared object `_tensorflow_ops`, built from src/.

An operation takes all gradients where TensorFlow left them, packs them into staging memory piece by piece while a
piece is in the cache, and writes the means back to where they came from. With threads, buckets of gradients are sent
off while backpropagation goes on, and a second operation waits for them.
"""

from __future__ import annotations

import ctypes
import importlib.util
import weakref
from collections.abc import Sequence
from functools import cache
from typing import Any

import tensorflow as tf

from dlscale.collectives.backend import Collective
from dlscale.collectives.fronts._tensorflow import Setting
from dlscale.collectives.fronts.c_table import NATIVE_DTYPES, CallbackTable
from dlscale.models.errors import UsageError

# Small enough to stay in the cache from copy-in to copy-out, large enough for a collective to be near its best.
STAGING_BYTES = 4 << 20

# DistributedDataParallel's sizes: a small first bucket starts the exchange early.
FIRST_BUCKET_BYTES = 1 << 20
BUCKET_BYTES = 25 << 20

_NEVER = 1 << 62


class NativeExchange:
    """Averages gradients over `collectives`, one per team, by threads or in line (`Exchange`).

    Collective: all ranks make it, and build graphs with it, alike. An error of a collective raises
    tf.errors.InternalError with its text, and stays in `failure` as it was where it came from Python.
    """

    def __init__(self, collectives: Sequence[Collective], *, threads: bool) -> None:
        self._operations, library = _load()
        self._collectives, self._threads = tuple(collectives), threads
        self._num_bytes = 0
        # All of these must stay in place as long as the exchange is open.
        self._tables = [None if hasattr(c, "c_table") else CallbackTable(c) for c in collectives]
        self._dtypes = CallbackTable.dtypes if any(self._tables) else NATIVE_DTYPES
        self._stagings = [c.empty(STAGING_BYTES // 4) for c in collectives]
        addresses = [
            table.address if table else c.c_table()  # type: ignore[attr-defined]
            for table, c in zip(self._tables, collectives, strict=True)
        ]
        kind = ctypes.c_void_p * len(collectives)
        self._handle = library.dlscale_open(
            kind(*addresses),
            kind(*(staging.ctypes.data for staging in self._stagings)),
            len(collectives),
            STAGING_BYTES,
            _NEVER,
            int(threads),
        )
        self._synchronize = library.dlscale_synchronize
        # Also at the end of the interpreter, before MPI is finalised: no thread may be inside MPI then.
        self._finalizer = weakref.finalize(self, library.dlscale_close, self._handle)

    @property
    def failure(self) -> BaseException | None:
        """What went wrong in a collective written in Python; TensorFlow carries only its text."""
        return next((table.failure for table in self._tables if table and table.failure), None)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def average(self, gradients: Sequence[Any]) -> list[Any]:
        """The means over ranks, in order; sparse gradients come back dense."""
        dense = self._checked(gradients)
        if not dense or self._collectives[0].size == 1:
            return dense
        if not self._threads:
            return list(self._operations.dlscale_average(dense, handle=self._handle))
        sent = self._send(dense, keep=False)
        return self._in_order(dense, self._operations.dlscale_wait(sent, handle=self._handle))

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def send(self, gradients: Sequence[Any]) -> None:
        """Begin to average; `collect` fetches the means, in this step's graph or in that of a later one."""
        self._send(self._checked(gradients), keep=True)

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
        self._synchronize(self._handle)

    def settings(self) -> dict[str, Setting]:
        """Bytes per step, who exchanges them when, copies of all gradients, and the collective's own decisions."""
        return {
            "bucket_bytes": str(self._num_bytes),
            "overlap": self._threads,
            "teams": len(self._collectives) if self._threads else 0,
            "exchange": "operation",
            "staging_copies": 0 if self._collectives[0].size == 1 else 2,  # into the staging and out of it
            "staging_bytes": STAGING_BYTES,
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
        self._num_bytes = sum(_num_bytes(gradient) for gradient in dense)
        return dense

    def _send(self, gradients: Sequence[Any], *, keep: bool) -> list[Any]:
        buckets = self._buckets(gradients)
        sent: list[Any] = []
        for number, bucket in enumerate(buckets):
            sent += self._operations.dlscale_send(
                [gradients[index] for index in bucket],
                handle=self._handle,
                bucket=number,
                num_buckets=len(buckets),
                keep=int(keep),
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


def is_built() -> bool:
    """Whether this installation has the operations; without a C++ compiler it has not."""
    return importlib.util.find_spec("dlscale.collectives.fronts._tensorflow_ops") is not None


@cache
def _load() -> tuple[Any, ctypes.CDLL]:
    """The operations as TensorFlow's Python functions, and the library's C functions. Raises UsageError."""
    found = importlib.util.find_spec("dlscale.collectives.fronts._tensorflow_ops")
    if found is None or found.origin is None:
        raise UsageError(
            "TensorFlow's exchange of gradients was not built: the installation found no C++ compiler; "
            "reinstall dlscale where there is one: pip install --no-deps --force-reinstall ."
        )
    operations = tf.load_op_library(found.origin)
    library = ctypes.CDLL(found.origin)
    library.dlscale_load_error.restype = ctypes.c_char_p
    if error := library.dlscale_load_error().decode():
        raise UsageError(f"TensorFlow {tf.__version__} cannot load dlscale's operations: {error}")
    library.dlscale_open.restype = ctypes.c_int64
    library.dlscale_open.argtypes = [
        ctypes.POINTER(ctypes.c_void_p),
        ctypes.POINTER(ctypes.c_void_p),
        ctypes.c_size_t,
        ctypes.c_size_t,
        ctypes.c_size_t,
        ctypes.c_int,
    ]
    library.dlscale_synchronize.argtypes = [ctypes.c_int64]
    library.dlscale_close.argtypes = [ctypes.c_int64]
    return operations, library


def _num_bytes(tensor: Any) -> int:
    """Of a tensor or variable; 0 where TensorFlow does not know its shape yet."""
    return int(tensor.shape.num_elements() or 0) * int(tensor.dtype.size)
