"""Local batches of labelled images: what `data.py` of ResNet-50 and Inception v3 have in common.

No images can be shipped with dlscale, so that the default input of these workloads is synthetic; real ones are
given as a path that `open_store` knows (`--data PATH`).
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.models.images import open_store
from dlscale.models.images.decode import evaluation_image, training_image
from dlscale.models.images.store import Encoded, ImageStore, bad_sample
from dlscale.models.parallel import Rows
from dlscale.models.samples import BadSample
from dlscale.models.workload import Input, Preset

Images = tuple[NDArray[np.float32], NDArray[np.int64]]


def default_input(preset: Preset) -> Input:  # noqa: ARG001
    """Resident tensors: of a data set that could be published with the program there is none."""
    return Input()


def check_input(source: Input, preset: Preset, *, num_samples: int = 1) -> None:
    """Returns if `source` can feed the preset with `num_samples` or more; of the images two are read.

    Raises UsageError if it cannot be opened, has more classes than the preset, fewer samples than needed, or if
    the first or the last sample is bad; the latter only where bad samples are not skipped.
    """
    if source.path is None:
        return
    store = open_store(source.path, skip_bad=source.skip_bad)
    try:
        _check_size(store, preset, num_samples)
        samples = ImageSamples(store, preset, seed=(0, 0))
        for index in (0, len(store) - 1):
            try:
                samples.read(np.array([index]))
            except BadSample:
                if not source.skip_bad:
                    raise
    finally:
        store.close()


def open_samples(
    source: Input, preset: Preset, *, seed: tuple[int, int] | None, rows: Rows | None = None
) -> ImageSamples:
    """The images of `source`, or `rows` of them, cropped and mirrored at random. Raises UsageError."""
    if source.path is None:
        raise UsageError("synthetic images are resident tensors, not samples to be read; name a --data PATH")
    # What is measured is read without drawing.
    store = open_store(source.path, skip_bad=source.skip_bad)
    return ImageSamples(store, preset, seed=seed or (0, 0), rows=rows)


def synthetic_batch(preset: Preset, local_batch: int, rng: np.random.Generator) -> Images:
    """Images (N, H, W, C) of normally distributed values, as normalised ones are, and uniform labels (N)."""
    channels, height, width = preset.input_shape
    images = rng.standard_normal((local_batch, height, width, channels), dtype=np.float32)
    return images, rng.integers(preset.num_classes, size=local_batch)


class ImageSamples:
    """Training images of a store in the preset's size. `len()` of it is their number.

    Crops are drawn by (seed, number of images read before), so they do not depend on how many threads decode:
    as many as this process has cores, for a waiting rank's cores are idle. With `rows` a whole crop is drawn and cut.
    """

    def __init__(
        self, store: ImageStore, preset: Preset, *, seed: tuple[int, int], rows: Rows | None = None
    ) -> None:
        self._rows = slice(None) if rows is None else rows.own(preset.input_shape[1])
        self._store, self._preset, self._seed = store, preset, seed
        self._num_read = 0
        num_threads = len(os.sched_getaffinity(0))
        self._threads = ThreadPoolExecutor(num_threads) if num_threads > 1 else None

    def __len__(self) -> int:
        return len(self._store)

    def skip(self, count: int) -> None:
        """Crop as after `count` images have been read."""
        self._num_read += count

    def read(self, indices: NDArray[np.int64]) -> Images:
        """Images (N, H, W, C) and labels (N) of the samples `indices`, in that order; repeats are allowed.

        Raises BadSample for one that is damaged or has a label outside the classes, IndexError for one that does
        not exist.
        """
        if np.any((indices < 0) | (indices >= len(self))):
            raise IndexError(f"samples 0 to {len(self) - 1} exist, {indices.tolist()} were asked for")
        stored, first = self._stored(indices), self._num_read
        self._num_read += len(indices)
        channels, height, width = self._preset.input_shape
        num_rows = len(range(height)[self._rows])
        images = np.empty((len(indices), num_rows, width, channels), dtype=np.float32)

        def decode(place: int) -> None:
            rng = np.random.default_rng((*self._seed, first + place))
            images[place] = training_image(stored[place], rng, height=height, width=width)[self._rows]

        places = range(len(indices))
        list(self._threads.map(decode, places) if self._threads else map(decode, places))
        return images, np.array([sample.label for sample in stored], dtype=np.int64)

    def read_for_evaluation(self, indices: NDArray[np.int64]) -> Images:
        """What `read` gives, with the central part of each image in the place of a random crop; nothing is drawn."""
        _, height, width = self._preset.input_shape
        stored = self._stored(indices)
        images = np.stack([evaluation_image(sample, height=height, width=width) for sample in stored])
        return images, np.array([sample.label for sample in stored], dtype=np.int64)

    def _stored(self, indices: NDArray[np.int64]) -> list[Encoded]:
        samples = [self._store.encoded(index) for index in indices.tolist()]
        for sample in samples:
            if not 0 <= sample.label < self._preset.num_classes:
                what = f"label {sample.label}, where preset {self._preset.name} has 0 to {self._preset.num_classes - 1}"
                raise bad_sample(sample.where, what, index=sample.index)
        return samples


def _check_size(store: ImageStore, preset: Preset, num_samples: int) -> None:
    if len(store) < num_samples:
        raise UsageError(
            f"{store.path}: need at least {num_samples} samples, one global batch, found {len(store)}; choose fewer "
            "ranks, a smaller batch or more data"
        )
    if store.num_classes is not None and store.num_classes > preset.num_classes:
        raise UsageError(
            f"{store.path}: has {store.num_classes} classes, preset {preset.name} only {preset.num_classes}; choose "
            "another --preset or --data"
        )
