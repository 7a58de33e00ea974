"""Tries a user's file before a study begins, in a separate process: its facts, and a step of it over backend `none`.

python -m dlscale.benchmarks.rank.own_trial FILE     prints an `Answer` in one line
"""

from __future__ import annotations

import math
import os
import signal
import sys
from pathlib import Path

from dlscale.base.errors import UsageError
from dlscale.collectives.none import NoneBackend
from dlscale.models.own import own_workload
from dlscale.models.own.facts import Answer, read_facts
from dlscale.models.own.file import TooLongError, load_file
from dlscale.models.own.model import PRESET, FilePlace, OwnModel
from dlscale.models.workload import Shard

LIMIT_SECONDS = 300  # for the file, its data and its first steps


def main() -> None:
    """Print the facts of the file that the command line names, or what is wrong."""
    path = Path(sys.argv[1]).absolute()
    out = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what the file prints is not the answer
    try:
        answer = Answer(model=checked(path))
    except UsageError as error:
        answer = Answer(problem=str(error))
    with os.fdopen(out, "w") as stream:
        stream.write(answer.model_dump_json() + "\n")
    os._exit(0)  # taking a framework's interpreter down takes as long as a start


def checked(path: Path, *, limit_seconds: float = LIMIT_SECONDS) -> OwnModel:
    """The facts of a file, of which a step was taken. Raises UsageError for whatever is wrong with it."""

    def stop(*_: object) -> None:
        raise TooLongError(f"not done after {limit_seconds:g} s")

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, limit_seconds)
    try:
        try_step(model := read_facts(path), FilePlace(path, path))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return model


def try_step(model: OwnModel, place: FilePlace) -> None:
    """Returns if a step of the file trains. Raises UsageError."""
    own, workload = load_file(place), own_workload(model, place)
    make = workload.factory(
        framework=model.framework,
        preset=PRESET,
        local_batch=model.local_batch,
        source=workload.input(PRESET, skip_bad=bool(model.bad_sample)),
    )

    def train() -> float:
        trainer = NoneBackend().distribute(make, shard=Shard(), seed=0)
        trainer.step()
        trainer.synchronize()
        return trainer.loss()

    loss = own.run(train, what="a training step")
    if not math.isfinite(loss):
        raise UsageError(f"{own.name}: the loss of the first step is {loss}; correct the file, or its data")


if __name__ == "__main__":
    main()
