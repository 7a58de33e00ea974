"""`dlscale doctor`: which backends are usable here, and what the others need."""

from __future__ import annotations

import json
from typing import Any

import click

from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import FAILED_USAGE, say, show_table
from dlscale.benchmarks.cli.options import Backends, json_option
from dlscale.benchmarks.launch import environment
from dlscale.benchmarks.launch.probe import Probe, Question, shows_gpus
from dlscale.benchmarks.systems.start import Installation, find_installation
from dlscale.benchmarks.systems.system import load_system
from dlscale.collectives import NAMES, capabilities
from dlscale.models.frameworks import FRAMEWORKS

Pair = tuple[str, str]  # backend, framework
PAIRS = [(backend, framework) for backend in NAMES for framework in capabilities(backend).frameworks]


@click.command()
@click.option("--system", default="local", show_default=True, help="System: a known name or a .toml file.")
@click.option(
    "--require",
    type=Backends(),
    default=[],
    help="Backends that must be usable, each in a framework at least; exit status 1 if one is not.",
)
@json_option
def doctor(system: str, require: list[str], as_json: bool) -> int:
    """Show which backends are usable here in each framework, and what the others need.

    It asks the environment that dlscale runs in if the system lists it, else the system's first.

    \b
    Examples:
      dlscale doctor
      dlscale doctor --require ring,horovod
    """  # noqa: D301
    machine = load_system(system)
    installation = find_installation(machine)
    question = Question(pairs=PAIRS, gpus=list(FRAMEWORKS) if shows_gpus() else [])
    probe = environment.probe(installation, question)
    launcher = problem = ""
    try:
        machine, _, line = environment.with_found_launcher(machine, installation, probe)
        launcher = line or machine.launcher
    except UsageError as error:
        problem = str(error)
    setup = machine.environments[installation.name].setup
    rows = {
        pair: _row(pair, problem or probe.problems.get("/".join(pair), ""), probe, setup) for pair in PAIRS
    }
    if as_json:
        click.echo(json.dumps({"schema": 1, "rows": list(rows.values())}))
    else:
        _say_environment(installation, probe, launcher=launcher or problem)
        _say_backends(rows)
    usable = {row["backend"] for row in rows.values() if row["usable"]}
    missing = [name for name in require if name not in usable]
    for name in missing:
        first = next(row for row in rows.values() if row["backend"] == name)
        say(f"{name} is required: {_with_remedy(first)}", err=True)
    return FAILED_USAGE if missing else 0


def _row(pair: Pair, reason: str, probe: Probe, setup: str) -> dict[str, Any]:
    """A backend in a framework, and what makes it usable: the framework first, then MPI, then its own installation."""
    backend, framework = pair
    install = capabilities(backend).install or setup
    if framework not in probe.frameworks:
        install = environment.framework_remedy(framework)
    elif capabilities(backend).needs_mpi and probe.mpi is None:
        install = setup
    facts = {"backend": backend, "framework": framework, "usable": not reason, "reason": reason}
    return facts | {"install": install if reason else ""}


def _with_remedy(row: dict[str, Any]) -> str:
    """The reason and what to do; a reason that says what to do, as a UsageError does after its semicolon, is enough."""
    return row["reason"] if "; " in row["reason"] else f"{row['reason']}; {row['install']}"


def _say_environment(installation: Installation, probe: Probe, *, launcher: str) -> None:
    node = probe.node
    versions = ", ".join(f"{name} {version}" for name, version in probe.versions.items())
    say(f"environment {installation.name}: {versions}")
    quota = f" (a quota allows {node['quota_cores']})" if "quota_cores" in node else ""
    say(f"machine: {node['num_cores']} cores{quota} of {node['cpu_model']}, {node['memory_gib']} GiB")
    say(f"launcher: {launcher}")
    for seen in probe.gpus:
        between = f"; between them {seen.library}" if seen.names and seen.library else ""
        say(f"GPUs visible to {seen.framework}: {', '.join(seen.names) or 'none'}{between}")


def _say_backends(rows: dict[Pair, dict[str, Any]]) -> None:
    """Print a table of backends and frameworks, and each reason once."""
    cells = {pair: "usable" if row["usable"] else "no" for pair, row in rows.items()}
    table = [(backend, *(cells.get((backend, name), "-") for name in FRAMEWORKS)) for backend in NAMES]
    show_table(("", *FRAMEWORKS), table, words=("", *FRAMEWORKS))
    reasons: dict[str, list[str]] = {}
    for (backend, framework), row in rows.items():
        if row["reason"]:
            reasons.setdefault(_with_remedy(row), []).append(f"{backend}/{framework}")
    for reason, pairs in reasons.items():
        say(f"{', '.join(pairs)}: {reason}")
