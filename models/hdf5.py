"""Whether all values of an HDF5 dataset are stored: what is missing, HDF5 reads as zeros without a word.

A virtual dataset is a map of others, perhaps of other files, and of itself, which ends the process by a signal when it
is read; a chunk that was never written has the fill value. So both are looked for before anything is read.

A damaged file can do more: HDF5 loops without an end, or ends its process by a signal. So a file that a user named is
first examined by a helper, which is this module as a program; what it refuses, dlscale never opens.

A study's plan takes this module along, so h5py is imported where a file is read.
"""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dlscale.base.errors import UsageError
from dlscale.base.variables import HELPER, passed_on

if TYPE_CHECKING:
    import h5py

# What h5py raises for a damaged file, besides OSError: of its heap, its types, its shapes.
DAMAGES = (OSError, RuntimeError, KeyError, ValueError, TypeError, MemoryError)
MOST_NESTED = 8  # virtual datasets of virtual datasets
SAME_FILE = "."  # HDF5's name, in a map, of the file that holds it
BLOCK = "%b"  # in a name: one source for each block, numbered from 0
LIMIT_SECONDS = 30  # to examine a file; a whole one takes the time of reading its first and last rows


class Needs(NamedTuple):
    """What a file is to hold: the datasets of one of the layouts. `remedy` says what to do about one that does not."""

    layouts: tuple[tuple[str, ...], ...]
    remedy: str


def examine(paths: Sequence[Path], needs: Needs) -> None:
    """Returns if `open_file` takes the files and ends, tried in a process of its own, once as long as none changes.

    Raises UsageError for the first file that is refused, ends that process, or takes it more than LIMIT_SECONDS.
    """
    if problem := _problem(tuple(map(_state, paths)), needs, LIMIT_SECONDS):
        raise UsageError(problem)


def open_file(path: Path, needs: Needs) -> tuple[h5py.File, tuple[str, ...]]:
    """A file, open for reading, and the names of its datasets, of which every value is stored. Raises UsageError."""
    import h5py

    if not path.is_file():
        kind = "a folder" if path.is_dir() else "no file of that name"
        raise UsageError(f"{path}: need an HDF5 file and found {kind}; check its name")
    try:
        file = h5py.File(path, "r")
    except DAMAGES as error:
        raise UsageError(f"{path}: {_unopened(error)}") from error
    names = _find_layout(file, path, needs)
    for name in names:
        check_stored(file[name], path)
    return file, names


def check_stored(dataset: h5py.Dataset, path: Path) -> None:
    """Returns if every value of a dataset of the file `path` is stored in an HDF5 file. Raises UsageError."""
    where = f"{path}: {_name(dataset)!r}"
    try:
        _check(dataset, Path(dataset.file.filename), where, nested=0)  # a link may lead to another file
    except DAMAGES as error:
        raise UsageError(
            f"{where} cannot be read ({reason(error)}); the file is damaged: copy or make it again"
        ) from error


