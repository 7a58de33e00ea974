"""What `data()` of a user's file returns, as a `Source`: access to any of its samples.

It may be arrays, a list of HDF5 files, a Dataset with a length, or what yields one sample after the other: a
generator, a tf.data.Dataset, an iterable Dataset. The latter are read to their end by every rank before the first step:
so the order of the samples and the held-out ones are those of every other workload, and yielding is in no step.

A sample is (the network's inputs ..., the label). Real numbers become float32, whole ones int64 where Python gave them;
what is no array of numbers is refused, with the line of `data()`. A sample with a number that is not finite is bad.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.models.hdf5 import Needs, examine, open_file
from dlscale.models.own.file import SEED, OwnFile, text_of
from dlscale.models.own.randomness import generators_of
from dlscale.models.samples import Arrays, BadSample
from dlscale.models.workload import Indices

MOST_BYTES = 4 << 30  # of samples that are kept in the memory of a rank


class Source(Protocol):
    """Access to any sample, as the user's code gives it."""

    random: bool  # whether reading may draw from the global generators
    generators: Sequence[Any]  # and from these
    problem: str  # what is wrong with the first bad sample, where that is known; empty: nothing

    def __len__(self) -> int: ...
    def read(self, indices: Indices) -> Arrays:
        """The samples, in that order, each part with N as its first axis. Raises UsageError."""


class ArraySource:
    """Samples in memory: (N, ...) arrays, one per part of a sample. Whether they are finite is looked at once."""

    random = False
    generators: Sequence[Any] = ()

    def __init__(self, own: OwnFile, arrays: Sequence[NDArray[Any]]) -> None:
        self.arrays = tuple(arrays)
        self._own, self._bad = own, _not_finite(self.arrays)
        self.problem = str(_bad_number(own, int(self._bad[0]))) if len(self._bad) else ""

    def __len__(self) -> int:
        return len(self.arrays[0])

    def read(self, indices: Indices) -> Arrays:
        if len(self._bad) and (bad := indices[np.isin(indices, self._bad)]).size:
            raise _bad_number(self._own, int(bad[0]))
        return tuple(array[indices] for array in self.arrays)


class Hdf5Source:
    """Files with datasets `features` and `labels`, (N, ...) each, as one sequence."""

    random = False
    generators: Sequence[Any] = ()
    problem = ""

    def __init__(self, own: OwnFile, paths: Sequence[Path], *, examined: bool) -> None:
        needs = Needs((("features", "labels"),), f"correct the list that data() of {own.name} returns")
        if examined:
            examine(paths, needs)
        self._own, self._names = own, [path.name for path in paths]
        self._parts: list[tuple[Any, Any]] = []
        for path in paths:
            file, (features, labels) = open_file(path, needs)
            part = file[features], file[labels]
            if not (part[0].shape and part[1].shape[:1] == part[0].shape[:1]):
                raise UsageError(
                    f"{own.name}: {path.name} has features {part[0].shape} and labels {part[1].shape}; both need as "
                    "many samples"
                )
            if self._parts and [p.shape[1:] for p in part] != [p.shape[1:] for p in self._parts[0]]:
                raise UsageError(
                    f"{own.name}: the samples of {path.name} have other shapes than those of {paths[0].name}; give "
                    "files of one kind"
                )
            self._parts.append(part)
        self._ends = np.cumsum([len(features) for features, _ in self._parts])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def read(self, indices: Indices) -> Arrays:
        found: list[Any] = [None] * len(indices)
        for place in np.argsort(indices, kind="stable"):  # forward, so that a chunk is read only once
            index = int(indices[place])
            number = int(np.searchsorted(self._ends, index, side="right"))
            row = index - int(self._ends[number]) + len(self._parts[number][0])
            try:
                found[place] = tuple(part[row] for part in self._parts[number])
            except OSError as error:
                raise BadSample(
                    f"{self._own.name}: sample {index} of data() cannot be read, row {row} of {self._names[number]} "
                    f"({' '.join(str(error).split())}); copy or make the file again",
                    index=index,
                ) from error
        return _stacked(self._own, found, indices)


