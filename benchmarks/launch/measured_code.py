"""The code that runs between the stamps: its files, what of it a study runs, and the digests of that.

A study's digest covers the shared files, and those of its own workloads and backends: a change in another workload or
backend makes no measurement stale.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
from collections.abc import Collection, Iterator, Mapping
from importlib import resources
from pathlib import Path

from dlscale.base.definitions import Frozen
from dlscale.base.strings import Text
from dlscale.collectives.capabilities import NAMES as BACKENDS
from dlscale.models import NAMES as WORKLOADS

BUILD_FILE = "build.json"  # beside the ring's extension, written by its CMakeLists.txt
PACKAGES = ("models", "collectives", "benchmarks.rank")
MODULES = ("records/spool",)  # of dlscale.benchmarks
BORROWED = {"nccl": ("tf_collective",)}  # backends whose files another one runs too
DIGITS = 16
OWN = "own"  # the folder of models/ that brings users' files
SHOWN = 3  # names of changed files


class MeasuredCode(Frozen):
    """All measured files of an installation, and how its compiled parts were built."""

    files: dict[Text, Text]  # name below dlscale/ -> digest
    build: dict[Text, Text] = {}

    def of_study(self, *, workloads: Collection[str], backends: Collection[str]) -> MeasuredCode:
        """What a study of these workloads and backends runs."""
        used = {*workloads, *backends, *(lent for name in backends for lent in BORROWED.get(name, ()))}
        if any(name not in WORKLOADS for name in workloads):
            used.add(OWN)  # a user's file
        files = {name: digest for name, digest in self.files.items() if owner(name) in (None, *used)}
        return MeasuredCode(files=files, build=self.build)

    @property
    def code_digest(self) -> str:
        """The digest of the files as they are, compiled ones included."""
        return _digest(self.files)

    @property
    def source_digest(self) -> str:
        """The digest with the sources of the compiled parts in their place, where these are known.

        The same sources give other compiled files on other machines.
        """
        if "sources" not in self.build:
            return _digest(self.files)
        written = {name: digest for name, digest in self.files.items() if not name.endswith(".so")}
        compiled = len(written) < len(self.files)
        return _digest(written | ({"": self.build["sources"]} if compiled else {}))


def owner(name: str) -> str | None:
    """The workload or backend that a file belongs to; None if all share it."""
    package, _, rest = name.partition("/")
    part = rest.partition("/")[0].removesuffix(".py")
    known: Mapping[str, Collection[str]] = {"models": (*WORKLOADS, OWN), "collectives": BACKENDS}
    return part if part in known.get(package, ()) else None


def changed_files(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """The names of files that are in one of the two only, or differ."""
    return sorted(name for name in {*before, *after} if before.get(name) != after.get(name))


def changed_text(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """`models/hep_cnn/_torch.py and 2 more`; empty where nothing changed, or one side did not record its files."""
    if not (before and after) or not (names := changed_files(before, after)):
        return ""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def measured_code() -> MeasuredCode:
    """That of this Python's installation."""
    files = {name: hashlib.sha256(path.read_bytes()).hexdigest()[:DIGITS] for name, path in _files()}
    return MeasuredCode(files=dict(sorted(files.items())), build=_native_build())


def _files() -> Iterator[tuple[str, Path]]:
    """(name below dlscale/, path) of each."""
    for package in PACKAGES:
        for folder in _folders(package):
            for path in folder.rglob("*"):
                if path.suffix in (".py", ".so"):
                    yield f"{package.replace('.', '/')}/{path.relative_to(folder)}", path
    here = Path(str(resources.files("dlscale.benchmarks")))
    for module in MODULES:
        yield f"benchmarks/{module}.py", here / f"{module}.py"


def _folders(package: str) -> list[Path]:
    """Where a package's files are; in an editable installation the compiled ones lie in another place."""
    folders = {Path(place) for place in importlib.import_module(f"dlscale.{package}").__path__}
    if package == "collectives" and (native := _native_folder()):
        folders.add(native.parent)
    return sorted(folders)


def _native_folder() -> Path | None:
    """Where the ring's extension is; None where it was not built."""
    spec = importlib.util.find_spec("dlscale.collectives.ring._engine")
    return Path(spec.origin).parent if spec and spec.origin else None


def _native_build() -> dict[str, str]:
    """How the compiled parts were built, as their build wrote it; empty where none were, or before it did."""
    folder = _native_folder()
    path = folder / BUILD_FILE if folder else None
    if path is None or not path.is_file():
        return {}
    build: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    return {name: text for name, text in build.items() if text}


def _digest(files: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:DIGITS]
