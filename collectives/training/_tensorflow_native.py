"""Gradient exchange by TensorFlow operations of our own: the shared object `_tensorflow_ops`, built from
collectives/ring/src/tensorflow.

An operation takes all gradients where TensorFlow left them, packs them into staging memory piece by piece while a
piece is in the cache, and writes the means back in the same way. Native code calls any `Collective` through a table
of C functions (collectives/ring/src/c_interface.hpp). The shared object also has C functions for Python.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import weakref
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf

from dlscale.base.errors import UsageError
from dlscale.collectives.backend import BUCKET_SIZES, Collective
from dlscale.collectives.training._tensorflow import Setting
from dlscale.collectives.training.communication import AUTOMATIC, has_spare_core, threads_may_communicate

_C_DTYPES: dict[int, np.dtype[Any]] = {0: np.dtype(np.float32), 1: np.dtype(np.float64)}  # by DlscaleType
NATIVE_DTYPES = ("float32", "float64", "bfloat16", "float16")  # what a table in C averages
_AVERAGE = 1  # by DlscaleOp

_Allreduce = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int
)
_LastError = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


class _Collective(ctypes.Structure):
    """DlscaleCollective."""

    _fields_ = (
        ("context", ctypes.c_void_p),
        ("allreduce", _Allreduce),
        ("last_error", _LastError),
    )


class CallbackTable:
    """The table of a collective that is written in Python: native code calls back, and takes the interpreter's lock.

    Valid as long as this object lives.
    """

    dtypes = tuple(dtype.name for dtype in _C_DTYPES.values())

    def __init__(self, collective: Collective) -> None:
        self.failure: BaseException | None = None
        self._text = ctypes.create_string_buffer(1)

        def allreduce(_: int, data: int, count: int, kind: int, op: int) -> int:
            try:
                if op != _AVERAGE:
                    raise ValueError(f"operation {op} is not the average")
                dtype = _C_DTYPES[kind]
                memory: Any = (ctypes.c_char * (count * dtype.itemsize)).from_address(data)
                collective.allreduce(np.frombuffer(memory, dtype), "average")
            except BaseException as error:  # an exception cannot cross C
                self.failure = error
                text = str(error) or type(error).__name__
                self._text = ctypes.create_string_buffer(text.splitlines()[0].encode())
                return 1
            return 0

        self._functions = _Allreduce(allreduce), _LastError(lambda _: ctypes.addressof(self._text))
        self._table = _Collective(None, *self._functions)
        self.address = ctypes.addressof(self._table)


# Where gradients are exchanged; TensorFlow itself copies those of a GPU there, and the means back.
HOST = "/device:CPU:0"

_LIBRARY_MODULE = (
    "dlscale.collectives.training._tensorflow_ops"  # found as a module, but only TensorFlow can load it
)
_NEVER_DIRECT = 1 << 62


def is_built() -> bool:
    """Whether this installation has the operations; without a C++ compiler it has not."""
    return importlib.util.find_spec(_LIBRARY_MODULE) is not None


class Library:
    """The operations as TensorFlow's Python functions, and exchanges by number; see tensorflow_ops.cpp."""

    def __init__(self) -> None:
        spec = importlib.util.find_spec(_LIBRARY_MODULE)
        if spec is None or spec.origin is None:
            raise UsageError(
                "TensorFlow's exchange of gradients was not built: the installation found no C++ compiler; "
                "reinstall dlscale where there is one: pip install --no-deps --force-reinstall ."
            )
        self.operations: Any = tf.load_op_library(spec.origin)
        self._functions = ctypes.CDLL(spec.origin)
        self._functions.dlscale_load_error.restype = ctypes.c_char_p
        if error := self._functions.dlscale_load_error().decode():
            raise UsageError(f"TensorFlow {tf.__version__} cannot load dlscale's operations: {error}")
        addresses, size = ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t
        self._functions.dlscale_open.restype = ctypes.c_int64
        self._functions.dlscale_open.argtypes = [addresses, addresses, size, size, size, ctypes.c_int]
        self._functions.dlscale_synchronize.argtypes = [ctypes.c_int64]
        self._functions.dlscale_error.restype = ctypes.c_char_p
        self._functions.dlscale_error.argtypes = [ctypes.c_int64]
        self._functions.dlscale_close.argtypes = [ctypes.c_int64]

    def open(
        self,
        tables: Sequence[int],
        stagings: Sequence[int],
        *,
        staging_bytes: int,
        threads: bool,
    ) -> int:
        """The number of a new exchange, for the operations' attribute `handle`.

        Both lists hold addresses, one per team, which must stay valid until it is closed.
        """
        kind = ctypes.c_void_p * len(tables)
        handle: int = self._functions.dlscale_open(
            kind(*tables),
            kind(*stagings),
            len(tables),
            staging_bytes,
            _NEVER_DIRECT,
            int(threads),
        )
        return handle

    def synchronize(self, handle: int) -> None:
        """Return when nothing is under way, or it has failed."""
        self._functions.dlscale_synchronize(handle)

    def error(self, handle: int) -> str:
        """The error of a collective; empty if there was none."""
        text: bytes = self._functions.dlscale_error(handle)
        return text.decode()

    def close(self, handle: int) -> None:
        """End its threads when they have exchanged what was sent; a second close does nothing."""
        self._functions.dlscale_close(handle)


@cache
def library() -> Library:
    """The one of this process. Raises UsageError if it was not built, or not for this TensorFlow."""
    return Library()