class DatasetSource:
    """What has a length and any sample by its number, such as a torch Dataset."""

    random = True
    problem = ""

    def __init__(self, own: OwnFile, dataset: Any) -> None:
        self._own, self._dataset = own, dataset
        self.generators: Sequence[Any] = generators_of(dataset) if hasattr(dataset, "__dict__") else []
        self._shapes = [part.shape for part in self._sample(0)]

    def __len__(self) -> int:
        return len(self._dataset)

    def read(self, indices: Indices) -> Arrays:
        """`Source.read`. Raises UsageError for a sample of another shape than the first one."""
        found = []
        for index in map(int, indices):
            sample = self._sample(index)
            if (shapes := [part.shape for part in sample]) != self._shapes:
                raise UsageError(
                    f"{self._own.name}{_line_of_method(self._dataset)}: sample {index} has shapes {_listed(shapes)}, "
                    f"and the first one {_listed(self._shapes)}; all samples need the same"
                )
            found.append(sample)
        return _stacked(self._own, found, indices)

    def _sample(self, index: int) -> Arrays:
        what = f"sample {index} of data()"
        try:
            item = self._own.run(lambda: self._dataset[index], what=what)
            return _parts(self._own, item, what=f"sample {index}")
        except UsageError as error:
            raise BadSample(str(error), index=index) from error


_opened_sources: dict[OwnFile, Source] = {}


def open_source(own: OwnFile, framework: str, *, examined: bool = False) -> Source:
    """The samples of the file, opened once in this process. Raises UsageError.

    `examined`: HDF5 files first by a process of their own, which they may end; ranks open what was planned with.
    """
    if own not in _opened_sources:
        _opened_sources[own] = read_source(own, framework, examined=examined)
    return _opened_sources[own]


def read_source(own: OwnFile, framework: str, *, examined: bool = False) -> Source:
    """What `data()` gives, with the generators where they were when the file had been read. Raises UsageError."""
    importlib.import_module(f"dlscale.models.own._{framework}").seed(SEED)
    own.states.restore()
    source = _source(own, own.call("data"), framework, examined=examined)
    if not own.run(lambda: len(source), what="len() of data()"):
        raise UsageError(f"{own.name}: data() has no samples; nothing can be trained on")
    return source


def _source(own: OwnFile, data: Any, framework: str, *, examined: bool) -> Source:
    kind = type(data).__name__
    if _is_batched(data):
        raise UsageError(
            f"{own.where('data')}: data() returned a {kind}, which gives batches; return single samples, as a "
            "Dataset or arrays: batches are made here"
        )
    if isinstance(data, Mapping) or (hasattr(data, "columns") and hasattr(data, "iloc")):
        raise UsageError(f"{own.where('data')}: data() returned a {kind}; return (features, labels) of it")
    if isinstance(data, str | Path):
        data = [data]
    if isinstance(data, list) and data and all(isinstance(item, str | Path) for item in data):
        return Hdf5Source(own, [_found(own, Path(item)) for item in data], examined=examined)
    if isinstance(data, tuple) or (isinstance(data, list) and data and all(map(_is_array, data))):
        return _from_arrays(own, data, framework)
    if not _is_stream(data):
        return DatasetSource(own, data)
    if not isinstance(data, Iterable):
        raise UsageError(
            f"{own.where('data')}: data() returned a {kind}; return (features, labels), a Dataset, a list of HDF5 "
            "files, or yield samples"
        )
    return ArraySource(own, [laid_out(part, framework) for part in _read_all(own, data)])


def _is_array(value: Any) -> bool:
    return bool(getattr(value, "shape", ()))


def _is_batched(data: Any) -> bool:
    """Whether it gives batches: a DataLoader, a PyDataset of Keras, a tf.data.Dataset that was batched."""
    if hasattr(data, "batch_sampler") or any(kind.__name__ == "PyDataset" for kind in type(data).__mro__):
        return True
    while hasattr(data, "element_spec"):
        kind = type(data).__name__
        if "Batch" in kind or "Unbatch" in kind:
            return "Unbatch" not in kind
        data = getattr(data, "_input_dataset", None)
    return False


