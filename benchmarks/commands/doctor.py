"""`dlscale doctor`: which backends can be used here, and what the others miss."""

from __future__ import annotations

import json

import click

from dlscale.benchmarks import environment
from dlscale.benchmarks.cli import FAILED_USAGE
from dlscale.benchmarks.commands.options import Words, json_option
from dlscale.benchmarks.system import default_environment, find_installation, load_system
from dlscale.collectives import NAMES, capabilities
from dlscale.models.errors import UsageError


@click.command()
@click.option("--system", default="local", show_default=True, help="A machine's name, or its .toml file.")
@click.option("--environment", "name", help="One of the system's environments; default: the running one.")
@click.option(
    "--require", type=Words(), default="", help="Backends that must be usable, or the exit status is 1."
)
@json_option
def doctor(system: str, name: str | None, require: list[str], as_json: bool) -> int:
    """Say which backends can be used here, and what the others miss.

    \b
    Example: dlscale doctor --require ring,gloo
    """  # noqa: D301
    for backend in require:
        capabilities(backend)
    machine = load_system(system)
    installation = find_installation(machine, name or default_environment(machine))
    found = environment.probe(installation)
    mpi_problem: str | None = None
    try:
        environment.check_mpi(installation, found)
    except UsageError as error:
        mpi_problem = str(error)
    problems = {
        (backend, framework): mpi_problem
        or (found.ring_problem if backend == "ring" else None)
        or (None if framework in found.frameworks else f"{framework} is not installed")
        for backend in NAMES
        for framework in capabilities(backend).frameworks
    }
    setup = machine.environments[installation.name].setup
    rows = [
        {
            "backend": backend,
            "framework": framework,
            "usable": problem is None,
            "reason": problem or "",
            "install": setup if problem else "",
        }
        for (backend, framework), problem in problems.items()
    ]
    if as_json:
        click.echo(json.dumps({"schema": 1, "rows": rows}))
    else:
        click.echo(
            f"environment {installation.name}: " + ", ".join(f"{k} {v}" for k, v in found.versions.items())
        )
        for row in rows:
            mark = "usable" if row["usable"] else f"not usable: {row['reason']} ({row['install']})"
            click.echo(f"  {row['backend']:6} {row['framework']:10} {mark}")
    usable = {row["backend"] for row in rows if row["usable"]}
    return FAILED_USAGE if set(require) - usable else 0
