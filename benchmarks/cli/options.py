"""Options that several verbs share, kinds of values, and the study that a verb reads in a results folder."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from dlscale.base.errors import UsageError, unknown
from dlscale.base.quantities import parse_counts, parse_seconds, split_list
from dlscale.benchmarks.records.store import RECORDS_FOLDER
from dlscale.benchmarks.study.study import STUDY_FILE
from dlscale.benchmarks.systems.system import load_system
from dlscale.collectives import capabilities


def _backends(text: str) -> list[str]:
    names = split_list(text)
    for name in names:
        capabilities(name)  # raises UsageError for one that is no backend's
    return names


def _time(text: str) -> float:
    if not (seconds := parse_seconds(text)):
        raise ValueError("that is no time; give for example 2min")
    return seconds


class Read(click.ParamType[Any]):
    """What `read` makes of a text; a malformed one is a one-line error."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name, self._read = name, read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002
        """The value of a text. Raises UsageError."""
        try:
            return self._read(value) if isinstance(value, str) else value
        except ValueError as error:
            flag = param.opts[0] if param else self.name
            raise UsageError(f"{flag} {value}: {error}") from None


Words = partial(Read, "list", split_list)
Backends = partial(Read, "backends", _backends)  # which must be known
Counts = partial(Read, "counts", parse_counts)
Time = partial(Read, "time", _time)  # in seconds


results_option = click.option(
    "--results",
    type=click.Path(path_type=Path),
    default="results",
    show_default=True,
    help="Folder of the studies' records.",
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON with stable keys instead of a table."
)
study_argument = click.argument("name", metavar="[STUDY]", required=False)


def study_folders(results: Path) -> list[Path]:
    """All study folders, the most recently measured last. Raises UsageError if there is none."""
    measured = {}
    for path in results.glob(f"*/*/{STUDY_FILE}"):
        places = path, path.with_name(RECORDS_FOLDER)
        measured[path.parent] = max(place.stat().st_mtime for place in places if place.exists())
    if not measured:
        raise UsageError(f"no study in {results}; run one first, e.g.: dlscale run weak-scaling")
    return sorted(measured, key=measured.__getitem__)


def choose_study(results: Path, name: str | None, *, system: str | None = None) -> Path:
    """The folder of a study: `name` is its path, or the beginning of its name; of several the latest is taken.

    Only those on `system` are looked at, if given. Raises UsageError if there is none.
    """
    if name is not None and (Path(name) / STUDY_FILE).is_file():
        return Path(name)
    place = load_system(system).name if system else None
    folders = [folder for folder in study_folders(results) if place in (None, folder.parent.name)]
    if matching := [folder for folder in folders if folder.name.startswith(name or "")]:
        return matching[-1]
    where = f"in {results}" + (f" on {place}" if place else "")
    raise UsageError(unknown("study", name or "", sorted(folder.name for folder in folders), where=where))
