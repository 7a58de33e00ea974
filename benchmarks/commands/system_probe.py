"""`dlscale system probe`: a draft of this machine's file."""

from __future__ import annotations

import re
from pathlib import Path

import click

from dlscale.models.errors import UsageError
from dlscale.models.files import write_atomically


@click.command()
@click.option("--out", type=click.Path(path_type=Path), help="Write the draft to this .toml file instead.")
@click.option("--force", is_flag=True, help="Write it even if there is such a file already.")
@click.option("--name", help="The system's name; default: the cluster's, as its scheduler calls it.")
def probe(out: Path | None, force: bool, name: str | None) -> int:
    """Describe the machine that this runs on: the draft of a system's file.

    Run it on a log-in node, and once more in a job if compute nodes differ. It reads files and asks the scheduler;
    it starts and submits nothing.

    \b
    Examples:
      dlscale system probe
      dlscale system probe --name mine --out mine.toml
      dlscale run weak-scaling --system mine.toml --dry-run
    """  # noqa: D301
    from dlscale.benchmarks.system_probe.draft import draft
    from dlscale.benchmarks.system_probe.facts import FILL_IN
    from dlscale.benchmarks.system_probe.host import Host
    from dlscale.benchmarks.system_probe.machine import read_machine

    if name is not None and not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise UsageError(
            f"--name {name!r} is no system's name; give one in small letters, such as my-cluster"
        )
    if out:
        _check(out, force=force)
    text = draft(read_machine(Host()), name=name)
    if not out:
        click.echo(text, nl=False)
        return 0
    replaced = out.exists()
    write_atomically(out, text, mode=0o644, remedy="free space or give another file with --out")
    click.echo(
        f"{'replaced' if replaced else 'wrote'} {out}; {text.count(FILL_IN) - 1} places ask you to fill them in"
    )
    click.echo(f"try it with: dlscale run weak-scaling --system {out} --dry-run")
    return 0


def _check(out: Path, *, force: bool) -> None:
    """Returns if `out` may be written. Raises UsageError."""
    if out.suffix != ".toml":
        raise UsageError(
            f"--out {out} does not end in .toml, by which dlscale knows files of systems; rename it"
        )
    if out.is_dir():
        raise UsageError(f"--out {out} is a folder; give the name of a file in it")
    if out.exists() and not force:
        raise UsageError(f"{out} exists already; give --force to replace it, or another file with --out")
    if not out.parent.is_dir():
        raise UsageError(f"no folder {out.parent} for --out {out}; make it first, or give another file")
