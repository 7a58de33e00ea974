"""From an input to local batches of NumPy arrays: what both frameworks' pipelines have in common.

Which samples each rank trains on at each step, and dropout masks, are drawn with NumPy, so that they are the same in
every framework. Images are (N, H, W, C), float32: the memory order in which both frameworks are fastest, and what a
JPEG decoder gives. Torch sees them as (N, C, H, W) without moving them.

A sample is held out, so that no training sees it, if a hash of its index (blake2b of 8 bytes, little-endian), as a
number in [0, 1), is below the share. So the part is the same on every rank, for every number of ranks and in every
framework, and it does not depend on the order in which others are drawn.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.models.parallel import Rows
from dlscale.models.workload import Indices, Input, Preset, Shard

Arrays = tuple[NDArray[Any], ...]
Mask = NDArray[np.uint8]

ORDER_SEED = 20180523  # of the shuffled epochs; the same on every rank, or shards would overlap
SYNTHETIC_SEED = 13


class BadSample(UsageError):  # noqa: N818 - it is the sample that is bad
    """One sample cannot be used; the message names the file and the place in it."""

    def __init__(self, message: str, *, index: int) -> None:
        super().__init__(message)
        self.index = index


class Samples(Protocol):
    """Random access to the samples of one input. `len()` of it is their number."""

    def __len__(self) -> int: ...
    def skip(self, count: int) -> None:
        """Draw at random what is drawn after `count` more samples have been read; fewer where it is negative."""

    def read(self, indices: NDArray[np.int64]) -> Arrays:
        """The samples `indices`, in that order, each array with N as its first axis; repeats are allowed.

        Raises BadSample for one that is damaged, not finite or has a label outside the classes.
        """


class DataModule(Protocol):
    """The interface of `models/<workload>/data.py`. Nothing in it imports a framework."""

    def default_input(self, preset: Preset) -> Input:
        """The sample that ships with dlscale. Raises UsageError if there is none for the preset."""

    def check_input(self, source: Input, preset: Preset, *, num_samples: int = 1) -> None:
        """Returns if `source` can feed the preset with `num_samples` or more; cheap. Raises UsageError."""

    def open_samples(
        self, source: Input, preset: Preset, *, seed: tuple[int, int] | None, rows: Rows | None = None
    ) -> Samples:
        """`source`, open for reading. `seed` (of the training, the shard) is that of random cropping and the like.

        None: what is drawn depends on the samples alone, and they are the same whenever they are read.
        With `rows`, given only for presets that have `block_rows`, it reads those of each sample.
        """

    def synthetic_batch(self, preset: Preset, local_batch: int, rng: np.random.Generator) -> Arrays:
        """A local batch of random tensors, as `Samples.read` would give it."""

    def step_inputs(
        self, preset: Preset, local_batch: int, rng: np.random.Generator, *, gate: bool
    ) -> Arrays:
        """What every training step draws anew and is given after the samples: dropout masks, z, label flips.

        With `gate` only what the networks cannot do without, for no randomness may differ between two calls.
        """


def part_files(folder: Path, is_part: Callable[[str], Any]) -> list[Path]:
    """The files of a folder whose names say that they are parts of its data, in the order of their names.

    Raises UsageError for such a name of what is no file: a link to nothing, a folder, a FIFO.
    """
    names = sorted(name for name in os.listdir(folder) if not name.startswith(".") and is_part(name))
    for name in names:
        if not (folder / name).is_file():
            raise UsageError(
                f"{folder / name}: a part of the data by its name, and no file; copy the file there, or remove it"
            )
    return [folder / name for name in names]


def held_out_samples(num_samples: int, *, share: float) -> Indices:
    """The indices of the held-out samples, ascending."""
    return np.flatnonzero(_held_out(num_samples, share))


def training_samples(num_samples: int, *, share: float) -> Indices:
    """The indices of all other samples, ascending."""
    return np.flatnonzero(~_held_out(num_samples, share))


def _held_out(num_samples: int, share: float) -> NDArray[np.bool_]:
    if not share:
        return np.zeros(num_samples, bool)
    digests = b"".join(
        hashlib.blake2b(index.to_bytes(8, "little"), digest_size=8).digest() for index in range(num_samples)
    )
    return np.asarray(np.frombuffer(digests, dtype="<u8") / 2.0**64 < share)


def shard_indices(
    num_samples: int, *, shard: Shard, local_batch: int, seed: int, begin: int = 0
) -> Iterator[Indices]:
    """Endless local batches of sample indices, [local_batch], from step `begin` on.

    No overlap between ranks, no sample left out.

    Picture one endless row of indices, epoch after epoch, each epoch shuffled by (seed, epoch) alike on all
    ranks. Step s takes the next P * local_batch of them, and shard r takes the r-th piece. A step may reach
    over the end of an epoch, so nothing is dropped where the sizes do not divide.
    """

    @lru_cache(maxsize=2)  # a batch touches at most the end of one epoch and the start of the next, mostly
    def order(epoch: int) -> Indices:
        return np.random.default_rng((seed, epoch)).permutation(num_samples)

    step = begin
    while True:
        first = (step * shard.count + shard.index) * local_batch
        epochs, places = np.divmod(np.arange(first, first + local_batch), num_samples)
        yield np.array([order(int(epoch))[place] for epoch, place in zip(epochs, places, strict=True)])
        step += 1


def draw_masks(rng: np.random.Generator, shapes: Sequence[tuple[int, ...]], num_samples: int) -> list[Mask]:
    """One mask of 0 (dropped) and 1 (kept) per shape, each (N, *shape); both are equally likely.

    A keep probability of 1/2 needs one random bit per value, which is many times cheaper than a float.
    """
    counts = [num_samples * int(np.prod(shape)) for shape in shapes]
    bits = np.unpackbits(np.frombuffer(rng.bytes(-(-sum(counts) // 8)), dtype=np.uint8))
    pieces = np.split(bits[: sum(counts)], np.cumsum(counts)[:-1])
    return [piece.reshape(num_samples, *shape) for piece, shape in zip(pieces, shapes, strict=True)]


class LocalBatches:
    """One shard's local batches: samples, and what every step draws anew.

    `fixed` are the samples of every step where they are always the same: of a synthetic source, and of a gate, which
    repeats everything, whatever the seed. Elsewhere `samples` reads them. Raises BadSample unless bad ones
    are skipped: then the shard's next sample takes the place, and no rank waits for another.

    What a step draws depends on its number alone, so that a training can go on at any step (`begin_at`).

    Ranks that share samples draw the same for whole samples, and arrays (N, H, W, C) are then cut to own rows.
    """

    def __init__(
        self,
        data: DataModule,
        *,
        preset: Preset,
        local_batch: int,
        source: Input,
        shard: Shard,
        seed: int,
        gate: bool = False,
    ) -> None:
        self.num_skipped = 0
        self.num_samples = 0  # of the input; 0 where it is synthetic
        self.last_samples: Indices | None = None  # of the batch that was read last
        self.num_drawn = 0  # batches
        self.fixed: Arrays | None = None
        self._data, self._preset, self._local_batch, self._gate = data, preset, local_batch, gate
        self._rows = preset.rows(shard.neighbours) if shard.neighbours else None
        # Two replicas of a gate start from other weights and must see the same batch.
        self._stream = (SYNTHETIC_SEED if gate else seed, shard.index)
        self._fixed_inputs = self._draw() if gate else None
        self._skip_bad = source.skip_bad
        self._bad: set[int] = set()
        if source.synthetic:
            rng = np.random.default_rng((SYNTHETIC_SEED, shard.index))
            self.fixed = self._cut(data.synthetic_batch(preset, local_batch, rng))
            return
        # Whole samples where bad ones are skipped: ranks that share a sample find the same ones bad.
        rows = {"rows": self._rows} if self._rows and not source.skip_bad else {}
        self._reads_rows = bool(rows)
        self._samples = data.open_samples(source, preset, seed=self._stream, **rows)
        self.num_samples = len(self._samples)
        self._places = training_samples(self.num_samples, share=source.held_out)
        self._shard, self._order_seed = shard, ORDER_SEED + source.order
        self._order = self._indices()
        if gate:
            self.fixed = self._read()

    def begin_at(self, num_drawn: int) -> None:
        """Go on as after so many batches, between two of them. Samples left out meanwhile are not known."""
        skipped, self.num_drawn = (num_drawn - self.num_drawn) * self._local_batch, num_drawn
        if self.fixed is None:
            self._samples.skip(skipped)
            self._order = self._indices()

    def samples(self) -> Iterator[Arrays]:
        """Endless local batches as `Samples.read` gives them."""
        while True:
            yield self.fixed or self._read()

    def step_inputs(self) -> Arrays:
        """The inputs of this step besides the samples: masks, z and the like (`DataModule.step_inputs`)."""
        inputs = self._draw() if self._fixed_inputs is None else self._fixed_inputs
        self.num_drawn += 1
        return inputs

    def _draw(self) -> Arrays:
        rng = np.random.default_rng((*self._stream, self.num_drawn))
        return self._cut(self._data.step_inputs(self._preset, self._local_batch, rng, gate=self._gate))

    def _cut(self, arrays: Arrays) -> Arrays:
        return arrays if self._rows is None else tuple(map(self._rows.cut, arrays))

    def _indices(self) -> Iterator[int]:
        batches = shard_indices(
            len(self._places),
            shard=self._shard,
            local_batch=self._local_batch,
            seed=self._order_seed,
            begin=self.num_drawn,
        )
        return (int(self._places[place]) for batch in batches for place in batch)

    def _read(self) -> Arrays:
        wanted = [next(self._order) for _ in range(self._local_batch)]
        while True:
            wanted = [index if index not in self._bad else self._another() for index in wanted]
            self.last_samples = np.asarray(wanted)
            try:
                arrays = self._samples.read(self.last_samples)
                return arrays if self._reads_rows else self._cut(arrays)
            except BadSample as error:
                if not self._skip_bad:
                    raise
                self._bad.add(error.index)

    def _another(self) -> int:
        if len(self._bad) >= len(self._places):
            raise UsageError(f"all {len(self._bad)} samples are bad; nothing is left to train on")
        while True:  # epochs are shuffled, so a good one comes
            self.num_skipped += 1
            if (index := next(self._order)) not in self._bad:
                return index
