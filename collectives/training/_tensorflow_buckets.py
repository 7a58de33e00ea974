"""Gradient exchange in TensorFlow over any `Collective`, by our own operations: the shared object `_tensorflow_ops`,
built from collectives/ring/src/tensorflow.

An operation takes all gradients of a bucket where TensorFlow left them, packs them into staging memory piece by piece
while a piece is in the cache, and writes the means back in the same way. Native code calls any `Collective` through a
table of C functions (collectives/ring/src/c_interface.hpp). The shared object also has C functions for Python.

With a core to spare on every rank, threads exchange buckets while backpropagation goes on (`communication`); without,
all gradients travel in one bucket, after the last of them. Pipelined, a step applies the means of the step before.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import weakref
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.collectives.backend import BUCKET_SIZES, Collective, Setting
from dlscale.collectives.compression import CompressedCollective
from dlscale.collectives.training._tensorflow import NoExchange, TensorFlowTrainer, assign, flat, on_gpu
from dlscale.collectives.training.collective_backend import OPERATIONS_MODULE, check_operations
from dlscale.collectives.training.communication import Training, cut_into_buckets, want_threads
from dlscale.models.workload import Weights

# Where gradients are exchanged; TensorFlow itself copies those of a GPU there, and the means back.
HOST = "/device:CPU:0"

# Small enough to stay in the caches from copy-in to copy-out, large enough for a collective to be near its best
# (docs/decisions/0009): inside a node, between nodes, and where it is not said which.
NODE_STAGING_BYTES = 512 << 10
NETWORK_STAGING_BYTES = 25 << 20
STAGING_BYTES = 4 << 20
_NEVER_DIRECT = 1 << 62  # all gradients pass through the staging

_CALLBACK_DTYPES: dict[int, np.dtype[Any]] = {
    0: np.dtype(np.float32),
    1: np.dtype(np.float64),
}  # by DlscaleType
_Allreduce = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int
)
_LastError = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


class _Table(ctypes.Structure):
    """DlscaleCollective."""

    _fields_ = (("context", ctypes.c_void_p), ("allreduce", _Allreduce), ("last_error", _LastError))


class CallbackTable:
    """The table of a collective that is written in Python: native code calls back, and takes the interpreter's lock.

    Valid as long as this object lives.
    """

    def __init__(self, collective: Collective) -> None:
        self.failure: BaseException | None = None
        self._text = ctypes.create_string_buffer(1)

        def average(_: int, data: int, count: int, kind: int, __: int) -> int:
            try:
                if kind not in _CALLBACK_DTYPES:
                    raise TypeError(
                        "this collective averages float32 and float64; compute gradients in those"
                    )
                dtype = _CALLBACK_DTYPES[kind]
                memory: Any = (ctypes.c_char * (count * dtype.itemsize)).from_address(data)
                collective.allreduce(np.frombuffer(memory, dtype), "average")
            except BaseException as error:  # an exception cannot cross C
                self.failure = error
                text = str(error) or type(error).__name__
                self._text = ctypes.create_string_buffer(text.splitlines()[0].encode())
                return 1
            return 0

        self._functions = _Allreduce(average), _LastError(lambda _: ctypes.addressof(self._text))
        self._table = _Table(None, *self._functions)
        self.address = ctypes.addressof(self._table)


@cache
def _library() -> tuple[Any, Any]:
    """The operations as TensorFlow's Python functions, and the C functions of tensorflow_ops.cpp.

    Raises UsageError if they were not built, or not for this TensorFlow.
    """
    check_operations("tensorflow")
    spec = importlib.util.find_spec(OPERATIONS_MODULE)  # a module that only TensorFlow can load
    origin = spec.origin if spec else None
    operations, functions = tf.load_op_library(origin), ctypes.CDLL(origin)
    functions.dlscale_load_error.restype = ctypes.c_char_p
    if error := functions.dlscale_load_error().decode():
        raise UsageError(f"TensorFlow {tf.__version__} cannot load dlscale's operations: {error}")
    addresses, size = ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t
    functions.dlscale_open.restype = ctypes.c_int64
    functions.dlscale_open.argtypes = [addresses, addresses, size, size, size, ctypes.c_int]
    functions.dlscale_error.restype = ctypes.c_char_p
    for function in (functions.dlscale_synchronize, functions.dlscale_error, functions.dlscale_close):
        function.argtypes = [ctypes.c_int64]
    return operations, functions


class NativeExchange(NoExchange):
    """Averages gradients over `collectives`, one per team, by `threads` or not overlapped; None lets ranks decide.

    Collective: all ranks make it, and build graphs with it, alike. An error of a collective raises
    tf.errors.InternalError, whose text holds its own; what is in `failure` says no more than that.
    """

    def __init__(
        self,
        collectives: Sequence[Collective],
        *,
        threads: bool | None,
        computed_on_gpu: bool = False,
        staging_bytes: int = 0,
    ) -> None:
        self._operations, self._functions = _library()
        self._collectives, self._from_gpu = tuple(collectives), computed_on_gpu
        # TensorFlow's 0 stands for as many threads as there are CPUs. For a GPU one thread hands out its work.
        computing = tf.config.threading.get_intra_op_parallelism_threads() or len(os.sched_getaffinity(0))
        self._threads = want_threads(collectives[0], threads, num_threads=1 if computed_on_gpu else computing)
        self._sizes: list[int] = []
        self._staging_bytes = staging_bytes or _staging_bytes(collectives[0])
        # All of these must stay in place as long as the exchange is open.
        self._tables = [None if hasattr(c, "c_interface") else CallbackTable(c) for c in collectives]
        self.stagings = [c.empty(self._staging_bytes // 4) for c in collectives]
        addresses = ctypes.c_void_p * len(collectives)
        pairs = zip(self._tables, collectives, strict=True)
        self._handle = self._functions.dlscale_open(
            addresses(*(table.address if table else c.c_interface for table, c in pairs)),  # type: ignore[attr-defined]
            addresses(*(staging.ctypes.data for staging in self.stagings)),
            len(collectives),
            self._staging_bytes,
            _NEVER_DIRECT,
            int(self._threads),
        )
        # Also at the end of the interpreter, before MPI is finalised: no thread may be inside MPI then.
        self._finalizer = weakref.finalize(self, _close_in, os.getpid(), self._functions, self._handle)

    @property
    def failure(self) -> BaseException | None:
        """The error of a collective, as it was raised there, or as a RuntimeError with its text."""
        raised = next((table.failure for table in self._tables if table and table.failure), None)
        text = self._functions.dlscale_error(self._handle).decode()
        return raised or (RuntimeError(text) if text else None)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def average(self, gradients: Sequence[Any]) -> list[Any]:
        """The means over ranks, in order; sparse gradients come back dense."""
        dense = self._dense(gradients)
        if not dense or self._collectives[0].size == 1:
            return dense
        if self._threads:
            self.send(dense)
            return list(self.collect(dense))
        with tf.device(HOST):
            return list(self._operations.dlscale_average(dense, handle=self._handle))

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def send(self, gradients: Sequence[Any]) -> None:
        """Begin to average; `collect` fetches the means, in this step's graph or in that of a later one."""
        dense = self._dense(gradients)
        buckets = self._buckets(dense)
        with tf.device(HOST):
            for number, bucket in enumerate(buckets):
                self._operations.dlscale_send(
                    [dense[index] for index in bucket],
                    handle=self._handle,
                    bucket=number,
                    num_buckets=len(buckets),
                )

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def collect(self, like: Sequence[Any]) -> list[Any]:
        """The means of what was sent; `like` has its order, shapes and dtypes."""
        order = [index for bucket in self._buckets(like) for index in bucket]
        with tf.device(HOST):
            means = self._operations.dlscale_collect(
                T=[like[index].dtype for index in order], handle=self._handle
            )
        by_index = dict(zip(order, means, strict=True))
        for index, tensor in enumerate(like):
            by_index[index].set_shape(tensor.shape)
        return [by_index[index] for index in range(len(like))]

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def refuse_xla(self) -> None:
        """Look for XLA around the graph that is being built, for which TensorFlow has no public name."""
        graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        while graph is not None:
            context = graph._get_control_flow_context()
            if context is not None and context.IsXLAContext():
                raise UsageError(
                    "gradients are averaged inside a function that XLA compiles, which cannot call an MPI library; "
                    "leave jit_compile=True out, or compile only the network and its gradients"
                )
            graph = getattr(graph, "outer_graph", None)

    def synchronize(self) -> None:
        """Return when nothing is under way; errors are raised by the step that waits."""
        self._functions.dlscale_synchronize(self._handle)

    def settings(self) -> dict[str, Setting]:
        """Bytes per step, who exchanges them when, copies of all gradients, and the collective's own decisions."""
        return {
            BUCKET_SIZES: ",".join(map(str, self._sizes)),
            "overlap": self._threads,
            "teams": len(self._collectives) if self._threads else 0,
            # Into the staging and out of it; from a GPU one copy there and one back more.
            "staging_copies": 2 * (self._collectives[0].size > 1) + 2 * self._from_gpu,
            **({"staged_through": "host memory"} if self._from_gpu else {}),
            "staging_bytes": self._staging_bytes,
            **self._collectives[0].settings(),
        }

    def close(self) -> None:
        """End the threads; the collectives stay open. A second close does nothing."""
        self._finalizer()

    def _dense(self, gradients: Sequence[Any]) -> list[Any]:
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        self._sizes = [sum(_num_bytes(dense[index]) for index in bucket) for bucket in self._buckets(dense)]
        return dense

    def _buckets(self, tensors: Sequence[Any]) -> list[list[int]]:
        """Indices in backward order; without threads a single bucket."""
        if not self._threads:
            return [[*reversed(range(len(tensors)))]]
        return cut_into_buckets(list(map(_num_bytes, tensors)), [tensor.dtype for tensor in tensors])