def reason(error: BaseException) -> str:
    """An error of HDF5's in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def _unopened(error: BaseException) -> str:
    """Why a file cannot be opened as HDF5, and what to do."""
    text = reason(error)
    if "unable to lock file" in text:
        return (
            f"cannot be opened as HDF5 ({text}): another program has it open for writing; wait for it, or on a file "
            "system without locks set HDF5_USE_FILE_LOCKING=FALSE"
        )
    return f"cannot be opened as HDF5 ({text}); copy it again, or choose another one"


def _check(dataset: h5py.Dataset, path: Path, where: str, *, nested: int) -> None:
    import h5py

    if dataset.shape is None:
        raise UsageError(f"{where} has no values, and no shape for any; write it, or copy the file again")
    if not dataset.size:
        return
    if dataset.is_virtual:
        _check_sources(dataset, path, where, nested=nested)
        return
    if dataset.external:
        raise UsageError(
            f"{where} has its values in {dataset.external[0][0]}, which is no HDF5 file, and HDF5 reads what is not "
            "there as zeros; copy them into a dataset"
        )
    properties = dataset.id.get_create_plist()
    filters = [properties.get_filter(place) for place in range(properties.get_nfilters())]
    for number, *_, name in filters:
        if not h5py.h5z.filter_avail(number):
            raise UsageError(
                f"{where} is packed with filter {number} ({name.decode(errors='replace') or 'no name'}), which HDF5 "
                "does not have here; unpack it by h5repack -f NONE, or name the filter's folder in HDF5_PLUGIN_PATH"
            )
    missing = _missing_chunks(dataset, packed=bool(filters))
    if missing:
        raise UsageError(
            f"{where} was not written whole ({missing}), and HDF5 reads the rest as {dataset.fillvalue}; write it, or "
            "copy the file again"
        )


def _check_sources(dataset: h5py.Dataset, path: Path, where: str, *, nested: int) -> None:
    import h5py

    if nested == MOST_NESTED:
        raise UsageError(
            f"{where} is virtual, and its sources are virtual {MOST_NESTED} times over, or come back to itself; make "
            "it of datasets that hold numbers"
        )
    sources = dataset.virtual_sources()
    num_mapped = _num_mapped(sources, dataset.shape)
    if num_mapped is not None and num_mapped < dataset.size:
        raise UsageError(
            f"{where} is virtual, with sources for {num_mapped} of its {dataset.size} values, and HDF5 reads the rest "
            f"as {dataset.fillvalue}; map all of it"
        )
    for file_name, dataset_name in sorted({(source.file_name, source.dset_name) for source in sources}):
        file = path
        if file_name != SAME_FILE:
            file = _existing(file_name.replace(BLOCK, "0"), path, where)
        inner = dataset_name.replace(BLOCK, "0")
        try:
            with h5py.File(file, "r") as opened:
                source = opened.get(inner)
                if not isinstance(source, h5py.Dataset):
                    raise UsageError(
                        f"{where} is virtual, and its source {file} has no dataset {inner!r}, which HDF5 reads as "
                        f"{dataset.fillvalue}; copy the source again"
                    )
                _check(source, file, where, nested=nested + 1)
        except OSError as error:
            raise UsageError(
                f"{where} is virtual, and its source {file} cannot be opened ({' '.join(str(error).split())}); copy "
                "the source again"
            ) from None


def _existing(name: str, path: Path, where: str) -> Path:
    """A file that a dataset's values are in: beside its own file, or where the command is given."""
    for file in (path.parent / name, Path(name)):
        if file.is_file():
            return file
    raise UsageError(f"{where} has its values in {name}, which is not there; copy it beside {path.name}")


def _num_mapped(sources: Sequence[Any], shape: tuple[int, ...]) -> int | None:
    """Values of a map that have a source, or several; None if it has no end: such maps grow with their sources."""
    import h5py

    mapped = h5py.h5s.create_simple(shape)
    mapped.select_none()
    try:
        for space in (source.vspace for source in sources):
            if space.get_select_npoints() == math.prod(shape):
                return math.prod(shape)
            for begin, end in space.get_select_hyper_blocklist():
                mapped.select_hyperslab(tuple(begin), tuple(end - begin + 1), op=h5py.h5s.SELECT_OR)
    except RuntimeError:
        return None
    return int(mapped.get_select_npoints())


