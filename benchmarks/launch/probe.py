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
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from dlscale.base.definitions import Frozen
from dlscale.base.launchers import LAUNCHERS, Flavour
from dlscale.base.strings import Name, Text
from dlscale.benchmarks.records.cell import Setting
from dlscale.benchmarks.records.record import Fingerprint
from dlscale.benchmarks.systems.limits import read_limits
from dlscale.collectives import capabilities
from dlscale.collectives.registry import unavailable_because
from dlscale.models.frameworks import FRAMEWORKS, gpu_module

PACKAGES = (
    *("dlscale", "torch", "numpy", "h5py", "mpi4py", "tensorflow", "tensorflow-cpu"),
    *("horovod", "grpcio", "oneccl-cpu", "impi-rt"),
)
# By vendor; all others are MPICH's.
FAMILIES: dict[str, Flavour] = {"Open MPI": "openmpi", "Intel MPI": "intelmpi"}
CPU_INFO = Path("/proc/cpuinfo")
BUILD_FILE = "build.json"  # next to the ring's extension, written by its CMakeLists.txt
GPU_FILES = ("nvidia[0-9]*", "dxg", "kfd", "dri/renderD*")  # NVIDIA's, those of Windows, AMD's, Intel's


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
    mpi: Flavour | None  # as mpi4py loaded it, None if mpi4py finds no MPI
    mpi_problem: Text | None
    problems: dict[Text, Text]  # why "backend/framework" cannot be used, of those asked for
    frameworks: list[Text]  # those that are installed
    commit: Text  # of the checkout that this environment runs
    node: dict[Text, Setting]
    gpus: list[SeenGpus] = []  # of the installed frameworks that were asked for

    def fingerprint(self, launcher: str) -> Fingerprint:
        """The digest that all records of one curve share, and what it was made of.

        A launcher without MPI is itself part of what is measured, and MPI is not. So are the GPUs, if asked for.
        """
        versions, node = dict(self.versions), dict(self.node)
        if not LAUNCHERS[launcher].needs_mpi:
            versions.pop("mpi", None)
            versions["launcher"] = launcher
        for gpus in self.gpus:
            versions |= gpus.libraries
            versions.setdefault(gpus.framework, gpus.version)  # under another name in a build for CPUs
            node[f"gpus_{gpus.framework}"] = ", ".join(gpus.names)
        text = json.dumps([self.commit, versions, node], sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        return Fingerprint(digest=digest, commit=self.commit, versions=versions, node=node)


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
    return Probe(
        versions=versions,
        mpi=mpi,
        mpi_problem=mpi_problem,
        problems=problems,
        frameworks=installed,
        commit=commit(),
        node=describe_node(),
        gpus=[see_gpus(name) for name in question.gpus if name in installed],
    )


def see_gpus(framework: str) -> SeenGpus:
    """The GPUs that a framework of this Python sees, which starts it."""
    gpus = gpu_module(framework)
    backend, library = gpus.exchange_library()
    return SeenGpus(
        framework=framework,
        version=gpus.version(),
        names=gpus.names(),
        libraries=gpus.libraries(),
        backend=backend,
        library=library,
        without_tf32=gpus.without_tf32(),
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
    """The processor by /proc/cpuinfo; ARM's kernels give its maker and part: `ARM 0x41/0xd4f`."""
    lines = re.findall(r"^(\w[\w ]*?)\s*:[ \t]*(.*?)\s*$", text, re.MULTILINE)
    fields = dict(reversed(lines))  # of the first core
    arm = "/".join(fields[name] for name in ("CPU implementer", "CPU part") if name in fields)
    # x86; ARM; POWER; RISC-V.
    names = [fields.get("model name"), arm and f"ARM {arm}", fields.get("cpu"), fields.get("uarch")]
    return next(filter(None, names), platform.processor()) or "unknown"


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
