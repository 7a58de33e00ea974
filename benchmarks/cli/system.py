"""`dlscale system`: the machines that dlscale knows, and a draft of this one's file.

`show` prints a table per section of the file, every fact with its kind and its source.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table

from dlscale.base import definitions
from dlscale.base.errors import UsageError
from dlscale.base.files import write_atomically
from dlscale.base.quantities import Fact, Quantity
from dlscale.base.strings import LONGEST_NAME
from dlscale.benchmarks.cli import SubVerbs
from dlscale.benchmarks.cli.options import json_option
from dlscale.benchmarks.systems.system import System, facts, load_system

KINDS = {
    "text": "in the text of",
    "table": "in a table of",
    "source code": "in the code or scripts of",
    "figure": "read by eye off a figure of",
    "machine": "by the machine itself:",
    "computed": "computed with facts of",
}


def render_system(system: System) -> RenderableType:
    """Everything in a system's file, for `rich.console.Console.print`."""
    parts: list[RenderableType] = [f"[bold]{escape(system.title)}[/bold]"]
    sections: dict[str, BaseModel | None] = {
        "a node": system.node,
        "its devices": system.devices,
        "the network": system.fabric,
        "the file system": system.filesystem,
        "ranks on a node": system.placement,
        "how a study becomes jobs": system.policy if system.has_jobs else None,
        "what a study does here by default": system.defaults,
    }
    parts += _section("", _general(system))
    for title, part in sections.items():
        if part is not None:
            parts += _section(title, _rows(part))
    for name, partition in system.partitions.items():
        mark = ", the default one" if name == system.partition else ""
        parts += _section(f"partition {name}{mark}", _rows(partition))
    for name, environment in system.environments.items():
        parts += _section(f"environment {name}", _rows(environment))
    if system.sources:
        parts += _section("sources", [(key, text, "") for key, text in system.sources.items()])
    return Group(*parts)


def _section(title: str, rows: list[tuple[str, str, str]]) -> list[RenderableType]:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    if any(source for _, _, source in rows):
        table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row[: len(table.columns)]))
    return [*([f"\n[bold]{escape(title)}[/bold]"] if title else []), table]


def _general(system: System) -> list[tuple[str, str, str]]:
    recognised = [f"host {name}" for name in system.recognised.hostnames]
    recognised += [f"{name}={value}" for name, value in system.recognised.variables.items()]
    words = {
        "name": ", ".join([system.name, *system.aliases]),
        "state": system.state,
        "scheduler, launcher": f"{system.scheduler}, {system.launcher}",
        "needs an account": "yes" if system.needs_account else "no",
        "recognised by": ", ".join(recognised) or "-",
        "is this machine": "yes" if system.is_here() else "no",
    }
    rows = [(name, value, "") for name, value in words.items()]
    facts = {"retired": system.retired, "nodes": system.num_nodes}
    return [*rows, *((name, *_shown(fact)) for name, fact in facts.items() if fact)]


def _rows(part: BaseModel) -> list[tuple[str, str, str]]:
    known = dict(facts(part))
    return [(name, *_shown(fact)) for name, fact in known.items()] + list(_settings(part))


def _shown(fact: Fact) -> tuple[str, str]:
    """A fact's value, and how it is known."""
    value = fact.text if isinstance(fact, Quantity) else str(getattr(fact, "value", ""))
    return value, f"{KINDS[fact.kind]} {fact.source}" + (f": {fact.note}" if fact.note else "")


def _settings(part: BaseModel) -> Iterator[tuple[str, str, str]]:
    """Name and value of options, variables and commands that are set."""
    for name in type(part).model_fields:
        value = getattr(part, name)
        if value is None or isinstance(value, Fact) or value in ([], {}):
            continue
        if isinstance(value, Mapping):
            yield from (
                (f"{name} {key}", str(setting), "")
                for key, setting in value.items()
                if not isinstance(setting, Fact)
            )
        elif isinstance(value, list):
            yield name, "\n".join(map(str, value)), ""
        else:
            yield name, str(value), ""


