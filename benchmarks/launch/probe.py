"""What is installed in this Python and what machine it is on: the facts behind the fingerprint.

python -m dlscale.benchmarks.launch.probe [BACKEND/FRAMEWORK ...]     prints them as JSON

A pair may end in `?` and the backend's options as JSON, which it is asked for with.
"""

from __future__ import annotations

import gc
import hashlib
import importlib.util
import json
import os
import platform
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator
from importlib import metadata
from pathlib import Path

from dlscale.base.definitions import Frozen
from dlscale.base.launchers import LAUNCHERS, Flavour
from dlscale.base.strings import Text
from dlscale.base.variables import shadowing
from dlscale.benchmarks.records.cell import Setting
from dlscale.benchmarks.records.record import Fingerprint
from dlscale.collectives import capabilities
from dlscale.collectives.registry import unavailable_because
from dlscale.models.frameworks import FRAMEWORKS

# Package -> the frameworks or backends whose studies use it; none named: every study does.
PACKAGES: dict[str, tuple[str, ...]] = {
    "dlscale": (),
    "torch": ("torch",),
    "numpy": (),
    "h5py": (),
    "mpi4py": (),
    "tensorflow": ("tensorflow",),
    "tensorflow-cpu": ("tensorflow",),
    "horovod": ("horovod",),
    "grpcio": ("grpc_ps",),
    "oneccl-cpu": ("horovod",),
    "impi-rt": (),
}


OF_MPI = ("mpi", "mpi4py", "impi-rt")
CPU_INFO = Path("/proc/cpuinfo")
BUILD_FILE = "build.json"  # beside the ring's extension, written by its CMakeLists.txt


class Probe(Frozen):
    """Facts of one environment, read by its own Python."""

    versions: dict[Text, Text]
    mpi: Flavour | None  # "mpich", "intelmpi" or "openmpi" as mpi4py loaded it, None if mpi4py finds no MPI
    mpi_problem: Text | None
    problems: dict[Text, Text]  # why "backend/framework" cannot be used, of those asked for
    frameworks: list[Text]  # those that are installed
    misplaced: dict[Text, Text] = {}  # those that PYTHONPATH puts before the installed ones: the file of each
    commit: Text  # of the checkout that this environment runs
    node: dict[Text, Setting]

    def fingerprint(
        self,
        *,
        frameworks: Collection[str],
        backends: Collection[str],
        launcher: str,
    ) -> Fingerprint:
        """The digest that all records of one curve share, and what it was made of, for a study of these.

        A launcher without MPI is itself part of what is measured, and MPI is not.
        """
        used = {*frameworks, *backends}
        versions = {
            name: version
            for name, version in self.versions.items()
            if not PACKAGES.get(name) or used.intersection(PACKAGES[name])
        }
        if not LAUNCHERS[launcher].needs_mpi:
            versions = {name: version for name, version in versions.items() if name not in OF_MPI}
            versions["launcher"] = launcher
        text = json.dumps([self.commit, versions, self.node], sort_keys=True)
        return Fingerprint(
            digest=hashlib.sha256(text.encode()).hexdigest()[:16],
            commit=self.commit,
            versions=versions,
            node=self.node,
        )


def describe(pairs: Iterable[str]) -> Probe:
    """The facts of this Python, and which of the pairs "backend/framework" it cannot be used for."""
    mpi, mpi_problem, library = _describe_mpi()
    problems = {}
    for text in pairs:
        pair, _, options = text.partition("?")
        backend, _, framework = pair.partition("/")
        asked = json.loads(options) if options else None
        here = importlib.util.find_spec(framework)  # else that is the first thing to say
        needed = mpi_problem if here and capabilities(backend).needs_mpi else None
        if reason := needed or unavailable_because(backend, framework, asked):
            problems[pair] = reason
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    if library:
        versions["mpi"] = library
    if compiler := _compiler():
        versions["compiler"] = compiler
    return Probe(
        versions=versions,
        mpi=mpi,
        mpi_problem=mpi_problem,
        problems=problems,
        frameworks=[name for name in FRAMEWORKS if importlib.util.find_spec(name)],
        misplaced=dict(_misplaced()),
        commit=commit(),
        node=describe_node(),
    )


