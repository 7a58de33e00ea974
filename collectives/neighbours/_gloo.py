"""Carrier `gloo`: a Gloo group of the replica's own, beside whatever torch's default group is."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch.distributed import PrefixStore  # type: ignore[attr-defined]

from dlscale.collectives.addresses import own_address
from dlscale.collectives.neighbours.carried import Parts
from dlscale.collectives.torch_distributed import TIMEOUT, meeting_place, remove_meeting_place


class GlooCarrier:
    """The ranks of one replica (`Carrier`). A peer that is gone raises RuntimeError."""

    takes_tensors = False

    def __init__(self, control: Any, split: int, *, allow_open_ports: bool) -> None:
        replica, self.index = divmod(control.Get_rank(), split)
        place = meeting_place("gloo", control=control, allow_open_ports=allow_open_ports)
        gloo: Any = dist.ProcessGroupGloo
        options = gloo._Options()
        options._timeout = TIMEOUT
        options._devices = [gloo.create_device(hostname=own_address(one_machine=place.one_machine))]
        store = PrefixStore(f"replica-{replica}", place.store)
        self._group: Any = gloo(store, self.index, split, options)
        # As in `gloo.GlooCollective`: the group's threads must not be the last to hold a tensor.
        self._held: deque[Any] = deque(maxlen=16)
        self._control, self._folder = control, place.folder

    def exchange(self, sends: Parts, receives: Parts) -> None:
        works = [self._group.recv([self._tensor(array)], rank, 0) for rank, array in receives]
        works += [self._group.send([self._tensor(array)], rank, 0) for rank, array in sends]
        for work in works:
            work.wait()

    def sum(self, values: NDArray[Any]) -> None:
        self._group.allreduce([self._tensor(values)]).wait()

    def gather(self, own: NDArray[Any], whole: NDArray[Any], counts: Sequence[int]) -> None:
        """Gloo's allgather, of parts as long as the longest."""
        longest = np.empty((max(counts), *own.shape[1:]), own.dtype)
        longest[: len(own)] = own
        parts = [np.empty_like(longest) for _ in counts]
        self._group.allgather([[self._tensor(part) for part in parts]], [self._tensor(longest)]).wait()
        np.concatenate([part[:count] for part, count in zip(parts, counts, strict=True)], out=whole)

    def settings(self) -> dict[str, str | int | float | bool]:
        """Nothing: the algorithm is Gloo's own choice."""
        return {}

    def close(self) -> None:
        """Leave the group; collective over all replicas, which met in one place."""
        if self._group is not None:
            self._group = None
            self._held.clear()
            remove_meeting_place(self._folder, self._control)

    def _tensor(self, array: NDArray[Any]) -> torch.Tensor:
        if self._group is None:
            raise RuntimeError("this gloo replica is closed")
        self._held.append(torch.from_numpy(array.reshape(-1)))
        return self._held[-1]  # type: ignore[no-any-return]


def connect(*, control: Any, split: int, options: dict[str, Any]) -> GlooCarrier:
    """The replica of this rank; collective. Raises UsageError across machines, unless open ports are allowed."""
    return GlooCarrier(control, split, allow_open_ports=bool(options.get("allow_open_ports")))
