"""The samples of a user's file: what `data()` returns, read as `samples.DataModule` asks, and their digest.

It may be arrays, a Dataset with a length, or what yields one sample after the other: a generator, a tf.data.Dataset, an
iterable Dataset. The latter are read to their end by every rank before the first step: so the order of the samples and
the held-out ones are those of every other workload, and yielding is in no step.

A sample is (the network's inputs ..., the label). Real numbers become float32, whole ones int64 where Python gave them,
shapes stay; what is no array of numbers is refused. A sample with a number that is not finite is bad.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.models.own.file import SEED, OwnFile, load_file, text_of
from dlscale.models.own.model import FilePlace, OwnModel, known_place
from dlscale.models.own.randomness import SEED_LIMIT, Generators, seed_frameworks
from dlscale.models.samples import Arrays, BadSample
from dlscale.models.workload import Indices, Input, Preset

MOST_BYTES = 4 << 30  # of samples that are kept in the memory of a rank
WHOLE_BYTES = 256 << 20  # more are identified by their number and some of them
NUM_IDENTIFYING = 64
END = object()


class ArraySource:
    """Samples in memory: (N, ...) arrays, one per part of a sample. Whether they are finite is looked at once."""

    def __init__(self, own: OwnFile, arrays: Arrays) -> None:
        self.arrays = arrays
        self._own, self._bad = own, _not_finite(arrays)

    def __len__(self) -> int:
        return len(self.arrays[0])

    def first_bad(self) -> str:
        """What is wrong with the first bad sample; empty if nothing."""
        return str(_bad_number(self._own, int(self._bad[0]))) if len(self._bad) else ""

    def read(self, indices: Indices) -> Arrays:
        """The samples, in that order, each part with N as its first axis. Raises BadSample."""
        if len(self._bad) and (bad := indices[np.isin(indices, self._bad)]).size:
            raise _bad_number(self._own, int(bad[0]))
        return tuple(array[indices] for array in self.arrays)


class DatasetSource:
    """What has a length and any sample by its number, such as a torch Dataset; reading may draw at random."""

    def __init__(self, own: OwnFile, dataset: Any) -> None:
        self._own, self._dataset = own, dataset
        kept = dataset if hasattr(dataset, "__dict__") else {}
        self.generators = Generators(own.names, kept)
        self._first = self._sample(0) if len(self) else ()

    def __len__(self) -> int:
        return int(self._own.run(lambda: len(self._dataset), what="len() of data()"))

    def read(self, indices: Indices) -> Arrays:
        """As `ArraySource.read`. Raises UsageError for a sample of another shape than the first one."""
        found = [self._sample(int(index), like=self._first) for index in indices]
        arrays = tuple(np.stack(parts) for parts in zip(*found, strict=True))
        if (bad := _not_finite(arrays)).size:
            raise _bad_number(self._own, int(indices[bad[0]]))
        return arrays

    def _sample(self, index: int, like: Arrays | None = None) -> Arrays:
        try:
            item = self._own.run(lambda: self._dataset[index], what=f"sample {index} of data()")
            return _sample(self._own, item, index, like=like)
        except UsageError as error:
            raise BadSample(str(error), index=index) from error


Source = ArraySource | DatasetSource


class OwnSamples:
    """`samples.Samples` of a source.

    What reading draws at random depends on `seed` and the samples read before; without a seed on what is read alone.
    """

    def __init__(self, source: Source, seed: tuple[int, int] | None) -> None:
        self._source, self._seed, self._num_read = source, seed, 0

    def __len__(self) -> int:
        return len(self._source)

    def skip(self, count: int) -> None:
        """Draw what is drawn after `count` more samples."""
        self._num_read += count

    def read(self, indices: Indices) -> Arrays:
        """The samples in that order, each part as the file gives it."""
        if isinstance(self._source, DatasetSource):
            drawn_by = indices if self._seed is None else (*self._seed, self._num_read)
            self._source.generators.seed(int(np.random.default_rng(drawn_by).integers(SEED_LIMIT)))
        self._num_read += len(indices)
        return self._source.read(indices)


@cache
def open_source(own: OwnFile) -> Source:
    """The samples of the file, opened once in this process. Raises UsageError."""
    return read_source(own)


def read_source(own: OwnFile) -> Source:
    """What `data()` gives, with the generators where they were when the file had been run. Raises UsageError."""
    seed_frameworks(SEED)
    own.generators.restore(own.states)
    data = own.call("data")
    kind = type(data)
    if _gives_batches(data):
        raise own.wrong(
            f"data() returned a {kind.__name__}, which gives batches; return single samples, as a Dataset or arrays: "
            "batches are made here",
            at="data",
        )
    source: Source
    if isinstance(data, tuple) or (
        isinstance(data, list) and data and all(hasattr(part, "shape") for part in data)
    ):
        source = ArraySource(own, _arrays(own, data))
    elif hasattr(kind, "__getitem__") and hasattr(kind, "__len__"):
        source = DatasetSource(own, data)
    elif isinstance(data, Iterable):  # a tf.data.Dataset has a length, and no numbers
        source = ArraySource(own, _read_all(own, data))
    else:
        raise own.wrong(
            f"data() returned a {kind.__name__}; return (features, labels), a Dataset, or yield samples",
            at="data",
        )
    if not len(source):
        raise own.wrong("data() has no samples; nothing can be trained on", at="data")
    return source


def read_good(source: Source, count: int) -> tuple[Arrays, str]:
    """So many samples from all over the data, the bad ones left out, and what is wrong with the first of these."""
    samples = OwnSamples(source, (0, 0))
    places = np.unique(np.linspace(0, len(source) - 1, min(count, len(source))).astype(np.int64))
    problem = ""
    while len(places):
        try:
            return samples.read(places), problem
        except BadSample as error:
            problem = problem or str(error)
            places = places[places != error.index]
    raise UsageError(problem)


def data_digest(source: Source) -> str:
    """12 hex digits that differ for other samples.

    They are those of all samples that are in memory, up to 256 MiB, else of their number and 64 of them.
    """
    digest = hashlib.sha256(str(len(source)).encode())
    if isinstance(source, ArraySource) and sum(array.nbytes for array in source.arrays) <= WHOLE_BYTES:
        arrays = source.arrays
    else:
        arrays = read_good(source, NUM_IDENTIFYING)[0]
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:12]


class OwnData:
    """`samples.DataModule` of a file; it is run when samples are opened."""

    def __init__(self, model: OwnModel, place: FilePlace | None) -> None:
        self._model, self._place = model, place

    def open_samples(
        self,
        source: Input,  # noqa: ARG002
        preset: Preset,  # noqa: ARG002
        *,
        seed: tuple[int, int] | None,
    ) -> OwnSamples:
        """The samples that the study was planned with. Raises UsageError if the file has others in this process."""
        own = load_file(known_place(self._model, self._place), self._model.digest)
        opened = open_source(own)
        if (found := _digest_once(opened)) != self._model.data.rpartition(":")[2]:
            raise own.wrong(
                f"data() gives other samples ({len(opened)}, digest {found}) than when the study was planned "
                f"({self._model.num_samples}, {self._model.data}); seed what it draws, or plan again if a file changed",
                at="data",
            )
        return OwnSamples(opened, seed)

    def synthetic_batch(self, preset: Preset, local_batch: int, rng: np.random.Generator) -> Arrays:
        """Resident tensors: some of the file's own samples, for only these are sure to fit the network."""
        self.open_samples(Input(), preset, seed=None)
        good, _ = read_good(open_source(load_file(known_place(self._model, self._place))), local_batch)
        chosen = rng.integers(0, len(good[0]), local_batch)
        return tuple(array[chosen] for array in good)

    def step_inputs(
        self,
        preset: Preset,  # noqa: ARG002
        local_batch: int,  # noqa: ARG002
        rng: np.random.Generator,
        *,
        gate: bool,  # noqa: ARG002
    ) -> Arrays:
        """A seed for what the network draws in this step, such as dropout; nothing for a network without any."""
        return (rng.integers(0, SEED_LIMIT, 1),) if self._model.random else ()


