"""Asks an environment's own Python: a module of dlscale there prints its answer as JSON, in its last lines."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from dlscale.base.redaction import redact
from dlscale.benchmarks.launch.processes import end_with_parent

PROBE_SECONDS = 300
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}  # no word of a framework's among the reasons

M = TypeVar("M", bound=BaseModel)


class NoAnswerError(Exception):
    """The process did not answer; the message is why, in one line."""


def ask(
    python: Path,
    module: str,
    *arguments: str,
    answer: type[M],
    variables: Mapping[str, str] = {},
    num_answers: int = 1,
    limit_seconds: float = PROBE_SECONDS,
    num_threads: int | None = None,
) -> list[M]:
    """What `module` answers to the arguments, a line for each answer, in a process that ends with this one.

    Raises NoAnswerError, and TimeoutExpired where it takes longer than the limit.
    """
    threads = {"OMP_NUM_THREADS": str(num_threads)} if num_threads else {}
    done = subprocess.run(
        [str(python), "-m", f"dlscale.{module}", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=limit_seconds,
        env={**os.environ, **variables, **QUIET, **threads},
        preexec_fn=partial(end_with_parent, signal.SIGKILL),
    )
    lines: Sequence[str] = done.stdout.strip().splitlines()[-num_answers:]
    try:
        answers = [answer.model_validate_json(line) for line in lines]
    except ValidationError:
        answers = []
    if done.returncode or len(answers) != num_answers:
        complaints = done.stderr.strip().splitlines() or [f"no answer, exit status {done.returncode}"]
        raise NoAnswerError(redact(complaints[-1]))
    return answers
