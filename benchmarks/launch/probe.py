"""What is installed in this Python and what machine it is on: the facts behind the fingerprint.

python -m dlscale.benchmarks.launch.probe [BACKEND/FRAMEWORK ...]     prints them as JSON
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import os
import platform
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from dlscale.base.definitions import Frozen
from dlscale.benchmarks.records.record import Fingerprint, Setting
from dlscale.benchmarks.systems.system import Flavour
from dlscale.collectives.registry import unavailable_because
from dlscale.models.frameworks import FRAMEWORKS

PACKAGES = (
    *("dlscale", "torch", "numpy", "h5py", "mpi4py", "tensorflow-cpu", "horovod", "grpcio"),
    *("oneccl-cpu", "impi-rt"),
)
BUILD_FILE = "build.json"  # beside the ring's extension, written by its CMakeLists.txt
MEASURED_PACKAGES = ("dlscale.models", "dlscale.collectives", "dlscale.benchmarks.rank")
MEASURED_MODULES = ("records/spool",)  # of dlscale.benchmarks


class Probe(Frozen):
    """Facts of one environment, read by its own Python."""

    versions: dict[str, str]
    mpi: Flavour | None  # "mpich", "intelmpi" or "openmpi" as mpi4py loaded it, None if mpi4py finds no MPI
    mpi_problem: str | None
    problems: dict[str, str]  # why "backend/framework" cannot be used, of those asked for
    frameworks: list[str]  # those that are installed
    code_digest: str
    source_digest: str = ""
    node: dict[str, Setting]

    def fingerprint(self, commit: str) -> Fingerprint:
        """The digest that all records of one curve share, and what it was made of."""
        text = json.dumps([self.code_digest, self.versions, self.node], sort_keys=True)
        return Fingerprint(
            digest=hashlib.sha256(text.encode()).hexdigest()[:16],
            code_digest=self.code_digest,
            source_digest=self.source_digest,
            commit=commit,
            versions=self.versions,
            node=self.node,
        )


def describe(pairs: Iterable[str]) -> Probe:
    """The facts of this Python, and which of the pairs "backend/framework" it cannot be used for."""
    mpi, mpi_problem, library = _describe_mpi()
    problems = {}
    for pair in pairs:
        backend, _, framework = pair.partition("/")
        if reason := mpi_problem or unavailable_because(backend, framework):
            problems[pair] = reason
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    if library:
        versions["mpi"] = library
    build = native_build()
    if "compiler" in build:
        versions["compiler"] = build["compiler"]
    files = list(_measured_files())
    return Probe(
        versions=versions,
        mpi=mpi,
        mpi_problem=mpi_problem,
        problems=problems,
        frameworks=[name for name in FRAMEWORKS if importlib.util.find_spec(name)],
        code_digest=_digest(files),
        source_digest=_source_digest(files, build),
        node=_describe_node(),
    )


def _describe_mpi() -> tuple[str | None, str | None, str | None]:
    """The MPI family that mpi4py loads, or the problem, and the library's version."""
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        return None, str(error).splitlines()[0], None
    vendor, numbers = MPI.get_vendor()
    family = {"Open MPI": "openmpi", "Intel MPI": "intelmpi"}.get(vendor, "mpich")
    return family, None, f"{vendor} {'.'.join(str(n) for n in numbers)}"


def _describe_node() -> dict[str, Setting]:
    model = platform.processor() or "unknown"
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "architecture": platform.machine(),
        "cpu_model": model,
        "num_cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(pages / 2**30),
        "kernel": platform.release(),
    }


def _measured_files() -> Iterable[Path]:
    """The code that runs between the stamps, and the compiled ring."""
    from importlib import resources

    for package in MEASURED_PACKAGES:
        for folder in _folders(package):
            yield from sorted(p for p in folder.rglob("*") if p.suffix in (".py", ".so"))
    here = Path(str(resources.files("dlscale.benchmarks")))
    yield from (here / f"{module}.py" for module in MEASURED_MODULES)


def _folders(package: str) -> list[Path]:
    """Where a package's files are; in an editable installation the compiled ones lie in another place."""
    folders = {Path(place) for place in importlib.import_module(package).__path__}
    if "collectives" in package and (folder := _native_folder()):
        folders.add(folder)
    return sorted(folders)


def _native_folder() -> Path | None:
    """Where the ring's extension is; None where it was not built."""
    spec = importlib.util.find_spec("dlscale.collectives.ring._engine")
    return Path(spec.origin).parent if spec and spec.origin else None


def native_build() -> dict[str, str]:
    """How the compiled parts were built, as their build wrote it; empty where none were, or before it did."""
    folder = _native_folder()
    path = folder / BUILD_FILE if folder else None
    if path is None or not path.is_file():
        return {}
    build: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    return {name: text for name, text in build.items() if text}


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in dict.fromkeys(files):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _source_digest(files: Iterable[Path], build: dict[str, str]) -> str:
    """Digest of the measured files, with the sources of the compiled parts in their place, where these are known.

    The same sources give other compiled files on other machines.
    """
    compiled = "sources" in build
    digest = _digest(path for path in files if not (compiled and path.suffix == ".so"))
    return hashlib.sha256((digest + build.get("sources", "")).encode()).hexdigest()[:16]


def main() -> None:
    """Print this environment's facts in one line."""
    out = os.dup(1)
    os.dup2(2, 1)  # what libraries print while they are loaded is not the answer
    probe = describe(sys.argv[1:])
    with os.fdopen(out, "w") as answer:
        answer.write(probe.model_dump_json() + "\n")


if __name__ == "__main__":
    main()
