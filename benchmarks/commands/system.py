"""`dlscale system`: the machines that dlscale knows."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dlscale.benchmarks import definition
from dlscale.benchmarks.cli import FAILED_USAGE
from dlscale.benchmarks.commands.options import json_option
from dlscale.benchmarks.commands.system_probe import probe
from dlscale.benchmarks.commands.system_show import render
from dlscale.benchmarks.system import System, load_system
from dlscale.benchmarks.system_lint import lint


@click.group()
def system() -> None:
    """List, show and check the machines that dlscale knows, or describe a new one.

    \b
    Examples:
      dlscale system list
      dlscale system show cori
      dlscale system probe --name mine --out mine.toml
      dlscale system lint mine.toml
    """  # noqa: D301


system.add_command(probe)


@system.command("list")
@json_option
def list_systems(as_json: bool) -> int:
    """Names of all systems, and whether this machine is one of them.

    \b
    Example: dlscale system list --json
    """  # noqa: D301
    rows = [_row(load_system(name)) for name in definition.names("systems")]
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
            row["state"],
            "yes" if row["here"] else "-",
        )
    Console().print(table)
    return 0


def _row(found: System) -> dict[str, Any]:
    return {
        "system": found.name,
        "aliases": found.aliases,
        "title": found.title,
        "scheduler": found.scheduler,
        "num_nodes": found.num_nodes.value if found.num_nodes else None,
        "devices_per_node": found.devices.per_node.value if found.devices else 0,
        "device_model": found.devices.model.value if found.devices else "",
        "state": found.state,
        "here": found.is_here(),
    }


@system.command()
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> int:
    """What is known of a system: every fact with its kind and its source. NAME can be a .toml file.

    \b
    Example: dlscale system show cori
    """  # noqa: D301
    found = load_system(name)
    if as_json:
        click.echo(found.model_dump_json(indent=2))
    else:
        Console().print(render(found))
    return 0


@system.command("lint")
@click.argument("names", metavar="NAME_OR_FILE...", nargs=-1)
@json_option
def lint_systems(names: tuple[str, ...], as_json: bool) -> int:
    """Everything that makes systems unfit, one line each; without names all that dlscale knows.

    \b
    Examples:
      dlscale system lint mine.toml
      dlscale system lint
    """  # noqa: D301
    asked = names or tuple(definition.names("systems"))
    rows = [{"system": name, "problem": problem} for name in asked for problem in lint(name)]
    if as_json:
        click.echo(json.dumps({"schema": 1, "rows": rows}))
    else:
        for row in rows:
            click.echo(f"{row['system']}: {row['problem']}")
        if not rows:
            click.echo(f"{len(asked)} system{'s' if len(asked) > 1 else ''}: nothing wrong")
    return FAILED_USAGE if rows else 0
