"""`dlscale check`: is what is compared the same, and is it right?"""

from __future__ import annotations

import json

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dlscale.benchmarks import environment, parity_gate
from dlscale.benchmarks.cli import NOT_COMPARABLE
from dlscale.benchmarks.commands.check_physics import physics
from dlscale.benchmarks.commands.check_timeline import timeline
from dlscale.benchmarks.commands.options import Words, json_option
from dlscale.benchmarks.parity import Request
from dlscale.benchmarks.record import Parity
from dlscale.benchmarks.system import default_environment, find_installation, load_system
from dlscale.models import NAMES, load_workload
from dlscale.models.workload import FRAMEWORKS


@click.group()
def check() -> None:
    """Check that frameworks train the same program, and that a network learns what it should.

    \b
    Examples:
      dlscale check parity
      dlscale check physics
      dlscale check timeline
    """  # noqa: D301


check.add_command(physics)
check.add_command(timeline)


@check.command("parity")
@click.option("--workloads", type=Words(), default="all", show_default=True, help="For example hep_cnn.")
@click.option("--preset", default="tiny", show_default=True, help="Whose numbers are compared.")
@click.option(
    "--precision",
    type=click.Choice(["fp32", "bf16"]),
    default="fp32",
    show_default=True,
    help="Of the numbers.",
)
@click.option("--environment", "name", help="One of this machine's environments; default: the running one.")
@json_option
def parity(workloads: list[str], preset: str, precision: str, name: str | None, as_json: bool) -> int:
    """Compare each workload's networks in torch and TensorFlow: layers, parameters, FLOPs, numbers.

    Exit status 3 if a pair is not comparable.

    \b
    Example: dlscale check parity --workloads resnet50 --precision bf16
    """  # noqa: D301
    names = list(NAMES) if workloads == ["all"] else workloads
    for workload in names:
        load_workload(workload).preset(preset)
    machine = load_system("local")
    installation = find_installation(machine, name or default_environment(machine))
    environment.check_frameworks(installation, environment.probe(installation), FRAMEWORKS)
    found: list[Parity] = []
    with Console(stderr=True).status("comparing") as status:
        for workload in names:
            status.update(f"comparing {workload} in {' and '.join(FRAMEWORKS)}")
            request = Request(workloads=[workload], preset=preset, precision=precision)
            found += parity_gate.ask(installation, request)
    if as_json:
        click.echo(json.dumps({"schema": 1, "rows": [row for one in found for row in _rows(one)]}))
    else:
        for one in found:
            _print(one)
    return 0 if all(one.passed for one in found) else NOT_COMPARABLE


def _rows(found: Parity) -> list[dict[str, object]]:
    return [
        {
            "workload": found.workload,
            "framework": framework,
            "num_parameters": number,
            "passed": found.passed,
            "preset": found.preset,
            "precision": found.precision,
            "failed_checks": [gate.name for gate in found.checks if not gate.passed],
        }
        for framework, number in found.num_parameters.items()
    ]


def _print(found: Parity) -> None:
    grid = Table(title=f"{found.workload}, {found.precision}", title_justify="left", box=None, pad_edge=False)
    for column in ("check", "verdict", "found"):
        grid.add_column(column)
    for gate in found.checks:
        value = gate.detail
        if gate.tolerance:  # where something may differ
            difference = "not finite" if gate.value is None else f"{gate.value:.1e}"
            value = f"differ by {difference}, allowed {gate.tolerance:.0e}, {gate.detail}"
        grid.add_row(gate.name, "same" if gate.passed else "[bold red]differs[/]", escape(value))
    Console().print(grid)
    verdict = "comparable" if found.passed else "NOT COMPARABLE: numbers of the two frameworks say nothing"
    click.echo(f"{found.workload}: {verdict}\n")