@cache
def _digest_once(source: Source) -> str:
    return data_digest(source)


def _gives_batches(data: Any) -> bool:
    """Whether it is a DataLoader, a PyDataset of Keras, or a tf.data.Dataset that was batched."""
    if hasattr(data, "batch_sampler") or any(kind.__name__ == "PyDataset" for kind in type(data).__mro__):
        return True
    while hasattr(data, "element_spec"):
        kind = type(data).__name__
        if "Batch" in kind or "Unbatch" in kind:
            return "Unbatch" not in kind
        data = getattr(data, "_input_dataset", None)
    return False


def _arrays(own: OwnFile, data: Sequence[Any]) -> Arrays:
    names = ["features", *(f"input {number}" for number in range(2, len(data))), "labels"]
    arrays = tuple(_array(own, part, name) for part, name in zip(data, names[-len(data) :], strict=True))
    sizes = {array.shape[:1] for array in arrays}
    if len(arrays) < 2 or len(sizes) > 1 or () in sizes:
        shapes = " and ".join(str(array.shape) for array in arrays)
        raise own.wrong(
            f"data() returned arrays of shapes {shapes}; return (features, labels), with as many samples each",
            at="data",
        )
    return arrays


def _read_all(own: OwnFile, stream: Iterable[Any]) -> Arrays:
    """The samples of a stream, to its end or to the file's `num_samples`, as (N, ...) arrays."""
    limit = own.number("num_samples", sys.maxsize)
    samples: list[Arrays] = []
    num_bytes = 0
    begun: Iterator[Any] = own.run(lambda: iter(stream), what="data()")
    while len(samples) < limit:
        item = own.run(lambda: next(begun, END), what=f"data() after {len(samples)} samples")
        if item is END:
            break
        samples.append(_sample(own, item, len(samples), like=samples[0] if samples else None))
        num_bytes += sum(part.nbytes for part in samples[-1])
        if num_bytes > MOST_BYTES:
            raise own.wrong(
                f"data() yielded more than {MOST_BYTES >> 30} GiB in {len(samples)} samples, which every rank keeps; "
                "write num_samples = N into the file, or return a Dataset",
                at="data",
            )
    return tuple(np.stack(parts) for parts in zip(*samples, strict=True)) if samples else (np.empty(0),) * 2


