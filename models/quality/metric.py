"""How the quality of a training is measured on held-out samples, piece by piece and on any number of ranks.

A workload's `quality.py` has what `QualityModule` asks for. Pieces have the same samples whatever the number of ranks,
so that every network sees the same batches and a metric does not depend on how many ranks shared the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.models.samples import Arrays, BadSample, DataModule, Samples, held_out_samples
from dlscale.models.workload import Input, Preset, Shard

PIECE = 64  # samples that a network is given at once
KEPT_BYTES = 256 << 20  # of held-out samples in a rank's memory; further ones are read at every evaluation

Predict = Callable[..., NDArray[Any]]  # `Replica.predict`
Measured = Mapping[str, NDArray[Any]]
"""What is known of each held-out sample, by name; the first axis is that of the samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A number that says how good a trained network is, between `least` and `most`."""

    text: str  # what it is, in a few words
    higher_is_better: bool = True
    least: float = 0.0
    most: float = 1.0

    def reached(self, value: float, threshold: float) -> bool:
        """Whether `value` is as good as the threshold."""
        return value >= threshold if self.higher_is_better else value <= threshold


class QualityModule(Protocol):
    """The interface of `models/<workload>/quality.py`. Nothing in it imports a framework."""

    METRICS: Mapping[str, Metric]

    def read(self, samples: Samples, indices: NDArray[np.int64]) -> Arrays:
        """What `measure` needs of the samples `indices`, each array with N as its first axis."""

    def measure(self, predict: Predict, *arrays: NDArray[Any]) -> Measured:
        """What the metrics need to know of those samples, with the network as it is now."""

    def metrics(self, measured: Measured) -> dict[str, float]:
        """The metrics over all held-out samples. Raises ValueError where they say nothing."""


def read_usable(
    quality: QualityModule, samples: Samples, indices: NDArray[np.int64], *, skip_bad: bool
) -> tuple[Arrays | None, set[int]]:
    """What `measure` needs of those samples, and which of them are bad; None if all are.

    Raises BadSample for the first bad one, unless such are left out.
    """
    bad: set[int] = set()
    while len(indices):
        try:
            return quality.read(samples, indices), bad
        except BadSample as error:
            if not skip_bad or error.index not in indices:
                raise
            bad.add(error.index)
            indices = indices[indices != error.index]
    return None, bad


class HeldOut:
    """The held-out samples of an input, at least one, open for reading. Those that are `bad` are left out if they may.

    Raises UsageError if there is none.
    """

    def __init__(self, data: DataModule, quality: QualityModule, *, preset: Preset, source: Input) -> None:
        self._quality = quality
        self._samples = data.open_samples(source, preset, seed=None)
        indices = held_out_samples(len(self._samples), share=source.held_out)
        if not len(indices):
            raise UsageError(
                f"{source.path}: of {len(self._samples)} samples none is held out at a share of {source.held_out:g}; "
                "raise the share or give more samples"
            )
        self.indices = indices
        self.num_samples = len(indices)
        self.num_training = len(self._samples) - len(indices)
        self._pieces = [indices[begin : begin + PIECE] for begin in range(0, len(indices), PIECE)]
        self.bad: set[int] = set()  # of this rank's pieces, as far as they were read
        self._skip_bad = source.skip_bad
        self._kept: dict[int, Arrays] = {}
        self._kept_bytes = 0

    def measure(self, predict: Predict, shard: Shard) -> Iterator[tuple[int, Measured]]:
        """(number of the piece, what was measured) of this rank's pieces, but for those without a good sample."""
        for number in range(shard.index, len(self._pieces), shard.count):
            arrays = self._read(number)
            if arrays is not None:
                yield number, self._quality.measure(predict, *arrays)

    def metrics(self, pieces: Sequence[tuple[int, Measured]]) -> dict[str, float]:
        """The metrics of all pieces, whatever rank each is from. Values that are not numbers are left out.

        Raises UsageError if there is no piece.
        """
        if not pieces:
            raise UsageError(f"all {self.num_samples} held-out samples are bad; nothing can be evaluated")
        ordered = [measured for _, measured in sorted(pieces, key=lambda piece: piece[0])]
        whole = {name: np.concatenate([piece[name] for piece in ordered]) for name in ordered[0]}
        found = self._quality.metrics(whole)
        return {name: float(value) for name, value in found.items() if np.isfinite(value)}

    def _read(self, number: int) -> Arrays | None:
        if number in self._kept:
            return self._kept[number]
        arrays, bad = read_usable(self._quality, self._samples, self._pieces[number], skip_bad=self._skip_bad)
        self.bad |= bad
        size = sum(array.nbytes for array in arrays or ())
        if arrays and self._kept_bytes + size <= KEPT_BYTES:
            self._kept[number] = arrays
            self._kept_bytes += size
        return arrays
