"""Checks of an environment from outside: what its Python reports, and whether its parts match."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from dlscale.base.errors import UsageError
from dlscale.base.launchers import LAUNCHERS, Flavour, flavour_of
from dlscale.base.launching.pals import is_pals
from dlscale.base.redaction import SECRET, redact
from dlscale.base.variables import HELPER, passed_on, shadowing
from dlscale.benchmarks.launch.asking import PROBE_SECONDS, NoAnswerError, ask
from dlscale.benchmarks.launch.probe import Probe
from dlscale.benchmarks.records.cell import Setting
from dlscale.benchmarks.systems.start import Installation
from dlscale.benchmarks.systems.system import DETECT, System

# Variables of a user's environment that change what runs. No others are recorded, whatever they begin with: what a
# variable is called that holds a secret, nobody knows.
RECORDED = Path(__file__).with_name("recorded_variables.txt")


def probe(
    installation: Installation,
    pairs: Iterable[tuple[str, str]] = (),
    options: Mapping[str, Mapping[str, Setting]] | None = None,
) -> Probe:
    """The report of an environment's own Python, with the (backend, framework) pairs that are usable there.

    `options` are those that backends will be given, by backend.

    Raises UsageError if dlscale is not installed there, or a framework is not the one whose version is recorded.
    """
    asked = ("/".join(pair) + _asked(pair[0], options or {}) for pair in pairs)
    try:
        report = ask(
            installation.python,
            "benchmarks.launch.probe",
            *asked,
            answer=Probe,
            variables=installation.variables,
        )
    except NoAnswerError as error:
        what = f"environment {installation.name}: its Python cannot import dlscale and what it uses ({error})"
        if first := shadowing(error.files):
            raise UsageError(f"{what}; PYTHONPATH puts {redact(first)} first: unset it there") from None
        raise UsageError(f"{what}; reinstall dlscale there") from None
    for framework, file in report.misplaced.items():
        raise UsageError(
            f"environment {installation.name}: {framework} would be {redact(file)}, which PYTHONPATH puts first and "
            "which has no version; unset PYTHONPATH there, or install it"
        )
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
        errors="replace",
        check=False,
        timeout=PROBE_SECONDS,
        env=passed_on(HELPER) | installation.variables,
    )
    return f"MPI_{done.stdout.strip()}" if done.returncode == 0 else None


def with_found_launcher(system: System, installation: Installation, report: Probe) -> tuple[System, str]:
    """The system with the launcher that starts its ranks, and a line on one that stands in for mpiexec.

    Raises UsageError where nothing starts them.
    """
    problem = report.mpi_problem or ("" if installation.mpiexec.exists() else "no mpiexec")
    if system.launcher != DETECT:
        found = system.launcher
    elif not problem or "torch" not in report.frameworks:
        found = "mpiexec"
    else:
        found = "torchrun"
    if not LAUNCHERS[found].needs_mpi and "torch" not in report.frameworks:
        raise UsageError(
            f"environment {installation.name} has no torch, whose {found} would start its ranks; "
            f"{framework_remedy('torch')} there, or choose another launcher"
        )
    line = ""
    if found != system.launcher and problem:
        line = (
            f"environment {installation.name} has no MPI that starts ranks ({problem}): {found} does, without MPI; for "
            "backends over MPI: pip install 'dlscale[mpich]' there"
        )
    return system.model_copy(update={"launcher": found}), line


def check_mpi(installation: Installation, report: Probe, *, launcher: str = "mpiexec") -> Flavour:
    """The MPI that both mpiexec and mpi4py use; mpi4py's where a system has another launcher.

    Raises UsageError if they differ or one is unusable.
    """
    if report.mpi is None:
        raise UsageError(
            f"environment {installation.name}: mpi4py finds no MPI ({report.mpi_problem}); "
            "install one there, e.g. with: pip install 'dlscale[mpich]'"
        )
    if launcher != "mpiexec":
        return _check_declared(installation, report.mpi, "mpi4py uses")
    if not installation.mpiexec.exists():
        raise UsageError(
            f"environment {installation.name} has no mpiexec at {redact(str(installation.mpiexec))}; "
            "install one there, e.g. with: pip install 'dlscale[mpich]'"
        )
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
        [str(installation.mpiexec), "--version"],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=60,
    )
    launcher = flavour_of(done.stdout + done.stderr)
    if launcher is None:
        text = (done.stdout + done.stderr).strip()
        pals = 'write launcher = "pals" into the system\'s file, or ' if is_pals(text) else ""
        raise UsageError(
            f"environment {installation.name}: mpiexec is of {'PALS' if pals else 'an MPI that dlscale does not know'} "
            f"({text[:60]!r}); {pals}use one of MPICH, Intel MPI or Open MPI"
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


def recorded_variables(variables: Mapping[str, str], *, own: Mapping[str, str]) -> dict[str, str]:
    """The inherited variables on the list, and all that dlscale itself sets, with home folder and user name redacted.

    What it sets are the names of the system's file, of the study and of its user; none that looks like a secret.
    """
    names = RECORDED.read_text(encoding="ascii").split()
    recorded = {name: value for name, value in variables.items() if name in names} | dict(own)
    return {name: redact(value) for name, value in sorted(recorded.items()) if not SECRET.search(name)}


def combine(*digests: str) -> str:
    """Eight hex digits that change with any of the digests."""
    return hashlib.sha256("-".join(digests).encode()).hexdigest()[:8]
