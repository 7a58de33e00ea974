"""One sample on several ranks: who has which rows of it, and what ranks of one sample ask each other for.

The ranks that train on the same samples are a *replica*; `split` is their number. Each has some *rows* of every map,
rank 0 the top ones, and gets the *halo*, the rows beyond its own that a layer reads, from its neighbours.

The rule: **every exchange has the adjoint of the sum of all ranks' losses.** Going back, a halo adds the edge
gradients that the neighbours have of it, a sum is a sum, and taking one's own rows of what all ranks have is plain
slicing. Each rank's gradient then is `split` times its share of the gradient of one loss, and the plain mean over all
ranks is the gradient of one device: no backend averages in another way.

Networks are written for whole samples. `_torch.py` and `_tensorflow.py` split one that is made; nothing here imports
a framework.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dlscale.base.errors import UsageError


class Neighbours(Protocol):
    """What ranks of one replica ask each other for.

    Every method is blocking, and all ranks of the replica call the same ones in the same order. Arrays are C-contiguous
    NumPy arrays in host memory; where `takes_tensors`, they are contiguous tensors of the framework on its device.
    """

    index: int  # of this rank in its replica; 0 has the top rows
    split: int  # ranks of the replica
    takes_tensors: bool

    def exchange(self, up: Any, down: Any, from_up: Any, from_down: Any) -> None:
        """Send `up` to rank index - 1 and `down` to index + 1, and fill `from_up` and `from_down` with what they sent.

        Where there is no such rank nothing is sent, and the buffer stays as it is; any array may be empty. Elements of
        any type of up to 8 bytes (bfloat16 comes as int16) are moved as they are. Both buffers are complete, and both
        arrays may be changed again, when it returns.
        """

    def sum(self, values: Any) -> None:
        """Replace `values`, float32 or float64 and of one shape on all ranks, by the sum over the replica, in place.

        All ranks get the same bits.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The rows of one rank, `index` of the `split` ranks of a replica, of every map that a network has of a sample.

    A sample's rows come in `num_blocks` blocks, of as many rows as the product of all strides, so that a block is a
    whole number of rows in every map. Blocks are dealt out as evenly as they can be, the first ranks having one more:
    14 blocks on 4 ranks are 4 + 4 + 3 + 3. A map of height h has h / `num_blocks` rows per block.
    """

    index: int
    split: int
    num_blocks: int

    def own(self, height: int) -> slice:
        """This rank's rows of a map that has `height` rows in the whole sample."""
        first, last = (
            self._begin(rank) * (height // self.num_blocks) for rank in (self.index, self.index + 1)
        )
        return slice(first, last)

    def height(self, own: int) -> int:
        """The rows in the whole sample of a map of which this rank has `own` rows."""
        return own // self._num_own() * self.num_blocks

    def cut(self, maps: NDArray[Any]) -> NDArray[Any]:
        """Own rows of whole maps (N, H, W, C), a copy without gaps; an array without these four axes is as it was."""
        return np.ascontiguousarray(maps[:, self.own(maps.shape[1])]) if maps.ndim == 4 else maps

    def check_halo(self, own: int, needed: int) -> None:
        """Returns if every rank has the `needed` rows of a map of which this one has `own`. Raises UsageError."""
        fewest = own // self._num_own() * (self.num_blocks // self.split)
        if fewest < needed:
            raise UsageError(
                f"split {self.split} leaves a rank {fewest} rows of a map of which its neighbours need {needed}; "
                "choose fewer ranks per sample, or samples of more rows"
            )

    def _num_own(self) -> int:
        """Blocks of this rank."""
        return self._begin(self.index + 1) - self._begin(self.index)

    def _begin(self, rank: int) -> int:
        """The first block of that rank."""
        each, more = divmod(self.num_blocks, self.split)
        return rank * each + min(rank, more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One rank's part of every sample: its rows, and who has the others."""

    rows: Rows
    neighbours: Neighbours


def deal_rows(height: int, *, block_rows: int, index: int, split: int) -> Rows:
    """Rank `index` of `split` has these of a sample's `height` rows. Raises UsageError if they are too few blocks."""
    num_blocks = height // block_rows
    if height % block_rows or not 1 <= split <= num_blocks:
        raise UsageError(
            f"split {split} was asked for, but a sample of {height} rows has {num_blocks} blocks of {block_rows} rows, "
            "and each rank needs one or more; choose fewer ranks per sample or a larger preset"
        )
    return Rows(index=index, split=split, num_blocks=num_blocks)