def _sample(own: OwnFile, item: Any, number: int, *, like: Arrays | None) -> Arrays:
    """A sample as arrays: the network's inputs, and the label last. Raises UsageError unless it is `like` the first."""
    if not isinstance(item, tuple | list) or len(item) < 2:
        raise own.wrong(
            f"sample {number} of data() is a {type(item).__name__}; it must be (features, label), or several inputs "
            "and then the label",
            at="data",
        )
    sample = tuple(_array(own, part, f"sample {number}") for part in item)
    shapes, first = ([part.shape for part in parts] for parts in (sample, like or sample))
    if shapes != first:
        raise own.wrong(
            f"sample {number} of data() has shapes {shapes}, and the first one {first}; all samples need the same "
            "(no batches: these are made here)",
            at="data",
        )
    return sample


def _array(own: OwnFile, value: Any, what: str) -> NDArray[Any]:
    """An array of numbers, as networks take them. Raises UsageError for anything else."""
    try:
        if hasattr(value, "detach"):
            value = value.detach()
            # NumPy has none of torch's bfloat16.
            value = value.float() if value.dtype.is_floating_point and value.dtype.itemsize < 4 else value
        array = np.asanyarray(value)
    except Exception as error:
        raise own.wrong(
            f"data() returned {what} of which NumPy makes no array ({text_of(error)}); give numbers of one shape",
            at="data",
        ) from error
    kind = "f" if array.dtype.name.startswith(("bfloat", "float8")) else array.dtype.kind
    if kind not in "biufc" or np.ma.is_masked(array):
        found = "with masked values" if kind in "biufc" else f"of type {array.dtype}"
        raise own.wrong(
            f"data() returned {what} {found}; give numbers of one shape, and labels as whole numbers from 0 or as real "
            "ones",
            at="data",
        )
    # Into a type that networks compute in, and in this machine's order of bytes.
    wide: dict[str, np.dtype[Any]] = {"f": np.dtype(np.float32), "c": np.dtype(np.complex64)}
    if kind == "u" and array.dtype.itemsize > 1:
        wide["u"] = np.dtype(np.int64)
    wanted = wide.get(kind, array.dtype.newbyteorder("="))
    return np.asarray(array).astype(wanted, copy=False)


def _not_finite(arrays: Arrays) -> NDArray[np.int64]:
    """The places of samples with a number that is not finite, ascending."""
    with np.errstate(all="ignore"):  # the sum is not finite if one number is not; what overflows is looked at
        suspect = [array for array in arrays if array.dtype.kind in "fc" and not np.isfinite(array.sum())]
    bad = [~np.isfinite(array).reshape(len(array), -1).all(axis=1) for array in suspect]
    return np.flatnonzero(np.any(bad, axis=0)) if bad else np.zeros(0, np.int64)


def _bad_number(own: OwnFile, index: int) -> BadSample:
    text = (
        f"sample {index} of data() has a number that is not finite; correct or remove it, or leave bad samples out "
        "(--set skip_bad=yes)"
    )
    return BadSample(str(own.wrong(text, at="data")), index=index)