def _missing_chunks(dataset: h5py.Dataset, *, packed: bool) -> str:
    """How much of a dataset that is not virtual was never written; empty if nothing."""
    import h5py

    if dataset.chunks is None:
        written = dataset.id.get_space_status() != h5py.h5d.SPACE_STATUS_NOT_ALLOCATED
        return "" if written else "no value of it was"
    pairs = zip(dataset.shape, dataset.chunks, strict=True)
    wanted = math.prod(-(-length // chunk) for length, chunk in pairs)
    found = dataset.id.get_num_chunks()
    if found < wanted:
        return f"{found} of {wanted} chunks were"
    num_bytes = found * math.prod(dataset.chunks) * dataset.id.get_type().get_size()
    written = dataset.id.get_storage_size()
    return "" if packed or written >= num_bytes else f"{written} of {num_bytes} bytes of its chunks were"


def _name(dataset: h5py.Dataset) -> str:
    return str(dataset.name).lstrip("/")


def _find_layout(file: h5py.File, path: Path, needs: Needs) -> tuple[str, ...]:
    import h5py

    held: list[str | bytes] = []  # bytes: a name that is not UTF-8
    try:
        for names in needs.layouts:
            if all(isinstance(file.get(name), h5py.Dataset) for name in names):
                return names
        file.visit(held.append)
    except DAMAGES as error:
        raise UsageError(
            f"{path}: its datasets cannot be listed ({reason(error)}); the file is damaged: copy or make it again"
        ) from error
    wanted = " or ".join(" and ".join(map(repr, names)) for names in needs.layouts)
    raise UsageError(
        f"{path}: needs datasets {wanted}, and holds: {', '.join(map(str, held[:8])) or 'nothing'}; {needs.remedy}"
    )


State = tuple[str, int, int, int]


def _state(path: Path) -> State:
    """What changes when the file does; a file that is not there has none."""
    try:
        found = path.stat()
    except OSError:
        return str(path), 0, 0, 0
    return str(path), found.st_ino, found.st_size, found.st_mtime_ns


@lru_cache(maxsize=64)
def _problem(states: tuple[State, ...], needs: Needs, limit_seconds: int) -> str:
    """What the helper finds wrong with the first file that it refuses; empty if nothing."""
    paths = [path for path, *_ in states]
    helper = subprocess.run(
        [sys.executable, "-P", "-m", "dlscale.models.hdf5"],
        input=json.dumps({"paths": paths, "needs": needs, "limit_seconds": limit_seconds}),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env=passed_on(HELPER),
    )
    answers = helper.stdout.splitlines()
    for answer in answers:
        if problem := str(json.loads(answer)):
            return problem
    if len(answers) == len(paths):
        return ""
    if helper.returncode >= 0:
        raise RuntimeError(f"HDF5 files cannot be examined, exit status {helper.returncode}: {helper.stderr}")
    ended_by = signal.Signals(-helper.returncode)
    found = (
        f"HDF5 did not end reading it within {limit_seconds} s"
        if ended_by is signal.SIGALRM
        else f"HDF5 crashes when it reads it ({ended_by.name})"
    )
    return f"{paths[len(answers)]}: {found}; the file is damaged: copy or make it again"


def _read_ends(file: h5py.File, names: Sequence[str]) -> None:
    """Read the first and the last row of each dataset, and labels whole; what is then wrong, others say."""
    for dataset in (file[name] for name in names):
        rows: tuple[Any, ...] = (0, -1) if dataset.ndim > 1 else ((),)
        for row in rows:
            with suppress(*DAMAGES, IndexError):
                dataset[row]


def main() -> None:
    """Examine the files that standard input names: a line each, of JSON, with what is wrong; empty if nothing."""
    request = json.load(sys.stdin)
    layouts, remedy = request["needs"]
    needs = Needs(tuple(map(tuple, layouts)), remedy)
    for path in map(Path, request["paths"]):
        # Its own alarm ends it though the one who asked is gone, and however deep in HDF5 it is.
        signal.alarm(request["limit_seconds"])
        problem = ""
        try:
            file, names = open_file(path, needs)
            _read_ends(file, names)
        except UsageError as error:
            problem = str(error)
        sys.stdout.write(json.dumps(problem) + "\n")
        sys.stdout.flush()
        if problem:
            return


if __name__ == "__main__":
    main()
