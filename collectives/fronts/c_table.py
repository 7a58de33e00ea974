"""Any `Collective` as the C functions that native code calls: collectives/ring/src/c_interface.hpp."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from dlscale.collectives.backend import Collective

_DTYPES: dict[int, np.dtype[Any]] = {0: np.dtype(np.float32), 1: np.dtype(np.float64)}  # by DlscaleType
NATIVE_DTYPES = ("float32", "float64", "bfloat16", "float16")  # what a table in C averages
_AVERAGE = 1  # by DlscaleOp

_Allreduce = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int
)
_LastError = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


class _Collective(ctypes.Structure):
    """DlscaleCollective."""

    _fields_ = (
        ("struct_bytes", ctypes.c_size_t),
        ("context", ctypes.c_void_p),
        ("allreduce", _Allreduce),
        ("last_error", _LastError),
    )


class CallbackTable:
    """The table of a collective that is written in Python: native code calls back, and takes the interpreter's lock.

    Valid as long as this object lives.
    """

    dtypes = tuple(dtype.name for dtype in _DTYPES.values())

    def __init__(self, collective: Collective) -> None:
        self.failure: BaseException | None = None
        self._text = ctypes.create_string_buffer(1)

        def allreduce(_: int, data: int, count: int, kind: int, op: int) -> int:
            try:
                if op != _AVERAGE:
                    raise ValueError(f"operation {op} is not the average")
                dtype = _DTYPES[kind]
                memory: Any = (ctypes.c_char * (count * dtype.itemsize)).from_address(data)
                collective.allreduce(np.frombuffer(memory, dtype), "average")
            except BaseException as error:  # an exception cannot cross C
                self.failure = error
                text = str(error) or type(error).__name__
                self._text = ctypes.create_string_buffer(text.splitlines()[0].encode())
                return 1
            return 0

        self._functions = _Allreduce(allreduce), _LastError(lambda _: ctypes.addressof(self._text))
        self._table = _Collective(ctypes.sizeof(_Collective), None, *self._functions)
        self.address = ctypes.addressof(self._table)
