"""The shared object `_tensorflow_ops`, built from src/: TensorFlow's operations, and C functions for Python."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Sequence
from functools import cache
from typing import Any

import tensorflow as tf

from dlscale.models.errors import UsageError

_MODULE = "dlscale.collectives.fronts._tensorflow_ops"  # found as a module, but only TensorFlow can load it
_NEVER_DIRECT = 1 << 62


def is_built() -> bool:
    """Whether this installation has the operations; without a C++ compiler it has not."""
    return importlib.util.find_spec(_MODULE) is not None


class Library:
    """The operations as TensorFlow's Python functions, and exchanges by number; see src/tensorflow_ops.cpp."""

    def __init__(self) -> None:
        found = importlib.util.find_spec(_MODULE)
        if found is None or found.origin is None:
            raise UsageError(
                "TensorFlow's exchange of gradients was not built: the installation found no C++ compiler; "
                "reinstall dlscale where there is one: pip install --no-deps --force-reinstall ."
            )
        self.operations: Any = tf.load_op_library(found.origin)
        self._functions = ctypes.CDLL(found.origin)
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
        self, tables: Sequence[int], stagings: Sequence[int], *, staging_bytes: int, threads: bool
    ) -> int:
        """The number of a new exchange, for the operations' attribute `handle`.

        Both lists hold addresses, one per team, which must stay valid until it is closed.
        """
        kind = ctypes.c_void_p * len(tables)
        handle: int = self._functions.dlscale_open(
            kind(*tables), kind(*stagings), len(tables), staging_bytes, _NEVER_DIRECT, int(threads)
        )
        return handle

    def synchronize(self, handle: int) -> None:
        """Return when nothing is under way, or it has failed."""
        self._functions.dlscale_synchronize(handle)

    def error(self, handle: int) -> str:
        """What went wrong in a collective; empty if nothing did."""
        text: bytes = self._functions.dlscale_error(handle)
        return text.decode()

    def close(self, handle: int) -> None:
        """End its threads when they have exchanged what was sent; a second close does nothing."""
        self._functions.dlscale_close(handle)


@cache
def library() -> Library:
    """The one of this process. Raises UsageError if it was not built, or not for this TensorFlow."""
    return Library()
