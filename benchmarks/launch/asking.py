"""Asks an environment's own Python: a module of dlscale there prints its answer as JSON, in its last line."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TypeVar

from pydantic import BaseModel, ValidationError

from dlscale.base.redaction import redact
from dlscale.base.variables import HELPER, passed_on
from dlscale.benchmarks.launch.processes import running

PROBE_SECONDS = 300
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}  # no word of a framework's among the reasons

_FRAME = re.compile(r'  File "([^"]+)"')
M = TypeVar("M", bound=BaseModel)


class NoAnswerError(Exception):
    """The process did not answer; the message is why, in one line. `files` are those of the traceback, in its order."""

    def __init__(self, message: str, *, files: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.files = files


def ask(
    python: Path,
    module: str,
    *arguments: str,
    answer: type[M],
    variables: Mapping[str, str] = {},
    limit_seconds: float = PROBE_SECONDS,
    num_threads: int | None = None,
) -> M:
    """What `module` answers to the arguments, in a process that ends with this one.

    Raises NoAnswerError, and TimeoutExpired where it takes longer than the limit.
    """
    threads = {"OMP_NUM_THREADS": str(num_threads)} if num_threads else {}
    with (
        _in_memory() as said,
        _in_memory() as complained,
        # What it leaves behind, however it ends: AutoGraph's sources for one.
        TemporaryDirectory(prefix="dlscale-", ignore_cleanup_errors=True) as folder,
    ):
        with running(
            [str(python), "-P", "-m", f"dlscale.{module}", *arguments],
            environment={**passed_on(HELPER), **variables, **QUIET, **threads, "TMPDIR": folder},
            output=said,
            complaints=complained,
        ) as process:
            status = process.wait(timeout=limit_seconds)
        lines, complaints = (_lines(file) for file in (said, complained))
    try:
        if not status:
            return answer.model_validate_json(lines[-1] if lines else "")
    except ValidationError:
        pass
    raise NoAnswerError(
        redact(complaints[-1] if complaints else f"no answer, exit status {status}"),
        files=[match[1] for match in map(_FRAME.match, complaints) if match],
    )


def _in_memory() -> IO[bytes]:
    return os.fdopen(os.memfd_create("answer"), "w+b")


def _lines(file: IO[bytes]) -> list[str]:
    file.seek(0)
    return file.read().decode(errors="replace").strip().splitlines()
