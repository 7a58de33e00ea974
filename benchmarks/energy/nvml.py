"""The energy of a node's NVIDIA GPUs, from the driver's own library.

`nvmlDeviceGetTotalEnergyConsumption` gives millijoules since the driver was loaded, from Volta on, and moves every 20
to 100 ms. All GPUs count that the library shows, whoever trains on them. This has met no GPU yet.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from dlscale.benchmarks.energy.counters import UnreadableError
from dlscale.benchmarks.energy.facts import Source

LIBRARY = "libnvidia-ml.so.1"
MILLI = 1e-3


class Nvml:
    """As `counters.Counter`."""

    source: Source = "nvml"
    period = 0.1

    def __init__(self, library: Any = None) -> None:
        """Raises UnreadableError if there is no driver, no GPU, or one that does not count."""
        self._library = library if library is not None else _loaded()
        self._call("nvmlInit_v2")
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        if not count.value:
            raise UnreadableError("NVML shows no GPU")
        self._devices = [self._device(index) for index in range(count.value)]
        self.parts = f"{count.value} GPU{'s' * (count.value > 1)}"
        self.ranges: Sequence[float | None] = [None] * count.value
        self.read()

    def read(self) -> list[float]:
        """Joules of each GPU. Raises UnreadableError."""
        return [self._energy(device) for device in self._devices]

    def _device(self, index: int) -> ctypes.c_void_p:
        device = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(device))
        return device

    def _energy(self, device: ctypes.c_void_p) -> float:
        millijoules = ctypes.c_ulonglong()
        self._call("nvmlDeviceGetTotalEnergyConsumption", device, ctypes.byref(millijoules))
        return millijoules.value * MILLI

    def _call(self, name: str, *arguments: Any) -> None:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise UnreadableError(f"{LIBRARY} has no {name}") from None
        if status := function(*arguments):
            raise UnreadableError(f"{name} returned {status}")


def _loaded() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError:
        raise UnreadableError(f"no {LIBRARY}") from None