def _staging_bytes(collective: Collective) -> int:
    num_nodes = collective.settings().get("num_nodes")
    if num_nodes is None:
        return STAGING_BYTES
    return NODE_STAGING_BYTES if num_nodes == 1 else NETWORK_STAGING_BYTES


def _num_bytes(tensor: Any) -> int:
    """Size of a tensor or variable; 0 where TensorFlow does not know its shape yet."""
    return int(tensor.shape.num_elements() or 0) * int(tensor.dtype.size)


def _close_in(process: int, functions: Any, handle: int) -> None:
    """Close an exchange, unless this is a forked child: the threads to be joined are its parent's."""
    if os.getpid() == process:
        functions.dlscale_close(handle)


class PipelinedTrainer(TensorFlowTrainer):
    """`TensorFlowTrainer` whose updates are delayed by one step, until the cool-down (`Trainer`).

    Batch norm's statistics are those of the step itself: only gradients travel.
    """

    _exchange: NativeExchange

    def __init__(self, replica: Any, exchange: NativeExchange, training: Training) -> None:
        super().__init__(replica, exchange)
        self._training, self._num_steps = training, 0
        self._first = replica.traced(partial(self._delayed_step, first=True))
        self._pipelined = replica.traced(partial(self._delayed_step, first=False))
        self._drain = replica.traced(self._apply_what_is_left)

    def step(self) -> None:
        """Train on one local batch; apply the means of the step before, if there is one and cool-down has not begun."""
        number = self._num_steps
        self._num_steps += 1
        if self._training.drains(number):
            self._run(self._drain)
        function = self._step
        if self._training.is_delayed(number):
            function = self._pipelined if number else self._first
        self._losses = self._run(function, *self._replica.next_batch())

    def synchronize(self) -> None:
        """Return when no exchange is under way, and a GPU has nothing left to do."""
        super().synchronize()
        self._exchange.synchronize()

    def settings(self) -> dict[str, Setting]:
        """The exchange's own decisions, and which steps are delayed."""
        return {**super().settings(), **self._training.settings()}

    def _delayed_step(self, *batch: Any, first: bool) -> list[Any]:
        losses, groups, updates = self._differentiate(*batch)
        gradients = flat(groups)
        means: list[Any] = []
        if not first:
            with tf.control_dependencies(gradients):  # waiting earlier would leave the exchange no time
                means = self._exchange.collect(gradients)
        with tf.control_dependencies(means):
            self._exchange.send(gradients)
        if not first:
            self._update(means)
        assign(updates)
        return list(losses)

    def _apply_what_is_left(self) -> None:
        self._update(self._exchange.collect(flat([o.parameters for o in self._replica.objectives])))


