"""Torch gradients in host memory, for exchanges that know no other: where they are already, or copied from a GPU.

Vocabulary: gradients are *fetched* from the device into host memory, exchanged there, and means or new weights are
*delivered* to the device. Memory that GPUs are copied from and to is pinned: copies then run during computations, and
no thread waits for one before its *arrival*.

Fetches have their own stream, behind what has been computed so far, so that backpropagation goes on meanwhile.
Deliveries are among the computations, before the update that needs them. A fetch of the next step is therefore behind
this step's deliveries, and host memory may be written to after a later arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from dlscale.collectives.backend import Collective
from dlscale.collectives.training._torch import Setting
from dlscale.models.frameworks import TORCH_GPUS

Arrival = Callable[[], object]
"""Returns once what was fetched is there; for any thread, and more than once."""


class Staging:
    """Parameters on the host: a gradient's only copy is into the memory that is exchanged.

    Host memory has the shape and strides of the device's.
    """

    def memory(self, count: int, dtype: torch.dtype, collective: Collective) -> torch.Tensor:
        """`count` elements on the host, flat, where `collective` reduces fastest; collective."""
        return torch.from_numpy(collective.empty(count, str(dtype).removeprefix("torch.")))

    def fetch(self, tensor: torch.Tensor, host: torch.Tensor) -> None:
        """Begin to copy a tensor of the device to the host."""
        host.copy_(tensor)

    def on_host(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor itself where it is on the host, else a copy that has begun."""
        return tensor

    def arrival(self) -> Arrival:
        """The arrival of all that was fetched until now."""
        return lambda: None

    def on_device(self, host: torch.Tensor) -> torch.Tensor:
        """The tensor itself where computations are on the host, else a copy for them."""
        return host

    def deliver(self, host: torch.Tensor, tensor: torch.Tensor) -> None:
        """Copy what `on_host` made of `tensor` back into it."""

    def num_threads(self) -> int:
        """Threads of this rank that compute on the host's cores."""
        return torch.get_num_threads()

    def settings(self) -> dict[str, Setting]:
        """For the record: copies of every gradient on its way."""
        return {"staging_copies": 1}


class ThroughHost(Staging):
    """Parameters on a GPU: every gradient is copied to the host, and every mean or weight back.

    On another device, whose copies are done on return, there is no stream and nothing to pin.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pinned = device.type in TORCH_GPUS
        self._gpus: Any = torch.get_device_module(device if self._pinned else "cpu")
        self._stream = self._gpus.Stream(device) if self._pinned else None

    def memory(self, count: int, dtype: torch.dtype, collective: Collective) -> torch.Tensor:  # noqa: ARG002
        """Pinned, which collectives' own memory is not."""
        return torch.zeros(count, dtype=dtype, pin_memory=self._pinned)

    def fetch(self, tensor: torch.Tensor, host: torch.Tensor) -> None:
        """On the stream of fetches; the tensor's memory is kept until it is copied."""
        if self._stream is None:
            host.copy_(tensor)
            return
        self._stream.wait_stream(self._gpus.current_stream(self._device))
        with self._gpus.stream(self._stream):
            host.copy_(tensor, non_blocking=True)
        tensor.record_stream(self._stream)

    def on_host(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy in memory that torch takes back when both it and the GPU are done with it."""
        host = torch.empty_like(tensor, device="cpu", pin_memory=self._pinned)
        self.fetch(tensor, host)
        return host

    def arrival(self) -> Arrival:
        """By an event, at which a thread waits asleep: the cores are for the exchange.

        Deliveries until now are over then too, also where nothing was fetched since.
        """
        if self._stream is None:
            return super().arrival()
        self._stream.wait_stream(self._gpus.current_stream(self._device))
        # Intel's events have no such choice.
        event = self._gpus.Event(**({"blocking": True} if self._device.type == "cuda" else {}))
        event.record(self._stream)
        wait: Arrival = event.synchronize
        return wait

    def on_device(self, host: torch.Tensor) -> torch.Tensor:
        return host.to(self._device, non_blocking=True, copy=True)

    def deliver(self, host: torch.Tensor, tensor: torch.Tensor) -> None:
        tensor.copy_(host, non_blocking=True)

    def num_threads(self) -> int:
        """One, which hands out the GPU's work."""
        return 1

    def settings(self) -> dict[str, Setting]:
        return {
            "staging_copies": 2,
            "staged_through": "pinned host memory" if self._pinned else "host memory",
        }


def staging_of(parameters: Sequence[nn.Parameter]) -> Staging:
    """The staging that a replica with these parameters needs, all on one device."""
    device = parameters[0].device
    return Staging() if device.type == "cpu" else ThroughHost(device)
