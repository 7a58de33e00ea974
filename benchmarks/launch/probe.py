"""What is installed in this Python, what it can use and what machine it is on: the facts behind the fingerprint.

python -m dlscale.benchmarks.launch.probe QUESTION     answers a `Question` with a `Probe`, both in JSON
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from dlscale.base.definitions import Frozen
from dlscale.base.launchers import Flavour
from dlscale.base.strings import Name, Text
from dlscale.benchmarks.records.cell import Setting
from dlscale.benchmarks.systems.limits import cpu_quota
from dlscale.collectives.capabilities import ROWS, capabilities
from dlscale.collectives.registry import unavailable_because
from dlscale.models.frameworks import FRAMEWORKS, gpu_module

PACKAGES = (
    *("dlscale", "torch", "numpy", "h5py", "mpi4py", "tensorflow", "tensorflow-cpu"),
    *(package for row in ROWS for package in row.packages),
)
# By vendor; all others are MPICH's.
FAMILIES: dict[str, Flavour] = {"Open MPI": "openmpi", "Intel MPI": "intelmpi"}
BUILD_FILE = "build.json"  # next to the ring's extension, written by its CMakeLists.txt
GPU_FILES = ("nvidia[0-9]*", "dxg", "kfd", "dri/renderD*")  # NVIDIA's, those of Windows, AMD's, Intel's
# What names a processor in /proc/cpuinfo: on x86, POWER, RISC-V and ARM.
CPU_MODEL = re.compile(r"^(?:model name|cpu|uarch|CPU part)\s*:[ \t]*(\S.*?)\s*$", re.MULTILINE)


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


class Probe(Frozen):
    """Facts of one environment, read by its own Python."""

    versions: dict[Text, Text]
    mpi: Flavour | None  # as mpi4py loaded it, None if mpi4py finds no MPI
    mpi_problem: Text | None
    problems: dict[Text, Text]  # why "backend/framework" cannot be used, of those asked for
    frameworks: list[Text]  # those that are installed
    commit: Text  # of the checkout that this environment runs
    node: dict[Text, Setting]
    gpus: list[SeenGpus] = []  # of the installed frameworks that were asked for


def describe(question: Question) -> Probe:
    """The answer of this Python."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    mpi, mpi_problem = None, None
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        from mpi4py import MPI

        vendor, numbers = MPI.get_vendor()
        mpi, versions["mpi"] = FAMILIES.get(vendor, "mpich"), f"{vendor} {'.'.join(map(str, numbers))}"
    except ModuleNotFoundError:
        mpi_problem = "mpi4py is not installed"
    except (ImportError, RuntimeError) as error:
        mpi_problem = str(error).splitlines()[0]
    ring = importlib.util.find_spec("dlscale.collectives.ring._engine")
    built = Path(ring.origin).with_name(BUILD_FILE) if ring and ring.origin else None
    if built and built.is_file():
        versions["compiler"] = str(json.loads(built.read_text(encoding="utf-8")).get("compiler", ""))
    installed = [name for name in FRAMEWORKS if importlib.util.find_spec(name)]
    problems = {}
    for backend, framework in question.pairs:
        reason = mpi_problem if capabilities(backend).needs_mpi else None
        if reason := reason or unavailable_because(backend, framework, question.options.get(backend)):
            problems[f"{backend}/{framework}"] = reason
    seen = []
    for framework in (name for name in question.gpus if name in installed):
        gpus = gpu_module(framework)  # which starts the framework
        backend, library = gpus.exchange_library()
        seen.append(
            SeenGpus(
                framework=framework,
                version=gpus.version(),
                names=gpus.names(),
                libraries=gpus.libraries(),
                backend=backend,
                library=library,
            )
        )
    return Probe(
        versions=versions,
        mpi=mpi,
        mpi_problem=mpi_problem,
        problems=problems,
        frameworks=installed,
        commit=commit(),
        node=describe_node(),
        gpus=seen,
    )


def shows_gpus(devices: Path = Path("/dev")) -> bool:
    """Whether the kernel shows a GPU to this process. A framework, which knows whether it is of use, takes seconds."""
    return any(any(devices.glob(name)) for name in GPU_FILES)


def commit() -> str:
    """The commit of the checkout this code runs from, with "+dirty" if changed; "unknown" outside a checkout."""
    # An installed copy may lie inside another repository, which does not track it.
    done = subprocess.run(
        [
            *("sh", "-c", "git ls-files --error-unmatch $0 && git describe --always --exclude=* $1 $2"),
            *(Path(__file__).name, "--abbrev=40", "--dirty=+dirty"),
        ],
        cwd=Path(__file__).resolve().parent,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    )
    return done.stdout.split()[-1] if done.returncode == 0 else "unknown"


def describe_node(cpu_info: Path = Path("/proc/cpuinfo")) -> dict[str, Setting]:
    """Facts of this node that studies compare."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    text = ""
    with suppress(OSError):  # a container without it
        text = cpu_info.read_text(encoding="utf-8", errors="replace")
    model = CPU_MODEL.search(text)
    num_cores, quota = len(os.sched_getaffinity(0)), cpu_quota()[0]
    return {
        "architecture": platform.machine(),
        "cpu_model": model[1] if model else platform.processor() or "unknown",
        "num_cores": num_cores,
        **({"quota_cores": round(quota, 2)} if quota and quota < num_cores else {}),
        "memory_gib": round(pages / 2**30),
        "kernel": platform.release(),
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
