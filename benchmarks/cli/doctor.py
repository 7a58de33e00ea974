"""`dlscale doctor`: which backends can be used here, and what the others miss."""

from __future__ import annotations

import json
from typing import Any

import click

from dlscale.base import redaction
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import FAILED_USAGE
from dlscale.benchmarks.cli.options import Words, json_option
from dlscale.benchmarks.launch import environment, gpus
from dlscale.benchmarks.launch.probe import Probe
from dlscale.benchmarks.systems.system import (
    Installation,
    default_environment,
    find_installation,
    load_system,
)
from dlscale.collectives import NAMES, capabilities
from dlscale.models.frameworks import FRAMEWORKS


@click.command()
@click.option("--system", default="local", show_default=True, help="A machine's name, or its .toml file.")
@click.option("--environment", "name", help="One of the system's environments; default: the running one.")
@click.option(
    "--require",
    type=Words(),
    default="",
    help="Backends that must be usable, in each framework that they serve or in one (horovod/torch), or the exit "
    "status is 1.",
)
@json_option
def doctor(system: str, name: str | None, require: list[str], as_json: bool) -> int:
    """Say which backends can be used here in which framework, and what the others miss.

    \b
    Examples:
      dlscale doctor
      dlscale doctor --require ring,horovod/torch
    """  # noqa: D301
    required = [pair for asked in require for pair in _pairs(asked)]
    machine = load_system(system)
    installation = find_installation(machine, name or default_environment(machine))
    every = [(backend, framework) for backend in NAMES for framework in capabilities(backend).frameworks]
    found = environment.probe(installation, every)
    problems = _problems(installation, found, every)
    setup = machine.environments[installation.name].setup
    if as_json:
        rows = [_row(pair, problems, setup) for pair in every]
        click.echo(json.dumps({"schema": 1, "rows": rows}))
    else:
        _print(installation, found, problems, setup)
    missing = [pair for pair in required if pair in problems]
    for backend, framework in [] if as_json else missing:
        click.echo(
            f"{backend} was required in {framework}, but: {problems[backend, framework]}; "
            f"{capabilities(backend).install or setup}",
            err=True,
        )
    return FAILED_USAGE if missing else 0


def _pairs(asked: str) -> list[tuple[str, str]]:
    """What `horovod` or `horovod/torch` means. Raises UsageError for unknown names."""
    backend, slash, framework = asked.partition("/")
    row = capabilities(backend)
    if slash and framework not in row.frameworks:
        raise UsageError(
            f"backend {backend} does not train in {framework!r}; it does in: {', '.join(row.frameworks)}"
        )
    return [(backend, framework)] if slash else [(backend, one) for one in row.frameworks]


def _problems(
    installation: Installation, found: Probe, every: list[tuple[str, str]]
) -> dict[tuple[str, str], str]:
    """Why pairs cannot be used; those that can are not in it."""
    try:
        environment.check_mpi(installation, found)
    except UsageError as error:
        return dict.fromkeys(every, str(error))
    return {pair: found.problems["/".join(pair)] for pair in every if "/".join(pair) in found.problems}


def _row(pair: tuple[str, str], problems: dict[tuple[str, str], str], setup: str) -> dict[str, Any]:
    backend, framework = pair
    reason = problems.get(pair, "")
    return {
        "backend": backend,
        "framework": framework,
        "usable": not reason,
        "reason": reason,
        "install": (capabilities(backend).install or setup) if reason else "",
    }


def _print(
    installation: Installation, found: Probe, problems: dict[tuple[str, str], str], setup: str
) -> None:
    """A table of backends and frameworks, then every reason, once."""
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    node = found.node
    click.echo(f"environment {installation.name}: {versions}")
    click.echo(
        f"machine: {node['num_cores']} cores of {node['cpu_model']}, {node['memory_gib']} GiB; "
        f"threads in MPI: {environment.mpi_threads(installation) or 'MPI does not start'}"
    )
    for one in gpus.ask(installation, found.frameworks).seen if found.frameworks else []:
        click.echo(f"GPUs that {one.framework} sees: {', '.join(one.names) or 'none'}")
    for name, value in installation.variables.items():
        click.echo(f"variable: {name}={redaction.redact(value)}")
    width = max(map(len, NAMES)) + 2
    click.echo("\n" + " " * (width + 2) + "".join(f"{framework:14}" for framework in FRAMEWORKS))
    marks: dict[tuple[str, str], int] = {}
    for backend in NAMES:
        cells = []
        for framework in FRAMEWORKS:
            if framework not in capabilities(backend).frameworks:
                cells.append("-")
            elif reason := problems.get((backend, framework)):
                number = marks.setdefault((reason, capabilities(backend).install or setup), len(marks) + 1)
                cells.append(f"no ({number})")
            else:
                cells.append("usable")
        click.echo(f"  {backend:{width}}" + "".join(f"{cell:14}" for cell in cells))
    for (reason, install), number in marks.items():
        click.echo(f"  ({number}) {reason}; {install}")
    open_ports = [name for name in NAMES if capabilities(name).open_ports]
    click.echo(
        f"\n{', '.join(open_ports)}: unauthenticated, all interfaces (torch's grpc_ps asks for a token, on the job's "
        "interface); across machines they need --allow-open-ports"
    )