class CompressedBucketTrainer(TensorFlowTrainer):
    """A trainer whose bucket is all of its staging, which never moves (`compression.CompressedTrainer`)."""

    def __init__(self, replica: Any, collectives: Sequence[Collective]) -> None:
        self._count = sum(_num_bytes(p) for o in replica.objectives for p in o.parameters) // 4  # float32
        exchange = NativeExchange(
            collectives,
            threads=False,
            computed_on_gpu=on_gpu(replica),
            staging_bytes=-(-4 * self._count // 8) * 8,
        )
        self._bucket = exchange.stagings[0][: self._count]
        super().__init__(replica, exchange)

    def buckets(self) -> list[NDArray[Any]]:
        return [self._bucket]

    def flat(self, arrays: Weights) -> list[NDArray[Any]]:
        """Arrays in the order and shapes of the weights, one after the other."""
        return [np.concatenate([array.reshape(-1) for array in arrays])]


def over(replica: Any, collectives: Sequence[Collective], training: Training) -> TensorFlowTrainer:
    """The replica with its gradients exchanged over `collectives`, one per team; collective."""
    if isinstance(collectives[0], CompressedCollective):
        return CompressedBucketTrainer(replica, collectives)
    exchange = NativeExchange(collectives, threads=training.threads, computed_on_gpu=on_gpu(replica))
    if training.pipelined:
        return PipelinedTrainer(replica, exchange, training)
    return TensorFlowTrainer(replica, exchange)


def exchange_over(rings: Sequence[Collective], *, threads: bool | None = None) -> NativeExchange:
    """A user's exchange over `rings`, one per team, made when it is first asked for; collective then.

    There is only one: several exchanges with threads over the same rings would not keep to one order. Raises UsageError
    if another one was asked for before.
    """
    asked = tuple(map(id, rings)), threads
    known = vars(rings[0])  # so that it goes when the ring goes
    if "_tensorflow" not in known:
        known["_tensorflow"] = asked, NativeExchange(rings, threads=threads)
    made_for, exchange = known["_tensorflow"]
    if made_for != asked:
        raise UsageError(
            "gradients are averaged over this ring already, with other teams or threads; "
            "give the same rings and threads everywhere, or another ring"
        )
    made: NativeExchange = exchange
    return made
