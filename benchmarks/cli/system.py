"""`dlscale system`: the machines that dlscale knows, and a draft of this one's file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from dlscale.base import definitions
from dlscale.base.errors import UsageError
from dlscale.base.files import write_atomically
from dlscale.benchmarks.cli import say, show_table
from dlscale.benchmarks.cli.options import json_option
from dlscale.benchmarks.systems.system import System, load_system


@click.group()
def system() -> None:
    """List and show the machines that dlscale knows, or describe a new one.

    \b
    Examples:
      dlscale system list
      dlscale system show cori
      dlscale system probe --out mine.toml
    """  # noqa: D301


@system.command()
@click.option(
    "--out", type=click.Path(path_type=Path), help="File for the draft, *.toml; default: the terminal."
)
def probe(out: Path | None) -> int:
    """Draft a system's file for the machine that this runs on.

    Run it on a log-in node, and once more in a job if compute nodes differ. It reads this node and asks
    Slurm or PBS; it submits nothing. Lines with TODO ask for what no command knows.

    \b
    Examples:
      dlscale system probe
      dlscale system probe --out mine.toml
      dlscale run weak-scaling --system mine.toml --dry-run
    """  # noqa: D301
    from dlscale.benchmarks.systems.probe import probe_machine

    if out and (out.suffix != ".toml" or out.exists()):
        raise UsageError(f"--out {out}: give the name of a new file that ends in .toml")
    text = probe_machine()
    if out:
        write_atomically(out, text, mode=0o644, remedy="choose another file with --out")
        say(
            f"wrote {out}; fill in its TODO lines, then try: dlscale run weak-scaling --system {out} --dry-run"
        )
    else:
        click.echo(text, nl=False)
    return 0


@system.command("list")
@json_option
def list_systems(as_json: bool) -> int:
    """List all systems, and whether this machine is one of them."""
    rows = [_row(load_system(name)) for name in definitions.names("systems")]
    if as_json:
        click.echo(json.dumps({"schema": 1, "rows": rows}))
        return 0
    columns = ("system", "scheduler", "nodes", "devices", "state")
    shown = []
    for row in rows:
        nodes = f"{row['num_nodes']:,}" if row["num_nodes"] else "-"
        model = row["device_model"].partition(",")[0]
        devices = f"{row['devices_per_node']} x {model}" if model else "-"
        shown.append(
            (row["system"], row["scheduler"], nodes, devices, "here" if row["here"] else row["state"])
        )
    show_table(columns, shown, words={*columns} - {"nodes"})
    return 0


def _row(system: System) -> dict[str, Any]:
    return {
        "system": system.name,
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
    """Print a system's file, where every fact has its kind and its source, or all that is wrong in it.

    \b
    Examples:
      dlscale system show cori
      dlscale system show mine.toml
    """  # noqa: D301
    loaded = load_system(name)
    if as_json:
        click.echo(loaded.model_dump_json(indent=2))
    else:
        path = Path(name) if name.endswith(".toml") else definitions.names("systems")[loaded.name]
        click.echo(path.read_text(encoding="utf-8-sig"), nl=False)
    return 0
