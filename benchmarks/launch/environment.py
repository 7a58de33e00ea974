"""An environment as seen from outside: what its own Python answers, and whether its parts match."""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from dlscale.base.errors import UsageError
from dlscale.base.launchers import LAUNCHERS, Flavour, flavour_of
from dlscale.base.strings import SECRET, redact
from dlscale.base.variables import HELPER, passed_on
from dlscale.benchmarks.launch import signals
from dlscale.benchmarks.launch.probe import Probe, Question
from dlscale.benchmarks.launch.supervisor import running, wait
from dlscale.benchmarks.records.record import Fingerprint
from dlscale.benchmarks.systems.start import Installation
from dlscale.benchmarks.systems.system import DETECT, System
from dlscale.models.frameworks import GPU_HELP

# Variables of a user's environment that change what runs. No others are recorded, whatever they begin with: what a
# variable is called that holds a secret, nobody knows.
RECORDED = Path(__file__).with_name("recorded_variables.txt")
LIMIT_SECONDS = 600.0  # of a process that is asked
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
) -> M:
    """What a module of dlscale answers in that Python: JSON in the last line that it prints. Raises NoAnswerError."""
    # What it leaves behind, however it ends, goes with the folder: AutoGraph's sources for one.
    with TemporaryDirectory(prefix="dlscale-", ignore_cleanup_errors=True) as folder:
        said, complained = Path(folder, "answer"), Path(folder, "complaints")
        command = [str(python), "-P", "-m", f"dlscale.{module}", argument]
        own = {**passed_on(HELPER), **variables, **QUIET, "TMPDIR": folder}
        with (
            said.open("wb") as output,
            complained.open("wb") as complaints,
            running(command, environment=own, output=output, complaints=complaints) as process,
        ):
            if not wait(process, LIMIT_SECONDS):
                raise NoAnswerError(f"no answer within {LIMIT_SECONDS:.0f} s")
            if -process.returncode in signals.STOPPING:
                time.sleep(STOPPED_SECONDS)
            signals.check()
        files = [file.read_text(errors="replace").strip() for file in (said, complained)]
    line, reason = (text.rpartition("\n")[2] for text in files)
    with suppress(ValidationError):
        if not process.returncode:
            return answer.model_validate_json(line)
    raise NoAnswerError(redact(reason or f"no answer, exit status {process.returncode}"))


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


def fingerprint(report: Probe, launcher: str) -> Fingerprint:
    """The digest that all records of one curve share, and what it was made of.

    A launcher without MPI is itself part of what is measured, and MPI is not. So are the GPUs, if asked for.
    """
    versions, node = dict(report.versions), dict(report.node)
    if not LAUNCHERS[launcher].needs_mpi:
        versions.pop("mpi", None)
        versions["launcher"] = launcher
    for gpus in report.gpus:
        versions |= gpus.libraries
        versions.setdefault(gpus.framework, gpus.version)  # under another name in a build for CPUs
        node[f"gpus_{gpus.framework}"] = ", ".join(gpus.names)
    text = json.dumps([report.commit, versions, node], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Fingerprint(digest=digest, commit=report.commit, versions=versions, node=node)


def with_found_launcher(
    system: System, installation: Installation, report: Probe
) -> tuple[System, Flavour | None, str]:
    """The system with the launcher that starts its ranks, their MPI, and a line on one that stands in for mpiexec.

    The MPI is that of mpiexec and mpi4py, None where ranks start without. Raises UsageError where nothing starts them.
    """
    where, launcher, line = f"environment {installation.name}", system.launcher, ""
    if launcher == DETECT:
        problem = report.mpi_problem or ("" if installation.mpiexec.exists() else "no mpiexec")
        launcher = "torchrun" if problem and "torch" in report.frameworks else "mpiexec"
        line = (
            f"{where} has no MPI that starts ranks ({problem}): {launcher} does, without MPI; for backends over MPI: "
            "pip install 'dlscale[mpich]' there"
        )
    system = system.model_copy(update={"launcher": launcher})
    if not LAUNCHERS[launcher].needs_mpi:
        if "torch" not in report.frameworks:
            raise UsageError(
                f"{where} has no torch, whose {launcher} starts its ranks; pip install torch there"
            )
        return system, None, line
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
            timeout=LIMIT_SECONDS,
        )
        text = (done.stdout + done.stderr).strip()
        flavour = flavour_of(text) or f"an MPI that dlscale does not know ({text[:60]!r})"
        if flavour != report.mpi:
            raise UsageError(
                f"{where}: mpiexec is of {flavour}, but mpi4py uses {report.mpi}; use the mpiexec that belongs to "
                f"{report.mpi}, or name the launcher in the system's TOML file"
            )
    return system, report.mpi, ""


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
