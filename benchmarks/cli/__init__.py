"""The command line: its verbs, and what they print to.

Verbs are loaded when they are called, so that `dlscale --help` costs next to nothing.
"""

from __future__ import annotations

import gc
import importlib
import io
import os
import shutil
import signal
import sys
import textwrap
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

import click
from click.shell_completion import CompletionItem

from dlscale.base.errors import UsageError, unknown
from dlscale.base.strings import redact, visible
from dlscale.base.variables import without_working_folder
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

MIN_COLUMNS = 110  # where the output goes to a file, which has no width to keep to
FAILED_USAGE, FAILED_CASES, NOT_COMPARABLE, INSUFFICIENT_DATA = 1, 2, 3, 4


class _Verbs(click.Group):
    """Knows each verb's module and line of help without importing it, also for a shell that completes a verb."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            if ctx.resilient_parsing:  # a shell that completes a line with a mistake in it
                return None
            raise UsageError(unknown("verb", cmd_name, list(VERBS)))
        try:
            module = importlib.import_module(f"dlscale.benchmarks.cli.{cmd_name}")
        except Exception as error:  # whatever a library makes of this environment
            raise ImportError(f"{type(error).__name__}: {error}") from None
        command: click.Command = getattr(module, cmd_name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        verbs = [CompletionItem(verb, help=VERBS[verb]) for verb in VERBS if verb.startswith(incomplete)]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for panel, verbs in PANELS.items():
            with formatter.section(panel):
                formatter.write_dl(list(verbs.items()))


HELP = """Measure how distributed deep-learning training scales.

\b
Examples:
  dlscale run weak-scaling                      the default study on this machine
  dlscale run weak-scaling --dry-run            the exact commands that it would start
  dlscale run strong-scaling --ranks 1,2,4 --backends none,ring --budget 10min
  dlscale report                                the table and the page of the latest study
  dlscale COMMAND --help                        options and examples of a verb
"""  # with click's mark for a block that is not wrapped
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
cli = click.version_option(package_name="dlscale")(_Verbs("cli", help=HELP, context_settings=SETTINGS))


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit.

    0 all good, 1 a user's mistake, 2 some cases failed, 3 not comparable, 4 insufficient data, 128 and the signal's
    number if one ended it (141: the reader of the output has gone).
    """
    gc.set_threshold(100_000)  # what libraries make stays; to search it takes a tenth of a short command
    sys.path[:] = without_working_folder(sys.path)
    os.environ.pop("MPLBACKEND", None)  # a notebook's own, and nothing here draws on a screen
    open_streams()
    status = run_command(cli, "dlscale", arguments)
    if status > BY_SIGNAL:  # all is written; on a busy machine taking the libraries down would take seconds
        os._exit(status)
    sys.exit(status)


def run_command(command: click.Command, name: str, arguments: list[str] | None = None) -> int:
    """Run a command, whose mistakes are one line under its name; returns the exit status."""
    interrupted = f"{name}: interrupted; what has finished is kept"
    status, mistake = FAILED_USAGE, ""
    try:
        with signals.handled(interrupted):
            returned = command.main(args=arguments, prog_name=name, standalone_mode=False)
        sys.stdout.flush()
        return returned if isinstance(returned, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
    except (BrokenPipeError, SystemExit) as error:  # click exits: 1 for the former, 0 after completion
        status = BY_SIGNAL + signal.SIGPIPE if getattr(error, "code", 1) else 0
    except (KeyboardInterrupt, click.Abort) as error:
        numbers = (error.__cause__ or error).args  # click makes an Abort of what has the signal's number
        status, mistake = BY_SIGNAL + next(iter(numbers), signal.SIGINT), interrupted
    except ImportError as error:
        mistake = redact(f"{name}: a library cannot be loaded: {error}")
    except OSError as error:  # without a file it is about standard output
        mistake = f"{name}: {f'{error.filename}: ' if error.filename else ''}{error.strerror}"
    except UsageError as error:
        mistake = f"{name}: {error}"
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        text = error.format_message().removesuffix(".")
        mistake = f"{name}: {text}" + (f"; see: {context.command_path} --help" if context else "")
    if mistake:
        with suppress(OSError):
            say(" ".join(visible(mistake).split()), err=True)
    drop_unwritten()
    return status


def open_streams() -> None:
    """Let closed streams end in /dev/null, and characters that a stream does not have be escapes."""
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open until the end
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def drop_unwritten() -> None:
    """Discard what cannot be written: the interpreter would try again at its end, and complain."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def say(text: str, *, err: bool = False) -> None:
    """Print a sentence. A terminal that is narrower gets it broken between words, files and pipes as it is."""
    if (sys.stderr if err else sys.stdout).isatty():
        width = shutil.get_terminal_size().columns
        text = textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)
    click.echo(text, err=err)


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, words: Collection[str]) -> None:
    """Print a table, whose columns of `words` begin at the left."""
    from rich.console import Console  # half of the time that `dlscale --help` takes
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="left" if column in words else "right")
    for row in rows:
        table.add_row(*map(str, row))
    Console(width=None if sys.stdout.isatty() else MIN_COLUMNS, markup=False).print(table)
