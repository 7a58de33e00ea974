"""Checks of an environment from outside: what its Python reports, and whether its parts match."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from dlscale.base.errors import UsageError
from dlscale.base.launchers import Flavour, flavour_of
from dlscale.base.redaction import SECRET, redact
from dlscale.base.variables import HELPER, passed_on
from dlscale.benchmarks.launch.asking import PROBE_SECONDS, NoAnswerError, ask
from dlscale.benchmarks.launch.probe import Probe
from dlscale.benchmarks.records.record import Setting
from dlscale.benchmarks.systems.system import Installation

# Variables that change what runs; no others of a user's environment are recorded.
RECORDED_PREFIXES = (
    "OMP_", "MKL_", "KMP_", "OPENBLAS_", "MPICH_", "MPIR_CVAR_", "UCX_", "FI_", "OMPI_MCA_", "I_MPI_",
    "NCCL_", "GLOO_", "HOROVOD_", "CCL_", "TORCH_", "CUDA_VISIBLE", "MALLOC_", "DLSCALE_",
)  # fmt: skip
# TensorFlow's by name: Terraform's variables have its prefix too.
RECORDED_NAMES = frozenset({
    "TF_CPP_MIN_LOG_LEVEL", "TF_CUDNN_USE_AUTOTUNE", "TF_DETERMINISTIC_OPS", "TF_ENABLE_ONEDNN_OPTS",
    "TF_FORCE_GPU_ALLOW_GROWTH", "TF_GPU_ALLOCATOR", "TF_GPU_THREAD_COUNT", "TF_GPU_THREAD_MODE",
    "TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_USE_LEGACY_KERAS", "TF_XLA_FLAGS",
})  # fmt: skip


def probe(
    installation: Installation,
    pairs: Iterable[tuple[str, str]] = (),
    options: Mapping[str, Mapping[str, Setting]] | None = None,
) -> Probe:
    """The report of an environment's own Python, with the (backend, framework) pairs that are usable there.

    `options` are those that backends will be given, by backend.

    Raises UsageError if dlscale is not installed there.
    """
    asked = ("/".join(pair) + _asked(pair[0], options or {}) for pair in pairs)
    try:
        (report,) = ask(
            installation.python,
            "benchmarks.launch.probe",
            *asked,
            answer=Probe,
            variables=installation.variables,
        )
    except NoAnswerError as error:
        raise UsageError(
            f"environment {installation.name}: its Python cannot import dlscale ({error}); reinstall dlscale there"
        ) from None
    return report


def _asked(backend: str, options: Mapping[str, Mapping[str, Setting]]) -> str:
    return f"?{json.dumps(dict(options[backend]))}" if options.get(backend) else ""


def mpi_threads(installation: Installation) -> str | None:
    """The thread level that an environment's MPI provides, by MPI's name; None if MPI does not start."""
    program = (
        "from mpi4py import MPI; "
        "print({getattr(MPI, n): n for n in dir(MPI) if n.startswith('THREAD_')}[MPI.Query_thread()])"
    )
    done = subprocess.run(
        [str(installation.python), "-P", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=PROBE_SECONDS,
        env=passed_on(HELPER) | installation.variables,
    )
    return f"MPI_{done.stdout.strip()}" if done.returncode == 0 else None


def check_mpi(installation: Installation, report: Probe, *, launcher: str = "mpiexec") -> Flavour:
    """The MPI that both mpiexec and mpi4py use; mpi4py's where a system has another launcher.

    Raises UsageError if they differ or one is unusable.
    """
    if report.mpi is None:
        raise UsageError(
            f"environment {installation.name}: mpi4py finds no MPI ({report.mpi_problem}); "
            "install one there, e.g. with: pip install mpich"
        )
    if launcher != "mpiexec":
        return _check_declared(installation, report.mpi, "mpi4py uses")
    return _check_mpiexec(installation, report.mpi)


def _check_declared(installation: Installation, mpi: Flavour, finder: str) -> Flavour:
    if installation.mpi not in ("detect", mpi):
        raise UsageError(
            f"environment {installation.name} was declared with {installation.mpi}, but {finder} "
            f"{mpi}; correct `mpi` in the system's TOML file or install {installation.mpi} there"
        )
    return mpi


def _check_mpiexec(installation: Installation, mpi: Flavour) -> Flavour:
    done = subprocess.run(
        [str(installation.mpiexec), "--version"], capture_output=True, text=True, check=False, timeout=60
    )
    launcher = flavour_of(done.stdout + done.stderr)
    if launcher is None:
        raise UsageError(
            f"environment {installation.name}: mpiexec is of an MPI that dlscale does not know "
            f"({(done.stdout + done.stderr).strip()[:60]!r}); use one of MPICH, Intel MPI or Open MPI"
        )
    if mpi != launcher:
        raise UsageError(
            f"environment {installation.name}: mpiexec is of {launcher}, but mpi4py uses {mpi}; "
            f"use the mpiexec that belongs to {mpi}"
        )
    return _check_declared(installation, launcher, "its mpiexec is of")


def check_frameworks(installation: Installation, report: Probe, wanted: Iterable[str]) -> None:
    """Raises UsageError unless the environment has all of the frameworks."""
    for framework in wanted:
        if framework not in report.frameworks:
            raise UsageError(
                f"environment {installation.name} has no {framework} (it has: "
                f"{', '.join(report.frameworks) or 'none'}); {framework_remedy(framework)} there"
            )


def framework_remedy(framework: str) -> str:
    """The command that installs a framework."""
    return "pip install torch" if framework == "torch" else f"pip install 'dlscale[{framework}]'"


def recorded_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables on the allow-list, with home folder and user name redacted."""
    return {
        name: redact(value)
        for name, value in sorted(variables.items())
        if changes_runs(name) and not SECRET.search(name)
    }


def changes_runs(name: str) -> bool:
    """Whether a variable is on the list of those that change what runs."""
    return name in RECORDED_NAMES or name.startswith(RECORDED_PREFIXES)


def combine(*digests: str) -> str:
    """Eight hex digits that change with any of the digests."""
    return hashlib.sha256("-".join(digests).encode()).hexdigest()[:8]


def commit() -> str:
    """The commit of the checkout this code runs from, with "+dirty" if changed; "unknown" outside a checkout."""
    folder = Path(__file__).resolve().parent

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(folder), *words], capture_output=True, text=True, check=False
            )
        except FileNotFoundError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    # An installed copy may lie inside another repository, which does not track it.
    if not git("ls-files", "--error-unmatch", Path(__file__).name):
        return "unknown"
    head = git("rev-parse", "HEAD") or "unknown"
    return head + ("+dirty" if git("status", "--porcelain", "--untracked-files=no") else "")
