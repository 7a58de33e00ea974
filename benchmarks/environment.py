"""What is installed in an environment and what machine it is on: the facts behind the fingerprint.

python -m dlscale.benchmarks.environment     prints them as JSON, for the environment of that Python
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

from pydantic import ValidationError

from dlscale.benchmarks.launchers import Flavour, flavour_of
from dlscale.benchmarks.record import Fingerprint, Frozen, Setting
from dlscale.benchmarks.system import Installation
from dlscale.models.errors import UsageError
from dlscale.models.workload import FRAMEWORKS

PACKAGES = ("dlscale", "torch", "numpy", "h5py", "mpi4py", "tensorflow-cpu", "horovod")
MEASURED_PACKAGES = ("dlscale.models", "dlscale.collectives")
MEASURED_MODULES = ("affinity", "gates", "launch", "measure", "worker")  # of dlscale.benchmarks
# Variables that change what runs. Nothing else of a user's environment is recorded.
RECORDED_PREFIXES = (
    "OMP_", "MKL_", "KMP_", "OPENBLAS_", "MPICH_", "MPIR_CVAR_", "UCX_", "FI_", "OMPI_MCA_", "I_MPI_",
    "NCCL_", "GLOO_", "HOROVOD_", "CCL_", "TF_", "TORCH_", "CUDA_VISIBLE", "MALLOC_", "DLSCALE_",
)  # fmt: skip


class Probe(Frozen):
    """Facts of one environment, read by its own Python."""

    versions: dict[str, str]
    mpi: str | None  # "mpich" or "openmpi" as mpi4py loaded it, None if mpi4py finds no MPI
    mpi_problem: str | None
    ring_problem: str | None  # why the native ring cannot be used; None if it can
    frameworks: list[str]  # those that are installed
    code_digest: str
    node: dict[str, Setting]

    def fingerprint(self, commit: str) -> Fingerprint:
        """The digest that all records of one curve share, and what it was made of."""
        text = json.dumps([self.code_digest, self.versions, self.node], sort_keys=True)
        return Fingerprint(
            digest=hashlib.sha256(text.encode()).hexdigest()[:16],
            code_digest=self.code_digest,
            commit=commit,
            versions=self.versions,
            node=self.node,
        )


def probe(installation: Installation) -> Probe:
    """Ask an environment's own Python. Raises UsageError if dlscale is not installed there."""
    done = subprocess.run(
        [str(installation.python), "-m", "dlscale.benchmarks.environment"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    try:
        return Probe.model_validate_json(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValidationError):
        reason = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise UsageError(
            f"environment {installation.name}: its Python cannot describe itself ({redact(reason)}); "
            "install dlscale there again"
        ) from None


def check_mpi(installation: Installation, found: Probe) -> Flavour:
    """The MPI that both mpiexec and mpi4py belong to. Raises UsageError if they differ or one is unusable."""
    done = subprocess.run(
        [str(installation.mpiexec), "--version"], capture_output=True, text=True, check=False, timeout=60
    )
    launcher = flavour_of(done.stdout + done.stderr)
    if launcher is None:
        raise UsageError(
            f"environment {installation.name}: mpiexec is of an MPI that dlscale does not know "
            f"({(done.stdout + done.stderr).strip()[:60]!r}); use one of MPICH, Intel MPI or Open MPI"
        )
    if found.mpi is None:
        raise UsageError(
            f"environment {installation.name}: mpi4py finds no MPI ({found.mpi_problem}); "
            "install one there, for instance with: pip install mpich"
        )
    if found.mpi != launcher:
        raise UsageError(
            f"environment {installation.name}: mpiexec is of {launcher}, but mpi4py uses {found.mpi}; "
            f"use the mpiexec that belongs to {found.mpi}"
        )
    if installation.mpi not in ("detect", launcher):
        raise UsageError(
            f"environment {installation.name} was declared with {installation.mpi}, but its mpiexec is of "
            f"{launcher}; correct `mpi` in the system's TOML file or install {installation.mpi} there"
        )
    return launcher


def check_frameworks(installation: Installation, found: Probe, wanted: Iterable[str]) -> None:
    """Returns if the environment has all those frameworks. Raises UsageError."""
    for framework in wanted:
        if framework not in found.frameworks:
            raise UsageError(
                f"environment {installation.name} has no {framework} (it has: "
                f"{', '.join(found.frameworks) or 'no framework'}); {framework_remedy(framework)} there"
            )


def framework_remedy(framework: str) -> str:
    """What a user types to get a framework."""
    return "pip install 'dlscale[tensorflow]'" if framework == "tensorflow" else "pip install torch"


def recorded_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Those on the allow-list, without home folder and user name in their values."""
    return {k: redact(v) for k, v in sorted(variables.items()) if k.startswith(RECORDED_PREFIXES)}


def combine(*digests: str) -> str:
    """Eight hex digits that change when any of the digests does."""
    return hashlib.sha256("-".join(digests).encode()).hexdigest()[:8]


def redact(text: str) -> str:
    """`text` without this user's home folder and name and without the folder that the command was given in."""
    home, user = str(Path.home()), Path.home().name
    text = text.replace(str(Path.cwd()), ".").replace(home + "/", "~/")
    return text if len(user) < 3 or user == "root" else text.replace(user, "<user>")


def commit() -> str:
    """The commit of the checkout that this code is run from, "+dirty" if changed; "unknown" outside one."""
    folder = Path(__file__).resolve().parent

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(folder), *words], capture_output=True, text=True, check=False
            )
        except FileNotFoundError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    # An installed copy may lie inside somebody else's repository: its files are not tracked there.
    if not git("ls-files", "--error-unmatch", Path(__file__).name):
        return "unknown"
    head = git("rev-parse", "HEAD") or "unknown"
    return head + ("+dirty" if git("status", "--porcelain", "--untracked-files=no") else "")


def _describe() -> Probe:
    mpi, mpi_problem, library = _describe_mpi()
    ring_problem: str | None = mpi_problem
    if not mpi_problem:
        try:
            import dlscale.collectives.ring.engine  # noqa: F401
        except UsageError as error:
            ring_problem = str(error)
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    if library:
        versions["mpi"] = library
    return Probe(
        versions=versions,
        mpi=mpi,
        mpi_problem=mpi_problem,
        ring_problem=ring_problem,
        frameworks=[name for name in FRAMEWORKS if importlib.util.find_spec(name)],
        code_digest=_digest(_measured_files()),
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
    family = "openmpi" if vendor == "Open MPI" else "mpich"
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
    spec = importlib.util.find_spec("dlscale.collectives.ring._engine") if "collectives" in package else None
    if spec and spec.origin:
        folders.add(Path(spec.origin).parent)
    return sorted(folders)


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in dict.fromkeys(files):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def main() -> None:
    """Print this environment's facts in one line."""
    sys.stdout.write(json.dumps(_describe().model_dump()) + "\n")


if __name__ == "__main__":
    main()
