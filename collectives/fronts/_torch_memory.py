"""Tensors as the arrays that the ring works on. They share memory: nothing is copied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dlscale.collectives.ring.engine import Ring

WORD = np.dtype(np.int32)  # what moves bytes that nothing is computed of


def array_of(tensor: torch.Tensor) -> NDArray[Any]:
    """The memory of `tensor` as an array; bfloat16, which NumPy does not have, in the guise of uint16.

    Raises TypeError or ValueError for a tensor that is sparse, not on the CPU or not contiguous.
    """
    if tensor.layout != torch.strided:
        raise TypeError(f"the tensor is {tensor.layout}; give tensor.to_dense()")
    if tensor.device.type != "cpu":
        raise ValueError(
            f"the tensor is on {tensor.device}, but the ring works on host memory; give tensor.cpu()"
        )
    if not tensor.is_contiguous():
        raise ValueError(
            f"the tensor with shape {tuple(tensor.shape)} and strides {tensor.stride()} is not contiguous; give "
            "tensor.contiguous() and copy the result back"
        )
    tensor = tensor.detach()
    return tensor.view(torch.uint16).numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()


def allreduce(ring: Ring, tensor: torch.Tensor, op: str, *, bucket: int | None = None) -> None:
    """The sum, average, min or max over ranks takes the place of the tensor's elements; collective."""
    ring.allreduce(array_of(tensor), op, bfloat16=tensor.dtype == torch.bfloat16, bucket=bucket)


def reduce_scatter(ring: Ring, whole: torch.Tensor, piece: torch.Tensor, op: str) -> None:
    """Fill `piece` with this rank's part of the sum, average, min or max over ranks of `whole`; collective."""
    bfloat16 = piece.dtype == torch.bfloat16
    ring.reduce_scatter(array_of(whole).reshape(-1), array_of(piece).reshape(-1), op, bfloat16=bfloat16)


def words_of(tensor: torch.Tensor) -> NDArray[Any]:
    """The bytes of `tensor` as whole words, to be moved: an alias where they fit, else a copy with zeros behind."""
    data = array_of(tensor).reshape(-1).view(np.uint8)
    if data.nbytes % WORD.itemsize == 0 and data.ctypes.data % WORD.itemsize == 0:
        return data.view(WORD)
    words = np.zeros(-(-data.nbytes // WORD.itemsize), dtype=WORD)
    words.view(np.uint8)[: data.nbytes] = data
    return words


def fill(tensor: torch.Tensor, words: NDArray[Any]) -> None:
    """Copy bytes that `words_of` laid out into a tensor, unless they are there already."""
    data = array_of(tensor).reshape(-1).view(np.uint8)
    if not np.may_share_memory(data, words):
        data[:] = words.view(np.uint8)[: data.nbytes]
