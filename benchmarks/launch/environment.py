"""An environment as seen from outside: what its own Python answers, and whether its parts match."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TypeVar

from pydantic import BaseModel, ValidationError

from dlscale.base.errors import UsageError
from dlscale.base.launchers import LAUNCHERS, Flavour, flavour_of
from dlscale.base.redaction import SECRET, redact
from dlscale.base.variables import HELPER, passed_on
from dlscale.benchmarks.launch import signals
from dlscale.benchmarks.launch.probe import Probe, Question
from dlscale.benchmarks.launch.processes import running, wait
from dlscale.benchmarks.rank.observers import OtherPrograms
from dlscale.benchmarks.records.record import DISTURBED
from dlscale.benchmarks.systems.start import Installation
from dlscale.benchmarks.systems.system import DETECT, System
from dlscale.models.frameworks import GPU_HELP

# Variables of a user's environment that change what runs. No others are recorded, whatever they begin with: what a
# variable is called that holds a secret, nobody knows.
RECORDED = Path(__file__).with_name("recorded_variables.txt")
PROBE_SECONDS = 300
READING_SECONDS = 1.0  # of the load
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}  # no word of a framework's among the reasons
STOPPED_SECONDS = 0.5  # within which all processes of a job get the signal of a scheduler that stops it
M = TypeVar("M", bound=BaseModel)


class NoAnswerError(Exception):
    """The process did not answer; the message is why, in one line."""


def ask(
    python: Path,
    module: str,
    argument: str,
    *,
    answer: type[M],
    variables: Mapping[str, str] = {},
    limit_seconds: float = PROBE_SECONDS,
) -> M:
    """What a module of dlscale answers in that Python: JSON in the last line that it prints. Raises NoAnswerError."""
    with (
        os.fdopen(os.memfd_create("answer"), "w+b") as output,
        os.fdopen(os.memfd_create("complaints"), "w+b") as complaints,
        # What it leaves behind, however it ends: AutoGraph's sources for one.
        TemporaryDirectory(prefix="dlscale-", ignore_cleanup_errors=True) as folder,
        running(
            [str(python), "-P", "-m", f"dlscale.{module}", argument],
            environment={**passed_on(HELPER), **variables, **QUIET, "TMPDIR": folder},
            output=output,
            complaints=complaints,
        ) as process,
    ):
        if not wait(process, limit_seconds):
            raise NoAnswerError(f"no answer within {limit_seconds:.0f} s")
        if -process.returncode in signals.STOPPING:
            time.sleep(STOPPED_SECONDS)
        signals.check()
        lines, reasons = _lines(output), _lines(complaints)
    with suppress(ValidationError):
        if not process.returncode:
            return answer.model_validate_json(lines[-1])
    silent = f"no answer, exit status {process.returncode}"
    raise NoAnswerError(redact(reasons[-1] or silent))


def _lines(file: IO[bytes]) -> list[str]:
    """At least one line, which may be empty."""
    file.seek(0)
    return file.read().decode(errors="replace").strip().splitlines() or [""]


def probe(installation: Installation, question: Question = Question()) -> Probe:  # noqa: B008 - frozen
    """The report of an environment's own Python. Raises UsageError if dlscale is not installed there."""
    text, variables = question.model_dump_json(), installation.variables
    try:
        return ask(installation.python, "benchmarks.launch.probe", text, answer=Probe, variables=variables)
    except NoAnswerError as error:
        also = f"; for GPUs {GPU_HELP}" if question.gpus else ""
        raise UsageError(
            f"environment {installation.name}: its Python cannot import dlscale and what it uses ({error}); "
            f"reinstall dlscale there, without PYTHONPATH{also}"
        ) from None


def with_found_launcher(system: System, installation: Installation, report: Probe) -> tuple[System, str]:
    """The system with the launcher that starts its ranks, and a line on one that stands in for mpiexec.

    Raises UsageError where nothing starts them.
    """
    problem = report.mpi_problem or ("" if installation.mpiexec.exists() else "no mpiexec")
    launcher, line = system.launcher, ""
    if launcher == DETECT:
        launcher = "torchrun" if problem and "torch" in report.frameworks else "mpiexec"
        line = (
            f"environment {installation.name} has no MPI that starts ranks ({problem}): {launcher} does, without MPI; "
            "for backends over MPI: pip install 'dlscale[mpich]' there"
        ) * bool(problem)
    if not LAUNCHERS[launcher].needs_mpi and "torch" not in report.frameworks:
        raise UsageError(
            f"environment {installation.name} has no torch, whose {launcher} starts its ranks; pip install torch there"
        )
    return system.model_copy(update={"launcher": launcher}), line


def check_mpi(installation: Installation, report: Probe, *, launcher: str = "mpiexec") -> Flavour:
    """The MPI that both mpiexec and mpi4py use; mpi4py's where a system has another launcher.

    Raises UsageError if they differ or one is unusable.
    """
    where = f"environment {installation.name}"
    remedy = "install one there, e.g. with: pip install 'dlscale[mpich]'"
    if report.mpi is None:
        raise UsageError(f"{where}: mpi4py finds no MPI ({report.mpi_problem}); {remedy}")
    if launcher == "mpiexec":
        if not installation.mpiexec.exists():
            raise UsageError(f"{where} has no mpiexec at {redact(str(installation.mpiexec))}; {remedy}")
        done = subprocess.run(
            [str(installation.mpiexec), "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=PROBE_SECONDS,
        )
        text = (done.stdout + done.stderr).strip()
        flavour = flavour_of(text) or f"an MPI that dlscale does not know ({text[:60]!r})"
        if flavour != report.mpi:
            raise UsageError(
                f"{where}: mpiexec is of {flavour}, but mpi4py uses {report.mpi}; use the mpiexec that belongs to "
                f"{report.mpi}, or name the launcher in the system's TOML file"
            )
    if installation.mpi not in (DETECT, report.mpi):
        raise UsageError(
            f"{where} was declared with {installation.mpi}, but mpi4py uses {report.mpi}; correct `mpi` in the "
            f"system's TOML file or install {installation.mpi} there"
        )
    return report.mpi


def framework_remedy(framework: str) -> str:
    """The command that installs a framework."""
    return "pip install torch" if framework == "torch" else f"pip install 'dlscale[{framework}]'"


def other_load() -> str:
    """`other programs use 0.8 of 2 cores`, read over a second; empty on a quiet machine."""
    cores = os.sched_getaffinity(0)
    others = OtherPrograms(cores, [os.getpid()])
    time.sleep(READING_SECONDS)
    share = others.share() or 0.0
    return f"other programs use {share * len(cores):.1f} of {len(cores)} cores" if share > DISTURBED else ""


def recorded_variables(variables: Mapping[str, str], *, own: Mapping[str, str]) -> dict[str, str]:
    """The inherited variables on the list, and all that dlscale itself sets, with home folder and user name redacted.

    What it sets are the names of the system's file, of the study and of its user; none that looks like a secret.
    """
    names = RECORDED.read_text(encoding="ascii").split()
    recorded = {name: value for name, value in variables.items() if name in names} | dict(own)
    return {name: redact(value) for name, value in sorted(recorded.items()) if not SECRET.search(name)}