def _is_stream(data: Any) -> bool:
    """Whether it gives samples in its own order alone; a tf.data.Dataset has a length and no numbers."""
    return not (hasattr(type(data), "__getitem__") and hasattr(type(data), "__len__"))


def _found(own: OwnFile, path: Path) -> Path:
    """A path of the list: relative ones are beside the file, or in the working directory."""
    beside = own.origin.parent / path
    return beside if beside.exists() else path


def _from_arrays(own: OwnFile, data: Sequence[Any], framework: str) -> ArraySource:
    if data and all(isinstance(part, tuple | list) and any(map(_is_array, part)) for part in data):
        raise UsageError(
            f"{own.where('data')}: data() returned {len(data)} parts with (features, labels) each; return all samples "
            "as one (features, labels), since held-out ones are cut from them here"
        )
    names = ["features", *(f"input {number}" for number in range(2, len(data))), "labels"]
    pairs = zip(data, names[-len(data) :], strict=True)
    arrays = [_as_array(own, part, what=name) for part, name in pairs]
    sizes = [array.shape[:1] for array in arrays]
    if len(arrays) < 2 or any(size != sizes[0] or not size for size in sizes):
        raise UsageError(
            f"{own.where('data')}: data() returned arrays of shapes {_listed(array.shape for array in arrays)}; return "
            "(features, labels), with as many samples each"
        )
    return ArraySource(own, [laid_out(array, framework) for array in arrays])


def _read_all(own: OwnFile, stream: Iterable[Any]) -> list[NDArray[Any]]:
    """The samples of a stream, to its end or to the file's `num_samples`, as (N, ...) arrays."""
    limit = own.number("num_samples", sys.maxsize)
    samples: list[Arrays] = []
    num_bytes = 0
    begun: Iterator[Any] = own.run(lambda: iter(stream), what="data()")
    while len(samples) < limit:
        item = own.run(lambda: next(begun, begun), what=f"data() after {len(samples)} samples")
        if item is begun:
            break
        sample = _parts(own, item, what=f"sample {len(samples)}")
        shapes = [part.shape for part in sample]
        if samples and shapes != (first := [part.shape for part in samples[0]]):
            raise UsageError(
                f"{own.name}{_line_of(begun)}: data() yielded shapes {_listed(shapes)} for sample {len(samples)}, and "
                f"{_listed(first)} for the first one; all samples need the same (no batches: these are made here)"
            )
        samples.append(sample)
        num_bytes += sum(part.nbytes for part in sample)
        if num_bytes > MOST_BYTES:
            raise UsageError(
                f"{own.name}{_line_of(begun)}: data() yielded more than {MOST_BYTES >> 30} GiB in {len(samples)} "
                "samples, which every rank keeps; write num_samples = N into the file, or return a Dataset"
            )
    if limit != sys.maxsize and len(samples) < limit:
        raise UsageError(
            f"{own.where('data')}: data() ended after {len(samples)} samples, and the file says "
            f"num_samples = {limit}; yield as many, or correct the number"
        )
    return [np.stack(parts) for parts in zip(*samples, strict=True)] if samples else [np.empty(0)] * 2


def _parts(own: OwnFile, item: Any, *, what: str) -> Arrays:
    """A sample as arrays: the network's inputs, and the label last."""
    if not isinstance(item, tuple | list) or len(item) < 2:
        raise UsageError(
            f"{own.where('data')}: {what} of data() is a {type(item).__name__}; it must be (features, label), or "
            "several inputs and then the label"
        )
    return tuple(_as_array(own, part, what=f"a part of {what}") for part in item)


