"""The command line. Verbs are loaded when they are called, so that `dlscale --help` costs next to nothing."""

from __future__ import annotations

import gc
import importlib
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click
from click.shell_completion import CompletionItem

from dlscale.base.errors import UsageError, did_you_mean, unknown
from dlscale.base.redaction import redact
from dlscale.base.variables import reason_of, without_working_folder
from dlscale.benchmarks.cli.streams import ReaderGoneError, clean_streams, say
from dlscale.benchmarks.launch import signals
from dlscale.benchmarks.launch.signals import BY_SIGNAL

# The verbs as `dlscale --help` groups them, each with its line of help and a module of its name.
PANELS = {
    "Studies": {
        "run": "Run or resume a study, then print its table and draw its figures.",
        "resume": "Resume a study that was interrupted or had failures.",
        "status": "Show the progress and failures of the studies in a results folder.",
    },
    "Results": {
        "report": "Print a study's table from its records.",
        "compare": "Test which backend is faster, or show how studies differ.",
        "figures": "Draw a study's figures, or draw or check published ones.",
        "export": "Export a study's records and numbers: tidy tables, markdown.",
        "proposal": "Write the scaling section of a proposal for compute time.",
    },
    "More measurements, and predictions": {
        "collectives": "Time allreduce over message sizes: the ring versus other libraries.",
        "predict": "Predict the curve for more nodes, from a profile and the network.",
    },
    "Set-up": {
        "system": "List, show and draft system files.",
        "doctor": "Show which backends are usable here, and what the others need.",
        "data": "Check input data.",
        "new": "Write a start for a model of your own in one file.",
    },
}
VERBS = {verb: text for verbs in PANELS.values() for verb, text in verbs.items()}

FAILED_USAGE, FAILED_CASES, NOT_COMPARABLE, INSUFFICIENT_DATA = 1, 2, 3, 4
RESUMED = ("run", "resume")  # verbs that go on where they were interrupted
LONGEST_NAME = 200  # of a file in a message


@contextmanager
def loading() -> Iterator[None]:
    """Raises UsageError for whatever a library that is imported inside makes of this environment."""
    try:
        yield
    except Exception as error:
        raise UsageError(f"a library cannot be loaded: {redact(reason_of(error))}") from None


class SubVerbs(click.Group):
    """A verb that has verbs of its own."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb's own verb. Raises UsageError if there is none of that name."""
        command = super().get_command(ctx, cmd_name)
        if command is None and not ctx.resilient_parsing:
            raise UsageError(unknown(f"verb of {self.name}", cmd_name, self.list_commands(ctx)))
        return command


class _Verbs(click.Group):
    """Knows each verb's module and line of help without importing it, also for a shell that completes a verb."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            if ctx.resilient_parsing:  # a shell that completes a line with a mistake in it
                return None
            raise UsageError(_no_verb(cmd_name))
        with loading():
            module = importlib.import_module(f"dlscale.benchmarks.cli.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        verbs = [
            CompletionItem(verb, help=text) for verb, text in VERBS.items() if verb.startswith(incomplete)
        ]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for panel, verbs in PANELS.items():
            with formatter.section(panel):
                formatter.write_dl(list(verbs.items()))


def _no_verb(word: str) -> str:
    """What to do about a word that is no verb; it may be a study."""
    from dlscale.base.definitions import names

    studies = {name.replace("-", ""): name for name in names("study/studies")}
    if (study := studies.get(word.replace("_", "").replace("-", ""))) and not did_you_mean(word, VERBS):
        return f"no verb {word!r}, which is a study; run it with: dlscale run {study}"
    return unknown("verb", word, list(VERBS))


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="dlscale")
def cli() -> None:
    """Measure how distributed deep-learning training scales.

    \b
    Examples:
      dlscale run weak-scaling                      the default study on this machine
      dlscale run weak-scaling --dry-run            the exact commands that it would start
      dlscale run strong-scaling --ranks 1,2,4 --backends none,ring --budget 10min
      dlscale report                                the table and the page of the latest study
      dlscale COMMAND --help                        options and examples of a verb
    """  # noqa: D301 - click's mark for a block that is not wrapped


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit.

    0 all good, 1 a user's mistake, 2 some cases failed, 3 not comparable, 4 insufficient data, 128 and the signal's
    number if one ended it (141: the reader of the output has gone).
    """
    gc.set_threshold(100_000)  # what libraries make stays; to search it takes a tenth of a short command
    try:
        with clean_streams():
            status = _run(arguments)
    except UsageError as error:  # about the streams themselves
        with suppress(OSError):
            click.echo(f"dlscale: {error}", err=True)
        status = FAILED_USAGE
    except ReaderGoneError:
        status = BY_SIGNAL + signal.SIGPIPE
    if status > BY_SIGNAL:  # all is written; on a busy machine taking the libraries down would take seconds
        os._exit(status)
    sys.exit(status)


