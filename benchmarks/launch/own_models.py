"""Users' own models: asks an environment's Python what their files are, and keeps copies of them with a study.

Every launch trains with the study's copy, so that what is recorded is what ran, however the user's file goes on.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from dlscale.base.errors import UsageError
from dlscale.base.files import make_folder, read_regular, refuse_links, write_atomically
from dlscale.benchmarks.launch import environment
from dlscale.benchmarks.launch.environment import NoAnswerError
from dlscale.benchmarks.study.study import Study
from dlscale.benchmarks.systems.start import find_installation
from dlscale.benchmarks.systems.system import System
from dlscale.models.own.facts import Answer
from dlscale.models.own.model import SUFFIX, FilePlace, OwnModel

FOLDER = "own"  # of a study: a folder per file, with its copy
ORIGIN = "origin.txt"  # next to the copy: where the user has the file, so that it finds its data
THREADS = {"OMP_NUM_THREADS": "1"}


def ask(path: Path, python: Path) -> OwnModel:
    """The facts of a user's file, from a process of that Python. Raises UsageError with what is wrong."""
    try:
        answer = environment.ask(
            python, "benchmarks.rank.own_trial", str(path.absolute()), answer=Answer, variables=THREADS
        )
    except NoAnswerError as error:
        raise UsageError(
            f"{path.name} has ended without a first step: {error}; correct the file, or give it less data"
        ) from None
    if answer.model is None:
        raise UsageError(answer.problem)
    if answer.model.warned:
        sys.stderr.write(f"{path.name}: a warning in its first steps: {answer.model.warned}\n")
    return answer.model


def keep_copies(study: Study, folder: Path) -> None:
    """Copy the study's files into its folder, unless they are there. Ranks refuse a text of another digest."""
    for name, path in study.own_files.items():
        copy = folder / FOLDER / name / study.own_models[name].file
        if not copy.exists():
            refuse_links([copy.parent])
            make_folder(copy.parent)
            write_atomically(copy.with_name(ORIGIN), str(path.absolute()))
            write_atomically(copy, path.read_bytes())


def place_of(own: OwnModel, workload: str, *, folder: Path) -> FilePlace:
    """Where the copy of a cell's file is, in the study's folder."""
    copy = (folder / FOLDER / workload / own.file).absolute()
    origin = copy.with_name(ORIGIN)
    return FilePlace(copy, Path(read_regular(origin).decode()) if origin.exists() else copy)


def with_own_models(
    study: Study, system: System, environment_name: str | None, *, named: Collection[str]
) -> Study:
    """The study with the facts of its files. Fields that the user has not `named` follow the files.

    Raises UsageError for a file that cannot be trained, or in another framework than the ones that were named.
    """
    python = Path(sys.executable)
    if system.is_here():  # elsewhere it is only rehearsed
        python = find_installation(system, environment_name).python
    models = {name: ask(Path(name), python) for name in study.workloads if name.endswith(SUFFIX)}
    shipped = [name for name in study.workloads if name not in models]
    fields: dict[str, Any] = {
        "workloads": [models[name].name if name in models else name for name in study.workloads],
        "own_models": {model.name: model for model in models.values()},
        "own_files": {model.name: Path(path) for path, model in models.items()},
    }
    if "frameworks" not in named:
        written = [model.framework for model in models.values()]
        fields["frameworks"] = list(dict.fromkeys([*written, *(study.frameworks if shipped else ())]))
        fields["every_framework"] = len(fields["frameworks"]) > 1
    # The study's own preset and batch are those of its own workloads.
    if not shipped and "preset" not in named:
        fields |= {"preset": None} | ({} if "batch" in named else {"batch": None})
    return study.model_copy(update=fields)