def _compiler() -> str:
    """What the ring's extension was compiled by, as its build wrote it; empty where it was not built."""
    spec = importlib.util.find_spec("dlscale.collectives.ring._engine")
    path = Path(spec.origin).with_name(BUILD_FILE) if spec and spec.origin else None
    if path is None or not path.is_file():
        return ""
    return str(json.loads(path.read_text(encoding="utf-8")).get("compiler", ""))


def commit() -> str:
    """The commit of the checkout this code runs from, with "+dirty" if changed; "unknown" outside a checkout."""
    folder = Path(__file__).resolve().parent

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(folder), *words],
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                env={name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
            )
        except FileNotFoundError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    # An installed copy may lie inside another repository, which does not track it.
    if not git("ls-files", "--error-unmatch", Path(__file__).name):
        return "unknown"
    head = git("rev-parse", "HEAD") or "unknown"
    return head + ("+dirty" if git("status", "--porcelain", "--untracked-files=no") else "")


def _misplaced() -> Iterator[tuple[str, str]]:
    """Frameworks on PYTHONPATH whose version, of a package that lies elsewhere or of none, says nothing of them."""
    for framework in FRAMEWORKS:
        spec = importlib.util.find_spec(framework)
        if spec and spec.origin and shadowing([spec.origin]):
            names = [name for name in PACKAGES if framework in PACKAGES[name]]
            if not any(_holds(name, spec.origin) for name in names):
                yield framework, spec.origin


def _holds(package: str, file: str) -> bool:
    try:
        return Path(file).is_relative_to(Path(str(metadata.distribution(package).locate_file(""))))
    except metadata.PackageNotFoundError:
        return False


def _describe_mpi() -> tuple[str | None, str | None, str | None]:
    """The MPI family that mpi4py loads, or the problem, and the library's version."""
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        from mpi4py import MPI
    except ModuleNotFoundError:
        return None, "mpi4py is not installed", None
    except (ImportError, RuntimeError) as error:
        return None, str(error).splitlines()[0], None
    vendor, numbers = MPI.get_vendor()
    family = {"Open MPI": "openmpi", "Intel MPI": "intelmpi"}.get(vendor, "mpich")
    return family, None, f"{vendor} {'.'.join(str(n) for n in numbers)}"


def describe_node() -> dict[str, Setting]:
    """Facts of this node that studies compare."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "architecture": platform.machine(),
        "cpu_model": cpu_model(_cpu_info()),
        "num_cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(pages / 2**30),
        "kernel": platform.release(),
    }


def _cpu_info() -> str:
    try:
        return CPU_INFO.read_text(encoding="utf-8", errors="replace")
    except OSError:  # a container without it
        return ""


def cpu_model(text: str) -> str:
    """The processor by /proc/cpuinfo; ARM's kernels name its maker and part: `ARM 0x41/0xd4f`, of each kind of core."""
    fields: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip().lower(), []).append(value.strip())
    cores = dict.fromkeys(zip(fields.get("cpu implementer", ()), fields.get("cpu part", ()), strict=False))
    found = [
        *fields.get("model name", ())[:1],
        " + ".join(f"ARM {maker}/{part}" for maker, part in cores),
        *(name.partition(",")[0] for name in fields.get("cpu", ())[:1]),  # POWER
        *fields.get("uarch", ())[:1],  # RISC-V
        platform.processor(),
    ]
    return next(filter(None, found), "unknown")


def main() -> None:
    """Print this environment's facts in one line."""
    out = os.dup(1)
    os.dup2(2, 1)  # what libraries print while they are loaded is not the answer
    probe = describe(sys.argv[1:])
    with os.fdopen(out, "w") as answer:
        answer.write(probe.model_dump_json() + "\n")


if __name__ == "__main__":
    # Whoever waits for the answer need not wait for garbage to be sought in what frameworks import, of which there is
    # none, nor until all of it is taken down: half of TensorFlow's time.
    gc.disable()
    main()
    os._exit(0)