@click.command()
@click.option(
    "--out", type=click.Path(path_type=Path), help="File for the draft, *.toml; default: the terminal."
)
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@click.option("--name", help="Name of the system; default: Slurm's name of the cluster.")
@click.option(
    "--measure",
    is_flag=True,
    help="Memory bandwidth and matrix products of this node, measured for some seconds.",
)
def probe(out: Path | None, force: bool, name: str | None, measure: bool) -> int:
    """Draft a system's file for the machine that this runs on.

    Run it on a log-in node, and once more in a job if compute nodes differ. It reads this node and asks Slurm; it
    submits nothing. For other schedulers the draft has a template to complete.

    \b
    Examples:
      dlscale system probe
      dlscale system probe --name mine --measure --out mine.toml
      dlscale run weak-scaling --system mine.toml --dry-run
    """  # noqa: D301
    from dlscale.benchmarks.launch.other_load import read_other_load
    from dlscale.benchmarks.systems.probe.draft import FILL_IN, probe_machine

    if name is not None and not (len(name) <= LONGEST_NAME and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)):
        raise UsageError(
            f"--name {name[:LONGEST_NAME]!r} is no system's name; give a short one in small letters, such as my-cluster"
        )
    if out:
        _check(out, force=force)
    if measure and not (load := read_other_load(gpus=True)).quiet:
        click.echo(f"warning: {load.text}; what is measured now is too low", err=True)
    text = probe_machine(name=name, measure=measure)
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


@click.group(cls=SubVerbs)
def system() -> None:
    """List and show the machines that dlscale knows, or describe a new one.

    \b
    Examples:
      dlscale system list
      dlscale system show cori
      dlscale system probe --name mine --out mine.toml
    """  # noqa: D301


system.add_command(probe)


@system.command("list")
@json_option
def list_systems(as_json: bool) -> int:
    """List all systems, and whether this machine is one of them.

    \b
    Example: dlscale system list --json
    """  # noqa: D301
    rows = [_row(load_system(name)) for name in definitions.names("systems")]
    if as_json:
        click.echo(json.dumps({"schema": 1, "rows": rows}))
        return 0
    table = Table(box=None, pad_edge=False)
    for name in ("system", "title", "scheduler", "nodes", "devices", "state", "here"):
        table.add_column(name, justify="right" if name == "nodes" else "left", overflow="fold")
    for row in rows:
        devices = f"{row['devices_per_node']} x {row['device_model']}" if row["devices_per_node"] else "-"
        table.add_row(
            escape("\n".join([row["system"], *(f"= {alias}" for alias in row["aliases"])])),
            *(escape(str(row[key])) for key in ("title", "scheduler")),
            f"{row['num_nodes']:,}" if row["num_nodes"] else "-",
            escape(devices),
            row["retired"] or row["state"],
            "yes" if row["here"] else "-",
        )
    Console().print(table)
    return 0


def _row(system: System) -> dict[str, Any]:
    return {
        "system": system.name,
        "aliases": system.aliases,
        "title": system.title,
        "scheduler": system.scheduler,
        "num_nodes": system.num_nodes.value if system.num_nodes else None,
        "devices_per_node": system.devices.per_node.value if system.devices else 0,
        "device_model": system.devices.model.value if system.devices else "",
        "state": system.state,
        "retired": system.retired.value if system.retired else None,
        "here": system.is_here(),
    }


@system.command()
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> int:
    """Show every fact of a system with its kind and its source, or all that is wrong in its file.

    \b
    Examples:
      dlscale system show cori
      dlscale system show mine.toml
    """  # noqa: D301
    loaded = load_system(name)
    if as_json:
        click.echo(loaded.model_dump_json(indent=2))
    else:
        Console().print(render_system(loaded))
    return 0
