"""`dlscale doctor`: which backends are usable here, and what the others need."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import click

from dlscale.base import redaction
from dlscale.base.errors import UsageError
from dlscale.base.launchers import LAUNCHERS
from dlscale.benchmarks.cli import FAILED_USAGE
from dlscale.benchmarks.cli.option_kinds import Words
from dlscale.benchmarks.cli.options import json_option
from dlscale.benchmarks.cli.streams import say
from dlscale.benchmarks.launch import environment
from dlscale.benchmarks.launch.probe import Probe, Question, gpu_makers
from dlscale.benchmarks.systems.start import Installation, default_environment, find_installation
from dlscale.benchmarks.systems.system import load_system
from dlscale.collectives import NAMES, capabilities, with_capability
from dlscale.models.frameworks import FRAMEWORKS

Pair = tuple[str, str]  # backend, framework


@click.command()
@click.option("--system", default="local", show_default=True, help="System: a known name or a .toml file.")
@click.option("--environment", "name", help="Environment of the system; default: the current one.")
@click.option(
    "--require",
    type=Words(),
    default="",
    help="Backends that must be usable, in all their frameworks or in one (horovod/torch); exit status 1 if one is "
    "not.",
)
@json_option
def doctor(system: str, name: str | None, require: list[str], as_json: bool) -> int:
    """Show which backends are usable here in each framework, and what the others need.

    \b
    Examples:
      dlscale doctor
      dlscale doctor --require ring,horovod/torch
    """  # noqa: D301
    required = [pair for spec in require for pair in _pairs(spec)]
    machine = load_system(system)
    installation = find_installation(machine, name or default_environment(machine))
    every = [(backend, framework) for backend in NAMES for framework in capabilities(backend).frameworks]
    probe, threads = _ask(installation, every)
    machine, line = environment.with_found_launcher(machine, installation, probe)
    setup = machine.environments[installation.name].setup
    rows = {
        pair: {
            "backend": pair[0],
            "framework": pair[1],
            "usable": not reason,
            "reason": reason,
            "install": _remedy(pair, probe, setup) if reason else "",
        }
        for pair, reason in _reasons(installation, probe, every, machine.launcher).items()
    }
    if as_json:
        click.echo(json.dumps({"schema": 1, "rows": list(rows.values())}))
    else:
        _say_environment(installation, probe, threads, launcher=line or machine.launcher)
        _say_backends(rows)
    missing = [row for pair, row in rows.items() if pair in required and row["reason"]]
    for row in [] if as_json else missing:
        say(
            f"{row['backend']} is required in {row['framework']} but not usable: {_with_remedy(row)}",
            err=True,
        )
    return FAILED_USAGE if missing else 0


def _pairs(spec: str) -> list[Pair]:
    """The pairs of `horovod` or `horovod/torch`. Raises UsageError for unknown names."""
    backend, slash, framework = spec.partition("/")
    known = capabilities(backend).frameworks
    if slash and framework not in known:
        raise UsageError(
            f"backend {backend} does not support framework {framework!r}; it supports: {', '.join(known)}"
        )
    return [(backend, framework)] if slash else [(backend, name) for name in known]


def _ask(installation: Installation, every: list[Pair]) -> tuple[Probe, str | None]:
    """What the environment's Python says of itself, and MPI's threads: programs that run side by side."""
    shown = any(gpu_makers().values())
    questions = [
        Question(pairs=[pair for pair in every if pair[1] == name], gpus=[name] if shown else [])
        for name in FRAMEWORKS
    ]
    with ThreadPoolExecutor() as pool:
        asked = [pool.submit(environment.probe, installation, question) for question in questions]
        threads = pool.submit(environment.mpi_threads, installation)
        probes = [answer.result() for answer in asked]
        problems = {pair: reason for probe in probes for pair, reason in probe.problems.items()}
        seen = [gpus for probe in probes for gpus in probe.gpus]
        return probes[0].model_copy(update={"problems": problems, "gpus": seen}), threads.result()


def _reasons(installation: Installation, probe: Probe, every: list[Pair], launcher: str) -> dict[Pair, str]:
    """Why each pair is not usable; empty if it is."""
    if LAUNCHERS[launcher].needs_mpi:
        try:
            environment.check_mpi(installation, probe, launcher=launcher)
        except UsageError as error:
            return dict.fromkeys(every, str(error))
    return {pair: probe.problems.get("/".join(pair), "") for pair in every}


def _remedy(pair: Pair, probe: Probe, setup: str) -> str:
    """What makes a backend usable: its framework comes first, then MPI, then its own installation."""
    backend, framework = pair
    if framework not in probe.frameworks:
        return environment.framework_remedy(framework)
    if capabilities(backend).needs_mpi and probe.mpi is None:
        return setup
    return capabilities(backend).install or setup


def _with_remedy(row: dict[str, Any]) -> str:
    """The reason and what to do; a reason that says what to do, as a UsageError does after its semicolon, is enough."""
    return row["reason"] if "; " in row["reason"] else f"{row['reason']}; {row['install']}"


def _say_environment(
    installation: Installation,
    probe: Probe,
    threads: str | None,
    *,
    launcher: str,
) -> None:
    node = probe.node
    versions = ", ".join(f"{name} {version}" for name, version in probe.versions.items())
    say(f"environment {installation.name}: {versions}")
    say(
        f"machine: {node['num_cores']} cores of {node['cpu_model']}, {node['memory_gib']} GiB; "
        f"MPI thread level: {threads or 'MPI does not start' if probe.mpi else 'no MPI'}"
    )
    shown = [f"{maker} {'yes' if found else 'none'}" for maker, found in gpu_makers().items()]
    say(f"GPUs of this machine: {', '.join(shown)}")
    say(f"launcher: {launcher}")
    for seen in probe.gpus:
        between = f"; between them {seen.library}" if seen.names and seen.library else ""
        say(f"GPUs visible to {seen.framework}: {', '.join(seen.names) or 'none'}{between}")
    for name, value in installation.variables.items():
        say(f"variable: {name}={redaction.redact(value)}")


def _say_backends(rows: dict[Pair, dict[str, Any]]) -> None:
    """Print a table of backends and frameworks, and each reason once."""
    click.echo("\n  " + "".join(f"{word:15}" for word in ("", *FRAMEWORKS)).rstrip())
    reasons = list(dict.fromkeys(_with_remedy(row) for row in rows.values() if row["reason"]))
    for backend in NAMES:
        cells = []
        for framework in FRAMEWORKS:
            row = rows.get((backend, framework))
            usable = "usable" if row and row["usable"] else "-"
            cells.append(f"no ({reasons.index(_with_remedy(row)) + 1})" if row and row["reason"] else usable)
        click.echo("  " + "".join(f"{cell:15}" for cell in (backend, *cells)).rstrip())
    for number, reason in enumerate(reasons, 1):
        say(f"  ({number}) {reason}")
    for backend in with_capability("untried"):
        say(f"  {backend}: {capabilities(backend).untried}")
    click.echo()
    say(
        f"{', '.join(with_capability('open_ports'))}: unauthenticated sockets on all interfaces (grpc_ps in torch: "
        "with a token, on the job's interface only); across machines they need allow_open_ports"
    )
