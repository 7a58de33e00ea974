"""`dlscale doctor`: which backends are usable here, and what the others need."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from typing import Any

import click

from dlscale.base import redaction
from dlscale.base.errors import UsageError
from dlscale.base.launchers import LAUNCHERS
from dlscale.benchmarks.cli import FAILED_USAGE
from dlscale.benchmarks.cli.option_kinds import Words
from dlscale.benchmarks.cli.options import json_option
from dlscale.benchmarks.launch import environment, gpus
from dlscale.benchmarks.launch.probe import Probe
from dlscale.benchmarks.systems.start import Installation, default_environment, find_installation
from dlscale.benchmarks.systems.system import load_system
from dlscale.collectives import NAMES, capabilities, with_capability
from dlscale.models.frameworks import FRAMEWORKS


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
    probe, threads, visible = _asked(installation, every)
    machine, line = environment.with_found_launcher(machine, installation, probe)
    problems = _problems(installation, probe, every, launcher=machine.launcher)
    setup = machine.environments[installation.name].setup
    remedies = {pair: _remedy(pair, probe, setup) for pair in problems}
    if as_json:
        rows = [_row(pair, problems, remedies) for pair in every]
        click.echo(json.dumps({"schema": 1, "rows": rows}))
    else:
        _print(
            installation,
            probe,
            problems,
            remedies,
            launcher=line or machine.launcher,
            threads=threads,
            visible=visible,
        )
    missing = [pair for pair in required if pair in problems]
    for backend, framework in [] if as_json else missing:
        click.echo(
            f"{backend} is required in {framework} but not usable: "
            f"{_with_remedy(problems[backend, framework], remedies[backend, framework])}",
            err=True,
        )
    return FAILED_USAGE if missing else 0


def _pairs(spec: str) -> list[tuple[str, str]]:
    """The (backend, framework) pairs of `horovod` or `horovod/torch`. Raises UsageError for unknown names."""
    backend, slash, framework = spec.partition("/")
    row = capabilities(backend)
    if slash and framework not in row.frameworks:
        raise UsageError(
            f"backend {backend} does not support framework {framework!r}; it supports: {', '.join(row.frameworks)}"
        )
    return [(backend, framework)] if slash else [(backend, name) for name in row.frameworks]


def _asked(
    installation: Installation, every: list[tuple[str, str]]
) -> tuple[Probe, str | None, list[gpus.SeenGpus]]:
    """What the environment's Python says of itself, MPI's threads and its GPUs: programs that run side by side."""
    with ThreadPoolExecutor() as pool:
        probes = [
            pool.submit(environment.probe, installation, [pair for pair in every if pair[1] == framework])
            for framework in FRAMEWORKS
        ]
        threads = pool.submit(environment.mpi_threads, installation)
        shown = any(gpus.makers().values())
        asked = [pool.submit(gpus.ask, installation, [name]) for name in FRAMEWORKS if shown]
        found = [probe.result() for probe in probes]
        problems = {pair: reason for probe in found for pair, reason in probe.problems.items()}
        probe = found[0].model_copy(update={"problems": problems})
        visible = [
            answer.result().seen[0]
            if answer
            else gpus.SeenGpus(
                framework=name, version="", names=[], libraries={}, backend="", library="", without_tf32=[]
            )
            for name, answer in zip_longest(FRAMEWORKS, asked)
            if name in probe.frameworks
        ]
        return probe, threads.result(), visible


def _problems(
    installation: Installation, probe: Probe, every: list[tuple[str, str]], *, launcher: str
) -> dict[tuple[str, str], str]:
    """The reason for each pair that is not usable."""
    if LAUNCHERS[launcher].needs_mpi:
        try:
            environment.check_mpi(installation, probe, launcher=launcher)
        except UsageError as error:
            return dict.fromkeys(every, str(error))
    return {pair: probe.problems["/".join(pair)] for pair in every if "/".join(pair) in probe.problems}


def _remedy(pair: tuple[str, str], probe: Probe, setup: str) -> str:
    """What makes a backend usable: its framework comes first, then MPI, then its own installation."""
    backend, framework = pair
    if framework not in probe.frameworks:
        return environment.framework_remedy(framework)
    if capabilities(backend).needs_mpi and probe.mpi is None:
        return setup
    return capabilities(backend).install or setup


def _with_remedy(reason: str, remedy: str) -> str:
    """The reason and what to do; a reason that says what to do, as a UsageError does after its semicolon, is enough."""
    return reason if "; " in reason else f"{reason}; {remedy}"


def _row(
    pair: tuple[str, str], problems: dict[tuple[str, str], str], remedies: dict[tuple[str, str], str]
) -> dict[str, Any]:
    backend, framework = pair
    reason = problems.get(pair, "")
    return {
        "backend": backend,
        "framework": framework,
        "usable": not reason,
        "reason": reason,
        "install": remedies.get(pair, ""),
    }


def _print(
    installation: Installation,
    probe: Probe,
    problems: dict[tuple[str, str], str],
    remedies: dict[tuple[str, str], str],
    *,
    launcher: str,
    threads: str | None,
    visible: list[gpus.SeenGpus],
) -> None:
    """Print the environment, a table of backends and frameworks, and each reason once."""
    versions = ", ".join(f"{name} {version}" for name, version in probe.versions.items())
    node = probe.node
    click.echo(f"environment {installation.name}: {versions}")
    click.echo(
        f"machine: {node['num_cores']} cores of {node['cpu_model']}, {node['memory_gib']} GiB; "
        f"MPI thread level: {threads or 'MPI does not start' if probe.mpi else 'no MPI'}"
    )
    shown = [f"{maker} {'yes' if found else 'none'}" for maker, found in gpus.makers().items()]
    click.echo(f"GPUs of this machine: {', '.join(shown)}")
    click.echo(f"launcher: {launcher}")
    for seen in visible:
        between = f"; between them {seen.library}" if seen.names and seen.library else ""
        click.echo(f"GPUs visible to {seen.framework}: {', '.join(seen.names) or 'none'}{between}")
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
                number = marks.setdefault((reason, remedies[backend, framework]), len(marks) + 1)
                cells.append(f"no ({number})")
            else:
                cells.append("usable")
        click.echo(f"  {backend:{width}}" + "".join(f"{cell:14}" for cell in cells))
    for (reason, install), number in marks.items():
        click.echo(f"  ({number}) {_with_remedy(reason, install)}")
    for backend in with_capability("untried"):
        click.echo(f"  {backend}: {capabilities(backend).untried}")
    open_ports = with_capability("open_ports")
    click.echo(
        f"\n{', '.join(open_ports)}: unauthenticated sockets on all interfaces (grpc_ps in torch: with a "
        "token, on the job's interface only); across machines they need allow_open_ports"
    )
