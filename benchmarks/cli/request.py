"""What a user asks a study for: options of the study, and where and how it runs, from flags and `--set`.

`study_options` declares the options of `dlscale run`, all of them fields (`study.settings`), and `study_of` makes the
study from what was asked for.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import rich_click
from click.shell_completion import CompletionItem
from pydantic import PositiveFloat

from dlscale.base import definitions
from dlscale.base.definitions import Frozen
from dlscale.base.errors import UsageError
from dlscale.base.quantities import Duration
from dlscale.base.strings import Data, Text
from dlscale.benchmarks.cli.completion import completed_value
from dlscale.benchmarks.study.rules import option
from dlscale.benchmarks.study.settings import OPTIONS as STUDY_OPTIONS
from dlscale.benchmarks.study.settings import Option, assigned, nested, options_of
from dlscale.benchmarks.study.study import EVERYTHING, Study, load_study
from dlscale.benchmarks.systems.start import default_environment, find_installation, with_launcher
from dlscale.benchmarks.systems.system import System, load_system
from dlscale.collectives import with_capability
from dlscale.models.own import is_file

NEEDS_SCHEDULER = ("account", "partition", "walltime", "max_node_hours", "ranks_per_node")
PANELS = ("What", "Where", "How long", "Output")


class Request(Frozen):
    """Where and how a study runs, and `fields`: the values that the user gives to fields of the study, by name."""

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
    fields: dict[Text, Data] = {}

    def has(self, name: str) -> bool:
        """Whether the user gave a value for a field of the study or of this."""
        if name in STUDY_OPTIONS:
            return name in self.fields
        return name in self.model_fields_set and getattr(self, name) is not None

    def get(self, name: str) -> Any:
        """The value that the user gave for a field of the study; None if none."""
        return self.fields.get(name)

    def changed(self, *, fields: Mapping[str, Any] | None = None, **own: Any) -> Request:
        """The same with other `fields` and `own` values."""
        return self.model_copy(update={**own, "fields": {**self.fields, **(fields or {})}})


OPTIONS: dict[str, Option] = STUDY_OPTIONS | options_of(Request)

HELP = {  # how rich-click lays out help
    "max_width": 110,
    "options_table_column_types": ["opt_long", "opt_short", "help"],
    "style_options_panel_box": "SIMPLE_HEAD",
}


class StudyCommand(rich_click.RichCommand):
    """A command of a study, whose help shows its options in panels."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """A context whose help is laid out as `HELP` says."""
        return super().make_context(info_name, args, parent, **{"rich_help_config": HELP, **extra})


class _OfField(click.ParamType[Any]):
    """{name: value} of a field's text."""

    def __init__(self, option: Option) -> None:
        self._option = option
        self.name = option.last

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002
        """What the text says; a malformed one is a one-line error."""
        try:
            return self._option.read(value) if isinstance(value, str) else value
        except ValueError as error:
            raise UsageError(f"{self._option.flag} {value}: {error}") from None

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        """The field's values that go on so."""
        if self.name == "system":
            return completed_value(incomplete, definitions.names("systems"))
        known = [*EVERYTHING[self.name], "all"] if self.name in EVERYTHING else self._option.choices
        return completed_value(incomplete, known)


