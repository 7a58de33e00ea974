"""What is installed in this Python, what it can use and what machine it is on: the facts behind the fingerprint.

python -m dlscale.benchmarks.launch.probe QUESTION     answers a `Question` with a `Probe`, both in JSON
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
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from dlscale.base.definitions import Frozen
from dlscale.base.launchers import LAUNCHERS, Flavour
from dlscale.base.strings import Name, Text
from dlscale.base.variables import shadowing
from dlscale.benchmarks.records.cell import Setting
from dlscale.benchmarks.records.record import Fingerprint
from dlscale.benchmarks.systems.limits import read_limits
from dlscale.collectives import capabilities
from dlscale.collectives.registry import unavailable_because
from dlscale.models.frameworks import FRAMEWORKS, gpu_module

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


class Question(Frozen):
    """What an environment is asked besides its versions and its node."""

    pairs: list[tuple[Name, Name]] = []  # (backend, framework): usable or not
    options: dict[Name, dict[Text, Setting]] = {}  # by backend, which it is asked for with
    gpus: list[Name] = []  # frameworks, each of which must be started to see its GPUs


class SeenGpus(Frozen):
    """The GPUs that one framework sees."""

    framework: Name
    version: Text
    names: list[Text]  # in the driver's order: the number is the local rank
    libraries: dict[Text, Text]
    backend: Text  # between them, by what the framework was built with; empty without a library for that
    library: Text  # its name, with the version where the framework has it
    without_tf32: list[Text]  # names


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
    gpus: list[SeenGpus] = []  # of the installed frameworks that were asked for

    def fingerprint(
        self, *, frameworks: Collection[str], backends: Collection[str], launcher: str
    ) -> Fingerprint:
        """The digest that all records of one curve share, and what it was made of, for a study of these.

        A launcher without MPI is itself part of what is measured, and MPI is not. So are the GPUs, if asked for.
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
        node = dict(self.node)
        for gpus in self.gpus:
            versions |= gpus.libraries
            versions.setdefault(gpus.framework, gpus.version)  # under another name in a build for CPUs
            node[f"gpus_{gpus.framework}"] = ", ".join(gpus.names)
        text = json.dumps([self.commit, versions, node], sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        return Fingerprint(digest=digest, commit=self.commit, versions=versions, node=node)


def describe(question: Question) -> Probe:
    """The answer of this Python."""
    mpi, mpi_problem, library = _describe_mpi()
    installed = [name for name in FRAMEWORKS if importlib.util.find_spec(name)]
    problems = {}
    for backend, framework in question.pairs:
        # A framework that is missing is the first thing to say.
        needed = mpi_problem if framework in installed and capabilities(backend).needs_mpi else None
        reason = needed or unavailable_because(backend, framework, question.options.get(backend))
        if reason:
            problems[f"{backend}/{framework}"] = reason
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    if library:
        versions["mpi"] = library
    if compiler := _compiler():
        versions["compiler"] = compiler
    return Probe(
        versions=versions,
        mpi=mpi,
        mpi_problem=mpi_problem,
        problems=problems,
        frameworks=installed,
        misplaced=_misplaced(installed),
        commit=commit(),
        node=describe_node(),
        gpus=see_gpus(name for name in question.gpus if name in installed),
    )


def see_gpus(frameworks: Iterable[str]) -> list[SeenGpus]:
    """The GPUs that these frameworks of this Python see, which starts them."""
    return [
        SeenGpus(
            framework=framework,
            version=gpus.version(),
            names=gpus.names(),
            libraries=gpus.libraries(),
            backend=gpus.exchange_library()[0],
            library=gpus.exchange_library()[1],
            without_tf32=gpus.without_tf32(),
        )
        for framework, gpus in ((name, gpu_module(name)) for name in frameworks)
    ]


def _compiler() -> str:
    """What the ring's extension was compiled by, as its build wrote it; empty where it was not built."""
    spec = importlib.util.find_spec("dlscale.collectives.ring._engine")
    path = Path(spec.origin).with_name(BUILD_FILE) if spec and spec.origin else None
    if path is None or not path.is_file():
        return ""
    return str(json.loads(path.read_text(encoding="utf-8")).get("compiler", ""))


def commit() -> str:
    """The commit of the checkout this code runs from, with "+dirty" if changed; "unknown" outside a checkout."""

    def git(*words: str) -> str:
        try:
            done = subprocess.run(
                ["git", "-C", str(Path(__file__).resolve().parent), *words],
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                env={name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
            )
        except FileNotFoundError:
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""

    # An installed copy may lie inside another repository, which does not track it.
    if not git("ls-files", "--error-unmatch", Path(__file__).name):
        return "unknown"
    changed = git("status", "--porcelain", "--untracked-files=no")
    return (git("rev-parse", "HEAD") or "unknown") + "+dirty" * bool(changed)


def _misplaced(frameworks: Iterable[str]) -> dict[str, str]:
    """Files of frameworks that PYTHONPATH puts first, without a version beside them."""
    files = {name: str(spec.origin) for name in frameworks if (spec := importlib.util.find_spec(name))}
    return {
        name: file
        for name, file in files.items()
        if shadowing([file]) and not any(Path(file).parents[1].glob(f"{name}*-info"))
    }


def _describe_mpi() -> tuple[Flavour | None, str | None, str | None]:
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
    families: dict[str, Flavour] = {"Open MPI": "openmpi", "Intel MPI": "intelmpi"}
    return families.get(vendor, "mpich"), None, f"{vendor} {'.'.join(str(n) for n in numbers)}"


def describe_node() -> dict[str, Setting]:
    """Facts of this node that studies compare."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    text = ""
    with suppress(OSError):  # a container without it
        text = CPU_INFO.read_text(encoding="utf-8", errors="replace")
    num_cores, quota = len(os.sched_getaffinity(0)), read_limits().cores
    return {
        "architecture": platform.machine(),
        "cpu_model": cpu_model(text),
        "num_cores": num_cores,
        **({"quota_cores": round(quota, 2)} if quota and quota < num_cores else {}),
        "memory_gib": round(pages / 2**30),
        "kernel": platform.release(),
    }


def quota_warning(node: Mapping[str, Setting]) -> str | None:
    """A warning where a control group gives this machine's processes less time than their cores have."""
    if (quota := node.get("quota_cores")) is None:
        return None
    return (
        f"the control group of this container or job has a quota of {quota} of {node['num_cores']} cores: the kernel "
        "stops what needs more, and nothing is claimed of launches that it stopped"
    )


def cpu_model(text: str) -> str:
    """The processor by /proc/cpuinfo; ARM's kernels name its maker and part: `ARM 0x41/0xd4f`, of each kind of core."""
    fields: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip().lower(), []).append(value.strip())
    cores = dict.fromkeys(zip(fields.get("cpu implementer", ()), fields.get("cpu part", ()), strict=False))
    known = [
        *fields.get("model name", ())[:1],
        " + ".join(f"ARM {maker}/{part}" for maker, part in cores),
        *(name.partition(",")[0] for name in fields.get("cpu", ())[:1]),  # POWER
        *fields.get("uarch", ())[:1],  # RISC-V
        platform.processor(),
    ]
    return next(filter(None, known), "unknown")


INTEL = "0x8086"  # its number on the PCI bus


def gpu_makers(top: Path = Path("/")) -> dict[str, bool]:
    """Whose GPUs the kernel shows to this process, without starting a framework, which takes seconds."""
    drawing = [
        top / "sys/class/drm" / node.name / "device/vendor" for node in (top / "dev/dri").glob("renderD*")
    ]
    return {
        "NVIDIA": any(any((top / "dev").glob(name)) for name in ("nvidia[0-9]*", "dxg")),  # dxg: Windows
        "AMD": (top / "dev/kfd").exists(),
        "Intel": any(path.is_file() and path.read_text().strip() == INTEL for path in drawing),
    }


# What Keras and TensorFlow import where it is installed, for files and pictures: no answer needs it.
NOT_NEEDED = ("PIL", "h5py", "matplotlib", "pandas", "scipy")


def main() -> None:
    """Print this environment's facts in one line."""
    sys.modules.update(dict.fromkeys(NOT_NEEDED))  # type: ignore[arg-type] # None: as if it were not installed
    out = os.dup(1)
    os.dup2(2, 1)  # what libraries print while they are loaded is not the answer
    probe = describe(Question.model_validate_json(sys.argv[1]))
    with os.fdopen(out, "w") as answer:
        answer.write(probe.model_dump_json() + "\n")


if __name__ == "__main__":
    # Frameworks leave no garbage as they are imported, and taking them down is half of TensorFlow's time.
    gc.disable()
    main()
    os._exit(0)
