"""GPT's data, as `samples.DataModule` asks for it: any file, whose bytes are the tokens.

Sample k are the bytes from k T on, T of them and one more: each byte but the first is the label of one sample, and no
two samples have an input in common. What is left at the end of the file is not used.

The text that ships with dlscale is what the grammar in `grammar.py` makes. `paper` has another vocabulary, and trains
on random tokens.
"""

from __future__ import annotations

import os
import stat
import weakref
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.models.samples import Arrays, BadSample
from dlscale.models.workload import Input, Preset

BYTES = 256  # different ones: the vocabulary of networks that read files
TEXT = Path(__file__).with_name("text.txt")


class Windows:
    """The samples of a file, open for reading (`samples.Samples`). `len()` of it is their number. Raises UsageError."""

    def __init__(self, path: Path, length: int) -> None:
        self._path, self._length = path, length
        num_bytes = _num_bytes(path)
        self._num_samples = max(num_bytes - 1, 0) // length
        try:
            self._descriptor = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror or error}; give a file of text as --data") from None
        self.close = weakref.finalize(self, os.close, self._descriptor)

    def __len__(self) -> int:
        return self._num_samples

    def skip(self, count: int) -> None:
        """Nothing is drawn at random."""

    def read(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Tokens (N, T) and labels (N, T) of the N samples `indices`, in that order; repeats are allowed.

        Raises BadSample for one that cannot be read, or is not in the file any more.
        """
        windows = np.empty((len(indices), self._length + 1), np.uint8)
        for place, index in enumerate(indices.tolist()):
            if not 0 <= index < len(self):
                raise IndexError(f"sample {index} of {len(self)} in {self._path}")
            windows[place] = self._window(index)
        tokens = windows.astype(np.int64)
        return tokens[:, :-1], tokens[:, 1:]

    def _window(self, index: int) -> NDArray[np.uint8]:
        begin, wanted = index * self._length, self._length + 1
        try:
            content = os.pread(self._descriptor, wanted, begin)
        except OSError as error:
            content, problem = b"", str(error.strerror or error)
        else:
            problem = f"it has no {wanted} bytes from byte {begin} on any more"
        if len(content) < wanted:
            raise BadSample(f"{self._path}: sample {index}: {problem}; do not change the file", index=index)
        return np.frombuffer(content, np.uint8)


def _num_bytes(path: Path) -> int:
    """The size of a regular file. Raises UsageError for what is none."""
    try:
        found = path.stat()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}; give a file of text as --data") from None
    if not stat.S_ISREG(found.st_mode):
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "no regular file"
        raise UsageError(
            f"{path}: is {kind}, and gpt reads the bytes of one file; give a file of text as --data"
        )
    return found.st_size


def default_input(preset: Preset) -> Input:
    """The text that ships with dlscale; for another vocabulary than bytes resident tensors."""
    return Input(path=TEXT) if preset.num_classes == BYTES else Input()


def check_input(source: Input, preset: Preset, *, num_samples: int = 1) -> None:
    """Returns if `source` can feed the preset with `num_samples` or more.

    Raises UsageError for what is no regular file, a file that is too short, and a preset that does not read bytes.
    """
    if source.path is None:
        return
    if preset.num_classes != BYTES:
        raise UsageError(
            f"{source.path} was given to gpt {preset.name}, whose {preset.num_classes:,} tokens are no bytes; leave "
            "--data out, to train it on random tokens, or choose another --preset"
        )
    (length,) = preset.input_shape
    samples = Windows(source.path, length)
    samples.close()
    if len(samples) < num_samples:
        raise UsageError(
            f"{source.path}: has {_num_bytes(source.path):,} bytes, {len(samples)} samples of {length} tokens, and a "
            f"step needs {num_samples}, one global batch; give a longer text, or take smaller batches or fewer ranks"
        )


def open_samples(source: Input, preset: Preset, *, seed: tuple[int, int] | None) -> Windows:  # noqa: ARG001
    """`source`, open for reading; nothing is drawn at random. Raises UsageError."""
    if source.path is None:
        raise ValueError("synthetic tokens are in no file")
    return Windows(source.path, preset.input_shape[0])


def synthetic_batch(preset: Preset, local_batch: int, rng: np.random.Generator) -> Arrays:
    """Random tokens (N, T), and labels (N, T) that follow them."""
    (length,) = preset.input_shape
    tokens = rng.integers(preset.num_classes, size=(local_batch, length + 1), dtype=np.int64)
    return np.ascontiguousarray(tokens[:, :-1]), np.ascontiguousarray(tokens[:, 1:])


def step_inputs(preset: Preset, local_batch: int, rng: np.random.Generator, *, gate: bool) -> Arrays:  # noqa: ARG001
    """Nothing: the network has no dropout."""
    return ()
