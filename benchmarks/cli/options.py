"""The options of verbs: kinds of values, those that several verbs share, and what a user asks a study for.

`field_options` declares the options of `dlscale run`, all of them fields (`study.settings`), `study_of` makes the study
from what was asked for, and `choose_study` finds one that was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click
import rich_click
from pydantic import JsonValue, PositiveFloat

from dlscale.base.definitions import Frozen
from dlscale.base.errors import UsageError, unknown
from dlscale.base.quantities import Duration, parse_counts, parse_seconds, split_list
from dlscale.base.strings import Text
from dlscale.benchmarks.records.store import RECORDS_FOLDER
from dlscale.benchmarks.study.rules import option
from dlscale.benchmarks.study.settings import OPTIONS as STUDY_OPTIONS
from dlscale.benchmarks.study.settings import Option, assigned, options_of
from dlscale.benchmarks.study.study import STUDY_FILE, Study, load_study, placed
from dlscale.benchmarks.systems.start import with_launcher
from dlscale.benchmarks.systems.system import System, load_system
from dlscale.collectives import capabilities, with_capability
from dlscale.models.own.model import SUFFIX

NEEDS_SCHEDULER = ("nodes", "account", "partition", "walltime", "max_node_hours", "ranks_per_node")
PANELS = ("What", "Where", "How long", "Output")
# How rich-click lays out help.
LAYOUT = {
    "max_width": 110,
    "options_table_column_types": ["opt_long", "opt_short", "help"],
    "style_options_panel_box": "SIMPLE_HEAD",
}
EVERY_FIELD = "Any other field, e.g. rules.max_steps=2000 (docs/commands.md); repeatable."


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


class Request(Frozen):
    """Where and how a study runs, and `fields`: the values that the user gives to fields of the study, in tables."""

    system: Text = option("local", "System: a known name or a .toml file.", "Where")
    launcher: Text | None = option(
        None, "Launcher, e.g. torchrun, which starts ranks without MPI; default: the system's."
    )
    environment: Text | None = option(None, "Environment of the system; default: the current one.")
    data: Text | None = option(
        None, "Input file or folder, WORKLOAD=PATH,..., or synthetic; default: a sample.", "What"
    )
    allow_open_ports: bool | None = option(
        None, "Allow backends with unauthenticated sockets to span hosts (recorded)."
    )
    account: Text | None = option(None, "Account to charge the jobs to.", "Where")
    walltime: Duration | None = option(
        None, "Maximum wall time per job, e.g. 30min or 01:30:00; default: the partition's.", "Where"
    )
    max_node_hours: PositiveFloat | None = option(
        None, "Limit on the node-hours that the jobs may be billed."
    )
    results: Path = option(Path("results"), "Folder of the studies' records.", "Output")
    fields: dict[Text, JsonValue] = {}


OPTIONS: dict[str, Option] = STUDY_OPTIONS | options_of(Request)


def field_options(
    *flags: str, others: Sequence[str] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add fields as flags (the everyday ones) and `--set` for `others` (all), in panels: gives a `request`."""
    everyday = [each.name for panel in PANELS for each in OPTIONS.values() if each.panel == panel]
    listed = f"Other fields: {', '.join(others)}, BACKEND.OPTION (docs/commands.md); repeatable."
    help_text = listed if others else EVERY_FIELD

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_request(**options: Any) -> Any:
            request = request_of(options)
            for name in {*request.fields, *request.model_fields_set} - {"fields", *flags, *others}:
                if others:
                    raise UsageError(
                        f"--set {name}: nothing here depends on it; choose from: {', '.join(others)}"
                    )
            return command(request=request, **options)

        wrapped: Callable[..., Any] = rich_click.option(
            "--set", "set_", metavar="NAME=VALUE", multiple=True, help=help_text, panel="How long"
        )(with_request)
        for each in (OPTIONS[name] for name in reversed(flags or everyday)):
            kind = Read(each.last, each.read)
            wrapped = rich_click.option(each.flag, each.name, type=kind, help=each.help, panel=each.panel)(
                wrapped
            )
        return rich_click.rich_config(help_config=LAYOUT)(wrapped)

    return add


def request_of(options: dict[str, Any]) -> Request:
    """What the options of a command ask for, which are taken out of them. Raises UsageError."""
    values: dict[str, Any] = {}
    for name in OPTIONS:
        values |= options.pop(name, None) or {}  # None: the flag was not given
    others = assigned(options.pop("set_"), OPTIONS)
    if twice := sorted(values.keys() & others):
        raise UsageError(f"a flag and --set {twice[0]} say the same field; leave out one")
    values |= others
    own = {name: values.pop(name) for name in list(values) if name in Request.model_fields}
    return Request(**own, fields=placed({}, values))


def system_of(request: Request) -> System:
    """The system that was asked for, with the `launcher` that was. Raises UsageError."""
    system = load_system(request.system)
    if request.launcher:
        system = with_launcher(system, request.launcher)
    for name in NEEDS_SCHEDULER:
        if not system.has_jobs and (name in request.fields or name in request.model_fields_set):
            raise UsageError(
                f"{OPTIONS[name].flag} on {system.name}, which has 1 node and no scheduler; leave it out, or name "
                "another --system"
            )
    return system


def study_of(name: str, system: System, request: Request, /) -> tuple[Study, str | None]:
    """The named study, or the one in that file, changed by the request, and the data that it reads. Raises UsageError.

    The system's own data belong to its preset.
    """
    allowed = with_capability("open_ports") if request.allow_open_ports else ()
    changes = placed(request.fields, {f"{backend}.allow_open_ports": True for backend in allowed})
    study = load_study(name, system=system, **changes)
    if any(workload.endswith(SUFFIX) for workload in study.workloads):
        from dlscale.benchmarks.launch import own_models  # longer to import than a plan or a prediction

        # What a study's file says is the user's word as an option is.
        named = {"frameworks", "preset", "batch"} if name.endswith(".toml") else request.fields.keys()
        study = own_models.with_own_models(study, system, request.environment, named=named)
    own = system.defaults
    if own and request.data is None and study.preset == own.preset:
        return study, own.data
    return study, request.data


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