def study_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the everyday options of a study as flags, and `--set` for all; the command gets a `request`."""
    everyday = [option for panel in PANELS for option in OPTIONS.values() if option.panel == panel]
    help_text = "Any other field, e.g. rules.max_steps=2000 (docs/commands.md); repeatable."
    return _with_fields(command, everyday, help_text=help_text)


def field_options(*flags: str, others: Sequence[str]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add these fields as flags, and `--set` for `others` and no more; the command gets a `request`."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def checked(request: Request, **own: Any) -> Any:
            for name in {*nested(request.fields), *request.model_fields_set} - {"fields", *flags, *others}:
                raise UsageError(
                    f"--set {name}: nothing here depends on it; choose from: {', '.join(others)}"
                )
            return command(request=request, **own)

        help_text = f"Other fields: {', '.join(others)}, BACKEND.OPTION (docs/commands.md); repeatable."
        return _with_fields(checked, [OPTIONS[name] for name in flags], help_text=help_text)

    return add


def _with_fields(
    command: Callable[..., Any], flags: Sequence[Option], *, help_text: str
) -> Callable[..., Any]:
    """The command with a `request`, of these flags and of `--set`."""

    @functools.wraps(command)
    def with_request(**options: Any) -> Any:
        own = {name: value for name, value in options.items() if name not in OPTIONS and name != "set_"}
        return command(request=request_of(options), **own)

    wrapped: Callable[..., Any] = rich_click.option(
        "--set", "set_", metavar="NAME=VALUE", multiple=True, help=help_text, panel="How long"
    )(with_request)
    for each in reversed(flags):
        wrapped = rich_click.option(
            each.flag, each.name, type=_OfField(each), help=each.help, panel=each.panel
        )(wrapped)
    return wrapped


def request_of(options: Mapping[str, Any]) -> Request:
    """What the options of a command ask for, whose flags are None where they were not given. Raises UsageError."""
    values: dict[str, Any] = {}
    for name in OPTIONS:
        values |= options.get(name) or {}
    others = assigned(options["set_"], OPTIONS)
    if twice := sorted(values.keys() & others):
        raise UsageError(f"a flag and --set {twice[0]} say the same field; leave out one")
    values |= others
    own = {name: values.pop(name) for name in list(values) if name in Request.model_fields}
    return Request(**own, fields=values)


def system_of(request: Request) -> System:
    """The system that was asked for, with the `launcher` that was. Raises UsageError."""
    return with_launcher(load_system(request.system), request.launcher)


def study_of(name: str, machine: System, request: Request, /) -> Study:
    """The named study, or the one in that file, changed by the request. Raises UsageError."""
    if not machine.has_jobs:
        _check_placement(machine, request)
    changes = nested(request.fields)
    if request.allow_open_ports:
        options = changes.setdefault("backend_options", {})
        for backend in with_capability("open_ports"):
            options.setdefault(backend, {})["allow_open_ports"] = True
    study = load_study(name, system=machine, **changes)
    return _with_files(study, machine, request, from_file=name.endswith(".toml"))


def _with_files(study: Study, machine: System, request: Request, *, from_file: bool) -> Study:
    """The study with the facts of those workloads that are files. Raises UsageError for one that cannot be trained.

    What a study `from_file` says is the user's word as an option is.
    """
    workloads = _whole_paths(study.workloads)
    paths = [name for name in workloads if is_file(name)]
    if not paths:
        return study
    # Here, because a user's files and data take longer to import than a plan or a prediction.
    from dlscale.benchmarks.launch import own_models

    study = study.model_copy(update={"workloads": workloads})
    python = Path(sys.executable)
    if machine.is_here():  # elsewhere it is only rehearsed
        python = find_installation(machine, request.environment or default_environment(machine)).python
    models = {path: own_models.ask(Path(path), python) for path in paths}
    named = {field for field in ("frameworks", "preset", "batch") if from_file or request.has(field)}
    return own_models.with_own_models(study, models, named=named)


def _whole_paths(names: Sequence[str]) -> list[str]:
    """The words of a list, in which a file whose path has blanks is one again."""
    whole: list[str] = []
    for name in names:
        whole.append(name)
        if is_file(name):
            tails = ((begin, " ".join(whole[begin:])) for begin in range(len(whole)))
            for begin, path in tails:  # the longest first: its end may be the name of another file
                if Path(path).is_file():
                    whole[begin:] = [path]
                    break
    return whole


def data_of(machine: System, request: Request) -> str | None:
    """The data that were asked for, or the system's own, which belong to its preset."""
    if (own := machine.defaults) and request.data is None and request.get("preset") in (None, own.preset):
        return own.data
    return request.data


def own_defaults(study: Study, machine: System, request: Request) -> str:
    """A line on what the user left to the system, and why it is so; empty if that is nothing."""
    if machine.defaults is None:
        return ""
    own = {
        "device": study.device if study.device != "cpu" else "",
        "frameworks": ", ".join(study.frameworks),
        "preset": study.preset,
        "batch": study.batch,
        "data": data_of(machine, request) if request.data is None else "",
    }
    parts = [f"{name} {value}" for name, value in own.items() if value and not request.has(name)]
    return f"defaults of {machine.name}: {'; '.join(parts)} ({machine.defaults.reason})" if parts else ""


def _check_placement(system: System, request: Request) -> None:
    """Raises UsageError for options that need several nodes or a scheduler, instead of ignoring them."""
    nodes = request.get("nodes")
    if nodes not in (None, [1]):
        raise UsageError(
            f"--nodes {','.join(map(str, nodes))} on {system.name}, which has 1 node; "
            "leave it out, or name a --system with more nodes"
        )
    for name in NEEDS_SCHEDULER:
        if request.has(name):
            raise UsageError(
                f"{OPTIONS[name].spelling} on {system.name}, which has no scheduler; leave it out, or name a "
                f"--system with one (known: {', '.join(definitions.names('systems'))})"
            )
