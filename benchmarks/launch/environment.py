"""An environment as seen from outside: what its own Python answers, and whether its parts match."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TypeVar

from pydantic import BaseModel, ValidationError

from dlscale.base.errors import UsageError
from dlscale.base.launchers import LAUNCHERS, Flavour, flavour_of, is_pals
from dlscale.base.redaction import SECRET, redact
from dlscale.base.variables import HELPER, passed_on, shadowing
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
_FRAME = re.compile(r'  File "([^"]+)"')


class NoAnswerError(Exception):
    """The process did not answer; the message is why, in one line. `files` are those of the traceback, in its order."""

    def __init__(self, message: str, *, files: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.files = files


class TooLateError(NoAnswerError):
    """It took longer than its limit."""


def ask(
    python: Path,
    module: str,
    *arguments: str,
    answer: type[M],
    variables: Mapping[str, str] = {},
    limit_seconds: float = PROBE_SECONDS,
) -> M:
    """What a module of dlscale answers in that Python: JSON in the last line that it prints.

    Raises NoAnswerError, TooLateError where it takes longer than the limit.
    """
    with (
        _in_memory() as output,
        _in_memory() as complaints,
        # What it leaves behind, however it ends: AutoGraph's sources for one.
        TemporaryDirectory(prefix="dlscale-", ignore_cleanup_errors=True) as folder,
        running(
            [str(python), "-P", "-m", f"dlscale.{module}", *arguments],
            environment={**passed_on(HELPER), **variables, **QUIET, "TMPDIR": folder},
            output=output,
            complaints=complaints,
        ) as process,
    ):
        if not wait(process, limit_seconds):
            raise TooLateError(f"no answer within {limit_seconds:.0f} s")
        if -process.returncode in signals.STOPPING:
            time.sleep(STOPPED_SECONDS)
        signals.check()
        lines, reasons = _lines(output), _lines(complaints)
    with suppress(ValidationError):
        if not process.returncode:
            return answer.model_validate_json(lines[-1] if lines else "")
    raise NoAnswerError(
        redact(reasons[-1] if reasons else f"no answer, exit status {process.returncode}"),
        files=[match[1] for match in map(_FRAME.match, reasons) if match],
    )


def _in_memory() -> IO[bytes]:
    return os.fdopen(os.memfd_create("answer"), "w+b")


def _lines(file: IO[bytes]) -> list[str]:
    file.seek(0)
    return file.read().decode(errors="replace").strip().splitlines()


def probe(installation: Installation, question: Question = Question()) -> Probe:  # noqa: B008 - frozen
    """The report of an environment's own Python.

    Raises UsageError if dlscale is not installed there, or a framework is not the one whose version is recorded.
    """
    try:
        report = ask(
            installation.python,
            "benchmarks.launch.probe",
            question.model_dump_json(),
            answer=Probe,
            variables=installation.variables,
        )
    except NoAnswerError as error:
        what = f"environment {installation.name}: its Python cannot import dlscale and what it uses ({error})"
        if first := shadowing(error.files):
            raise UsageError(f"{what}; PYTHONPATH puts {redact(first)} first: unset it there") from None
        also = f"; for GPUs {GPU_HELP}" if question.gpus else ""
        raise UsageError(f"{what}; reinstall dlscale there{also}") from None
    for framework, file in report.misplaced.items():
        raise UsageError(
            f"environment {installation.name}: {framework} would be {redact(file)}, which PYTHONPATH puts first and "
            "which has no version; unset PYTHONPATH there, or install it"
        )
    return report


def mpi_threads(installation: Installation) -> str | None:
    """The thread level that an environment's MPI provides, by MPI's name; None if MPI does not start.

    A process of its own: an MPI that does not start may end it.
    """
    program = (
        "from mpi4py import MPI; "
        "print({getattr(MPI, n): n for n in dir(MPI) if n.startswith('THREAD_')}[MPI.Query_thread()])"
    )
    command = [str(installation.python), "-P", "-c", program]
    done = _output_of(command, variables=passed_on(HELPER) | installation.variables)
    return f"MPI_{done.stdout.strip()}" if done.returncode == 0 else None


def _output_of(
    command: Sequence[str], *, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=PROBE_SECONDS,
        env=variables,
    )


def with_found_launcher(system: System, installation: Installation, report: Probe) -> tuple[System, str]:
    """The system with the launcher that starts its ranks, and a line on one that stands in for mpiexec.

    Raises UsageError where nothing starts them.
    """
    problem = report.mpi_problem or ("" if installation.mpiexec.exists() else "no mpiexec")
    launcher = system.launcher
    if launcher == DETECT:
        launcher = "torchrun" if problem and "torch" in report.frameworks else "mpiexec"
    if not LAUNCHERS[launcher].needs_mpi:
        check_frameworks(installation, report, ["torch"], why=f", whose {launcher} would start its ranks")
    line = ""
    if launcher != system.launcher and problem:
        line = (
            f"environment {installation.name} has no MPI that starts ranks ({problem}): {launcher} does, without MPI; "
            "for backends over MPI: pip install 'dlscale[mpich]' there"
        )
    return system.model_copy(update={"launcher": launcher}), line


def check_mpi(installation: Installation, report: Probe, *, launcher: str = "mpiexec") -> Flavour:
    """The MPI that both mpiexec and mpi4py use; mpi4py's where a system has another launcher.

    Raises UsageError if they differ or one is unusable.
    """
    where, remedy = (
        f"environment {installation.name}",
        "install one there, e.g. with: pip install 'dlscale[mpich]'",
    )
    if report.mpi is None:
        raise UsageError(f"{where}: mpi4py finds no MPI ({report.mpi_problem}); {remedy}")
    user = "mpi4py uses"
    if launcher == "mpiexec":
        user = "its mpiexec is of"
        if not installation.mpiexec.exists():
            raise UsageError(f"{where} has no mpiexec at {redact(str(installation.mpiexec))}; {remedy}")
        flavour = _flavour_of_mpiexec(installation)
        if flavour != report.mpi:
            raise UsageError(
                f"{where}: mpiexec is of {flavour}, but mpi4py uses {report.mpi}; use the mpiexec that belongs to "
                f"{report.mpi}"
            )
    if installation.mpi not in (DETECT, report.mpi):
        raise UsageError(
            f"{where} was declared with {installation.mpi}, but {user} {report.mpi}; correct `mpi` in the system's "
            f"TOML file or install {installation.mpi} there"
        )
    return report.mpi


def _flavour_of_mpiexec(installation: Installation) -> Flavour:
    done = _output_of([str(installation.mpiexec), "--version"])
    text = (done.stdout + done.stderr).strip()
    flavour = flavour_of(text)
    if flavour is None:
        pals = 'write launcher = "pals" into the system\'s file, or ' if is_pals(text) else ""
        raise UsageError(
            f"environment {installation.name}: mpiexec is of {'PALS' if pals else 'an MPI that dlscale does not know'} "
            f"({text[:60]!r}); {pals}use one of MPICH, Intel MPI or Open MPI"
        )
    return flavour


def check_frameworks(
    installation: Installation, report: Probe, wanted: Iterable[str], *, why: str = ""
) -> None:
    """Raises UsageError unless the environment has all of the frameworks."""
    for framework in wanted:
        if framework not in report.frameworks:
            raise UsageError(
                f"environment {installation.name} has no {framework}{why} (it has: "
                f"{', '.join(report.frameworks) or 'none'}); {framework_remedy(framework)} there"
            )


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