def _run(arguments: list[str] | None) -> int:
    """Run the command line; returns the exit status. Raises UsageError, ReaderGoneError if nothing can be written."""
    try:
        os.getcwd()
    except OSError as error:  # relative names would mean nothing
        say(
            f"dlscale: the working directory cannot be used ({error.strerror}); change to one that exists",
            err=True,
        )
        return FAILED_USAGE
    sys.path[:] = without_working_folder(sys.path)
    os.environ.pop("MPLBACKEND", None)  # a notebook's own, and nothing here draws on a screen
    for name in ("COLUMNS", "LINES"):
        if not re.fullmatch("[1-9][0-9]{0,3}", os.environ.get(name, "")):
            os.environ.pop(name, None)  # rich makes a number of all digits, as many as there are
    return run_command(cli, "dlscale", arguments)


def run_command(command: click.Command, name: str, arguments: list[str] | None = None) -> int:
    """Run a command, whose mistakes are one line under its name; returns the exit status."""
    verb = next(iter(sys.argv[1:] if arguments is None else arguments), "")
    kept = "; what is finished is kept. Run the same command to resume" * (verb in RESUMED)
    interrupted = f"{name}: interrupted{kept}"
    try:
        with signals.handled(interrupted):
            status = command.main(args=arguments, prog_name=name, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return FAILED_USAGE
    except (UsageError, click.ClickException, ImportError, OSError) as error:
        say(f"{name}: {_line(error)}", err=True)
        return FAILED_USAGE
    except (KeyboardInterrupt, click.Abort) as error:
        click.echo(interrupted, err=True)  # click has ended the line
        return interrupted_status(error)
    return status if isinstance(status, int) else 0


def _line(error: Exception) -> str:
    """A mistake in one line. Raises an OSError again that is not about a file."""
    if isinstance(error, ImportError):
        return f"a library cannot be loaded: {redact(reason_of(error))}"
    if isinstance(error, OSError):
        if error.filename is None:
            raise error
        name = str(error.filename)
        return f"{name if len(name) <= LONGEST_NAME else f'{name[:LONGEST_NAME]} ...'}: {error.strerror}"
    text = error.format_message() if isinstance(error, click.ClickException) else str(error)
    if isinstance(error, click.UsageError) and error.ctx:
        if isinstance(error, click.NoSuchOption) and error.ctx.command.name in ("run", "predict"):
            text = _as_field(error.option_name) or text
        if "--help" not in text and text.endswith("."):
            text = f"{text[:-1]}; see: {error.ctx.command_path} --help"
    return " ".join(text.split())


def interrupted_status(error: BaseException) -> int:
    """The exit status after that KeyboardInterrupt, or after what click makes of one."""
    cause = error.__cause__ if isinstance(error, click.Abort) else error
    known = cause.args if isinstance(cause, KeyboardInterrupt) else ()
    return BY_SIGNAL + next(iter(known), signal.SIGINT)


def _as_field(flag: str) -> str:
    """How to give the field that was written as a flag; empty if no field has that name."""
    from dlscale.benchmarks.cli.request import OPTIONS
    from dlscale.benchmarks.study.settings import variables

    option = variables(OPTIONS).get(flag.removeprefix("--").replace("-", "_").upper())
    return f"no option {flag}; write --set {option.name}=VALUE" if option else ""
