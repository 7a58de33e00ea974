"""The control plane over a Gloo group of its own, under torchrun: nothing of MPI, nor torch's default process group."""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.collectives.addresses import own_address

TIMEOUT = timedelta(days=7)  # whoever hangs is the supervisor's to judge


class TorchPlane:
    """What torchrun tells its processes by variables (`ControlPlane`). Raises UsageError where one is missing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.rank, self._size = _told("RANK"), _told("WORLD_SIZE")
        self._one_machine = self._size == _told("LOCAL_WORLD_SIZE")

    def meet(self, asked: int) -> TorchCommunicator:
        """A group of all ranks; collective. Raises UsageError where torchrun started another number."""
        if self._size != asked:
            raise UsageError(f"asked for {asked} ranks, but torchrun started {self._size} (WORLD_SIZE)")
        import torch.distributed as dist

        gloo: Any = dist.ProcessGroupGloo
        options = gloo._Options()
        options._timeout = TIMEOUT
        options._devices = [gloo.create_device(hostname=own_address(one_machine=self._one_machine))]
        group = gloo(self._store(), self.rank, self._size, options)
        return TorchCommunicator(group, rank=self.rank, size=self._size)

    def _store(self) -> Any:
        """Where ranks find each other: a file of the launch's, or torchrun's own store on the first node."""
        from torch.distributed import FileStore, PrefixStore, TCPStore  # type: ignore[attr-defined]

        if self._one_machine:
            return FileStore(str(self._folder / "control"), self._size)
        store = TCPStore(os.environ["MASTER_ADDR"], _told("MASTER_PORT"), is_master=False)
        return PrefixStore("dlscale", store)

    def leave(self) -> None:
        """Nothing is left behind."""

    def abort(self) -> NoReturn:
        """Fail: torchrun then ends all ranks."""
        os._exit(1)


def _told(name: str) -> int:
    try:
        return int(os.environ[name])
    except (KeyError, ValueError):
        raise UsageError(
            f"torchrun started this process, but {name} is {os.environ.get(name, 'not set')!r}; "
            "leave its variables to torchrun"
        ) from None


class TorchCommunicator:
    """Ranks of a Gloo group (`Communicator`). A peer that is gone raises RuntimeError."""

    def __init__(self, group: Any, *, rank: int, size: int) -> None:
        self._group, self._rank, self._size = group, rank, size

    def Get_rank(self) -> int:  # noqa: N802
        return self._rank

    def Get_size(self) -> int:  # noqa: N802
        return self._size

    def Barrier(self) -> None:  # noqa: N802
        self._group.barrier().wait()

    def Ibarrier(self) -> _Barrier:  # noqa: N802
        return _Barrier(self._group.barrier())

    def bcast(self, value: Any) -> Any:
        raw = np.frombuffer(packed(value) if self._rank == 0 else b"", np.uint8)
        length = np.array([raw.size])
        self.Bcast(length)
        shared = np.resize(raw, length[0])
        self.Bcast(shared)
        return unpacked(shared.tobytes())

    def gather(self, value: Any) -> list[Any] | None:
        gathered = self.allgather(value)
        return None if self._rank else gathered

    def allgather(self, value: Any) -> list[Any]:
        content = packed(value)
        lengths = [int(length[0]) for length in self._allgather(np.array([len(content)]))]
        padded = np.zeros(max(lengths), np.uint8)
        padded[: len(content)] = np.frombuffer(content, np.uint8)
        each = self._allgather(padded)
        return [unpacked(raw[:length].tobytes()) for raw, length in zip(each, lengths, strict=True)]

    def allreduce(self, value: Any, op: Callable[[Any, Any], Any] = operator.add) -> Any:
        """All ranks' in one by `op`, from rank 0 on."""
        return functools.reduce(op, self.allgather(value))

    def Allreduce(self, sendbuf: None, recvbuf: NDArray[Any]) -> None:  # noqa: ARG002, N802
        from torch import from_numpy

        self._group.allreduce([from_numpy(recvbuf.reshape(-1))]).wait()

    def Bcast(self, buf: NDArray[Any], root: int = 0) -> None:  # noqa: N802
        from torch import from_numpy

        if buf.size:
            self._group.broadcast(from_numpy(buf.reshape(-1).view(np.uint8)), root).wait()

    def _allgather(self, own: NDArray[Any]) -> list[NDArray[Any]]:
        from torch import from_numpy

        each = [np.empty_like(own) for _ in range(self._size)]
        self._group.allgather([[from_numpy(part) for part in each]], [from_numpy(own)]).wait()
        return each


class _Barrier:
    """A barrier under way, by mpi4py's name of its question."""

    def __init__(self, work: Any) -> None:
        self._work = work

    def Test(self) -> bool:  # noqa: N802
        """Whether all ranks are there. Raises RuntimeError where one is gone."""
        if done := bool(self._work.is_completed()):
            self._work.wait()  # what went wrong is raised here
        return done


# Codes of what MessagePack has no type for.
_TUPLE, _SET, _ARRAY = 1, 2, 3


# Objects as bytes between ranks: plain types, tuples and arrays, in MessagePack. Reading them runs nothing.
def packed(value: Any) -> bytes:
    """`value` as bytes: None, bool, int, float, str, bytes, arrays, and tuples, lists, sets and dicts of these.

    Raises TypeError for any other type.
    """
    return msgspec.msgpack.encode(_plain(value))


def unpacked(content: bytes) -> Any:
    """What `packed` made these of."""
    return msgspec.msgpack.decode(content, ext_hook=_special)


def _plain(value: Any) -> Any:
    match value:
        case np.ndarray() | np.generic():
            whole = np.asarray(value, order="C")
            return _marked(_ARRAY, [whole.dtype.str, list(whole.shape), whole.tobytes()])
        case tuple():
            return _marked(_TUPLE, [_plain(item) for item in value])
        case set() | frozenset():
            return _marked(_SET, [_plain(item) for item in value])
        case list():
            return [_plain(item) for item in value]
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case None | bool() | int() | float() | str() | bytes():
            return value
    raise TypeError(f"a {type(value).__name__} does not travel between ranks")


def _marked(code: int, content: list[Any]) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, msgspec.msgpack.encode(content))


def _special(code: int, content: memoryview) -> Any:
    items = msgspec.msgpack.decode(content, ext_hook=_special)
    if code == _ARRAY:
        kind, shape, raw = items
        array = np.frombuffer(raw, np.dtype(kind)).reshape(shape).copy()
        return array if shape else array[()]
    return {_TUPLE: tuple, _SET: set}[code](items)