def _as_array(own: OwnFile, value: Any, *, what: str) -> NDArray[Any]:
    """An array of numbers, as networks here take them. Raises UsageError for anything else."""
    try:
        array = _array_of(value)
    except Exception as error:
        raise UsageError(
            f"{own.where('data')}: data() returned {what} of which NumPy makes no array ({text_of(error)}); give "
            "numbers of one shape"
        ) from error
    if np.ma.isMaskedArray(array):
        if np.ma.is_masked(array):
            raise UsageError(
                f"{own.where('data')}: data() returned {what} with masked values; fill them or leave them out"
            )
        array = np.ma.getdata(array)
    if array.dtype.name.startswith(("bfloat", "float8")):
        array = array.astype(np.float32)
    if array.dtype.kind not in NUMBERS:
        kind = KINDS.get(array.dtype.kind, str(array.dtype))
        raise UsageError(
            f"{own.where('data')}: data() returned {what} of type {kind}; give numbers of one shape, and labels as "
            "whole numbers from 0 or as real ones"
        )
    return _converted(np.asarray(array))


def _array_of(value: Any) -> NDArray[Any]:
    if not hasattr(value, "detach"):
        return np.asanyarray(value)
    try:
        return np.asanyarray(value.detach())
    except TypeError:  # torch's bfloat16, which NumPy does not have
        return np.asarray(value.detach().float())


NUMBERS = "biufc"
KINDS = {"U": "text", "S": "text", "O": "Python object", "M": "date", "m": "span of time"}
AS_READ = {
    **dict.fromkeys(("float16", "float64", "float128", "longdouble"), np.float32),
    **dict.fromkeys(("complex128", "complex256"), np.complex64),
    "uint16": np.int32,
    **dict.fromkeys(("uint32", "uint64"), np.int64),
}  # the type in the place of one that no network here computes in, and in which torch has no operations


def _converted(array: NDArray[Any]) -> NDArray[Any]:
    """The numbers in a type that networks take, in this machine's order of bytes."""
    wanted = AS_READ.get(array.dtype.name, array.dtype.newbyteorder("="))
    return array.astype(wanted, copy=False)


def _not_finite(arrays: Iterable[NDArray[Any]]) -> NDArray[np.int64]:
    """The places of samples with a number that is not finite, ascending."""
    # The sum is not finite if one number is not; what overflows is looked at one by one.
    suspect = [array for array in arrays if array.dtype.kind in "fc" and not np.isfinite(_sum(array))]
    bad = [~np.isfinite(array).reshape(len(array), -1).all(axis=1) for array in suspect]
    return np.flatnonzero(np.any(bad, axis=0)) if bad else np.zeros(0, np.int64)


def _sum(array: NDArray[Any]) -> Any:
    with np.errstate(all="ignore"):
        return array.sum()


def _bad_number(own: OwnFile, index: int) -> BadSample:
    return BadSample(
        f"{own.where('data')}: sample {index} of data() has a number that is not finite; correct or remove it, or "
        "leave bad samples out (--set skip_bad=yes)",
        index=index,
    )


def laid_out(array: NDArray[Any], framework: str) -> NDArray[Any]:
    """Images in the order of `samples`, (N, H, W, C): torch's are moved, and seen as they were by the network."""
    if framework == "torch" and array.ndim == 4:
        return np.ascontiguousarray(np.moveaxis(array, 1, -1))
    return array


def _stacked(own: OwnFile, samples: Sequence[Arrays], indices: Indices) -> Arrays:
    arrays = tuple(_converted(np.stack(parts)) for parts in zip(*samples, strict=True))
    if (bad := _not_finite(arrays)).size:
        raise _bad_number(own, int(indices[bad[0]]))
    return arrays


def _listed(shapes: Iterable[tuple[int, ...]]) -> str:
    return " and ".join(f"({', '.join(map(str, shape))})" for shape in shapes)


def _line_of(stream: Any) -> str:
    """Where a generator stands; empty for anything else, and at its end."""
    frame = getattr(stream, "gi_frame", None)
    return f", line {frame.f_lineno}" if frame else ""


def _line_of_method(dataset: Any) -> str:
    code = getattr(type(dataset).__getitem__, "__code__", None)
    return f", line {code.co_firstlineno}" if code else ""
