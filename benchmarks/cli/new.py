"""`dlscale new`: a commented start for a model of the user's own."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import click

from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import say
from dlscale.models.own.model import SUFFIX


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--framework",
    type=click.Choice(("torch", "keras")),
    default="torch",
    show_default=True,
    help="Framework of the network.",
)
def new(path: Path, framework: str) -> int:
    """Write PATH: a network, a loss, an optimizer and data in one commented file, which trains as it is.

    \b
    Examples:
      dlscale new mine.py
      dlscale new mine.py --framework keras
    """  # noqa: D301
    if path.suffix != SUFFIX or path.name.count(".") != 1:
        raise UsageError(
            f"{path}: the file's name must end in {SUFFIX}, without other dots; e.g. mine{SUFFIX}"
        )
    folder = resources.files("dlscale.benchmarks.cli").joinpath("templates")
    text = folder.joinpath(f"{framework}.py.txt").read_text("utf-8")
    with path.open("x", encoding="utf-8") as file:
        file.write(text.replace("THIS_FILE", str(path)))
    say(f"{path} trains as it is: dlscale run weak-scaling --workloads {path}")
    return 0