# Small enough to stay in the caches from copy-in to copy-out, large enough for a collective to be near its best
# (docs/decisions/0009): inside a node, between nodes, and where it is not said which.
NODE_STAGING_BYTES = 512 << 10
NETWORK_STAGING_BYTES = 25 << 20
STAGING_BYTES = 4 << 20

# DistributedDataParallel's sizes: a small first bucket starts the exchange early.
FIRST_BUCKET_BYTES = 1 << 20
BUCKET_BYTES = 25 << 20


class NativeExchange:
    """Averages gradients over `collectives`, one per team, by threads or not overlapped (`Exchange`).

    Collective: all ranks make it, and build graphs with it, alike. An error of a collective raises
    tf.errors.InternalError, whose text holds its own; what is in `failure` says no more than that.
    """

    def __init__(
        self,
        collectives: Sequence[Collective],
        *,
        threads: bool,
        computed_on_gpu: bool = False,
    ) -> None:
        self._from_gpu = computed_on_gpu
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
        """The error of a collective, as it was raised there, or as a RuntimeError with its text."""
        raised = next((table.failure for table in self._tables if table and table.failure), None)
        text = self._library.error(self._handle)
        return raised or (RuntimeError(text) if text else None)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def average(self, gradients: Sequence[Any]) -> list[Any]:
        """The means over ranks, in order; sparse gradients come back dense."""
        dense = self._checked(gradients)
        if not dense or self._collectives[0].size == 1:
            return dense
        with tf.device(HOST):
            if not self._threads:
                self._num_copies = 2  # into the staging and out of it
                return list(self._operations.dlscale_average(dense, handle=self._handle))
            sent = self._send(dense)
            return self._in_order(dense, self._operations.dlscale_wait(sent, handle=self._handle))

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def send(self, gradients: Sequence[Any]) -> None:
        """Begin to average; `collect` fetches the means, in this step's graph or in that of a later one."""
        with tf.device(HOST):
            self._send(self._checked(gradients))

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def collect(self, like: Sequence[Any]) -> list[Any]:
        """The means of what was sent; `like` has its order, shapes and dtypes."""
        order = [index for bucket in self._buckets(like) for index in bucket]
        kinds = [like[index].dtype for index in order]
        with tf.device(HOST):
            means = self._in_order(like, self._operations.dlscale_collect(T=kinds, handle=self._handle))
        for mean, tensor in zip(means, like, strict=True):
            mean.set_shape(tensor.shape)
        return means

    def synchronize(self) -> None:
        """Return when nothing is under way; errors are raised by the step that waits."""
        self._library.synchronize(self._handle)

    def settings(self) -> dict[str, Setting]:
        """Bytes per step, who exchanges them when, copies of all gradients, and the collective's own decisions."""
        return {
            BUCKET_SIZES: ",".join(map(str, self._sizes)),
            "overlap": self._threads,
            "teams": len(self._collectives) if self._threads else 0,
            "exchange": "operation",
            **staging_settings(self._num_copies, computed_on_gpu=self._from_gpu),
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
        """The tensors of the buckets, in the order of `tensors`."""
        order = [index for bucket in self._buckets(tensors) for index in bucket]
        return [tensor for _, tensor in sorted(zip(order, by_bucket, strict=True), key=lambda pair: pair[0])]


def staging_settings(num_copies: int, *, computed_on_gpu: bool) -> dict[str, Setting]:
    """For the record: copies of every gradient, which from a GPU are one there and one back more."""
    if not computed_on_gpu:
        return {"staging_copies": num_copies}
    return {"staging_copies": num_copies + 2, "staged_through": "host memory"}


def _staging_bytes(collective: Collective) -> int:
    num_nodes = collective.settings().get("num_nodes")
    if num_nodes is None:
        return STAGING_BYTES
    return NODE_STAGING_BYTES if num_nodes == 1 else NETWORK_STAGING_BYTES


def _num_bytes(tensor: Any) -> int:
    """Size of a tensor or variable; 0 where TensorFlow does not know its shape yet."""
    return int(tensor.shape.num_elements() or 0) * int(tensor.dtype.size)


def _close_in(process: int, library: Library, handle: int) -> None:
    """Close an exchange, unless this is a forked child: the threads to be joined are its parent's."""
    if os.getpid() == process:
        library.close(handle)


def with_threads(collective: Collective, teams: int, *, computes_on_gpu: bool = False) -> bool:
    """Whether threads communicate, for `Training.teams`; collective. Beside a GPU one thread hands out its work.

    One rank without a core to spare is enough to exchange without overlap on all: buckets would be others than without
    threads. Raises UsageError if there must be threads and MPI does not allow any.
    """
    if teams == AUTOMATIC:
        # TensorFlow's 0 stands for as many threads as there are CPUs.
        num_threads = tf.config.threading.get_intra_op_parallelism_threads() or len(os.sched_getaffinity(0))
        num_threads = 1 if computes_on_gpu else num_threads
        spare = np.array([has_spare_core(collective, num_threads=num_threads)], dtype=np.int64)
        collective.allreduce(spare, "min")
        return threads_may_communicate() and bool(spare[0])
    if teams and not threads_may_communicate():
        raise UsageError(
            f"teams={teams} was asked for, but this MPI does not grant MPI_THREAD_MULTIPLE; "
            "initialise it so (mpi4py does unless told otherwise), or give teams=0"
        )
    return teams > 0
