"""`dlscale system`: the machines that dlscale knows."""

from __future__ import annotations

import json

import click

from dlscale.benchmarks import definition
from dlscale.benchmarks.commands.options import json_option
from dlscale.benchmarks.system import load_system


@click.group()
def system() -> None:
    """List and show the machines that dlscale knows.

    \b
    Example: dlscale system show local
    """  # noqa: D301


@system.command("list")
@json_option
def list_systems(as_json: bool) -> int:
    """Names of all systems."""
    rows = [{"system": name, "title": load_system(name).title} for name in definition.names("systems")]
    click.echo(
        json.dumps({"schema": 1, "rows": rows})
        if as_json
        else "\n".join(f"{row['system']}: {row['title']}" for row in rows)
    )
    return 0


@system.command()
@click.argument("name")
def show(name: str) -> int:
    """One system as dlscale understands its file."""
    click.echo(load_system(name).model_dump_json(indent=2))
    return 0
