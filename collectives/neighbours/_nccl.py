"""Carrier `nccl`: NCCL between GPUs, on a group of the replica's own.

Written after torch's documentation, and never run: it takes two GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from dlscale.collectives.neighbours.carried import Parts


class NcclCarrier:
    """The ranks of one replica (`Carrier`), for tensors on their GPUs; torch's default group is NCCL's, too."""

    takes_tensors = True

    def __init__(self, control: Any, split: int) -> None:
        rank, size = control.Get_rank(), control.Get_size()
        self._first, self.index = rank - rank % split, rank % split
        # Every rank of the default group has to take part in forming every group.
        groups = [
            dist.new_group(list(range(first, first + split)), backend="nccl")
            for first in range(0, size, split)
        ]
        self._group: Any = groups[rank // split]

    def exchange(self, sends: Parts, receives: Parts) -> None:
        """One batch of sends and receives; the GPU's current stream waits for it."""
        begun = [
            dist.P2POp(operation, tensor, self._first + rank, group=self._group)
            for operation, parts in ((dist.irecv, receives), (dist.isend, sends))
            for rank, tensor in parts
        ]
        for work in dist.batch_isend_irecv(begun) if begun else ():
            work.wait()

    def sum(self, values: torch.Tensor) -> None:
        dist.all_reduce(values, group=self._group)

    def gather(self, own: torch.Tensor, whole: torch.Tensor, counts: Sequence[int]) -> None:
        """NCCL's allgather into parts of `whole`; torch broadcasts one by one where they are not equally long."""
        dist.all_gather(list(torch.split(whole, list(counts))), own, group=self._group)

    def settings(self) -> dict[str, str | int | float | bool]:
        """Nothing: the algorithm is NCCL's own choice."""
        return {}

    def close(self) -> None:
        if self._group is not None:
            dist.destroy_process_group(self._group)
        self._group = None


def connect(*, control: Any, split: int, options: dict[str, Any]) -> NcclCarrier:  # noqa: ARG001
    """The replica of this rank, whose gradients go over NCCL, too; collective."""
    return NcclCarrier(control, split)
