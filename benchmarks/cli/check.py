"""`dlscale check`, and `check parity`: is a workload the same network in two frameworks?"""

from __future__ import annotations

import json

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import NOT_COMPARABLE, SubVerbs
from dlscale.benchmarks.cli.check_split import split
from dlscale.benchmarks.cli.option_kinds import Words
from dlscale.benchmarks.cli.options import json_option
from dlscale.benchmarks.cli.streams import working
from dlscale.benchmarks.launch import environment, parity_gate
from dlscale.benchmarks.rank.parity import ParityRequest
from dlscale.benchmarks.records.record import Parity
from dlscale.benchmarks.systems.system import default_environment, find_installation, load_system
from dlscale.models import NAMES, load_workload
from dlscale.models.frameworks import FRAMEWORKS, KNOWN


@click.group(cls=SubVerbs)
def check() -> None:
    """Check that both frameworks train the same network, and ranks that share samples, too.

    \b
    Example: dlscale check parity
    """  # noqa: D301


check.add_command(split)


@check.command("parity")
@click.option(
    "--workloads", type=Words(), default="all", show_default=True, help="Workloads to compare, or all."
)
@click.option("--preset", default="tiny", show_default=True, help="Preset to compare.")
@click.option(
    "--precision",
    type=click.Choice(["fp32", "bf16"]),
    default="fp32",
    show_default=True,
    help="Precision to compare in.",
)
@click.option(
    "--frameworks",
    type=Words(),
    default=",".join(FRAMEWORKS),
    show_default=True,
    help="The two frameworks to compare; of all workloads those that are written in both.",
)
@click.option("--environment", "name", help="Environment to run in; default: the current one.")
@json_option
def parity(
    workloads: list[str], preset: str, precision: str, frameworks: list[str], name: str | None, as_json: bool
) -> int:
    """Compare each workload in two frameworks: layers, parameters, FLOPs, outputs, gradients, losses.

    Exit status 3 if a workload differs between the frameworks.

    \b
    Examples:
      dlscale check parity --workloads resnet50 --precision bf16
      dlscale check parity --frameworks torch,jax
    """  # noqa: D301
    if len(frameworks) != 2 or len(set(frameworks) & set(KNOWN)) != 2:
        raise UsageError(
            f"parity is of two frameworks, and --frameworks is {','.join(frameworks)}; choose two of: "
            f"{', '.join(KNOWN)}"
        )
    one, other = frameworks
    written = [name for name in NAMES if {one, other} <= set(load_workload(name).frameworks)]
    names = written if workloads == ["all"] else workloads
    for workload in names:
        load_workload(workload).preset(preset)
        if workload not in written:
            raise UsageError(
                f"{workload} is not written in both {one} and {other}; choose --workloads from: {', '.join(written)}"
            )
    machine = load_system("local")
    installation = find_installation(machine, name or default_environment(machine))
    environment.check_frameworks(installation, environment.probe(installation), frameworks)
    verdicts: list[Parity] = []
    with working(stderr=True) as update:
        for workload in names:
            update(f"comparing {workload} in {one} and {other}")
            request = ParityRequest(
                workloads=[workload], preset=preset, precision=precision, frameworks=(one, other)
            )
            verdicts += parity_gate.ask(installation, request)
    if as_json:
        click.echo(json.dumps({"schema": 1, "rows": [row for verdict in verdicts for row in _rows(verdict)]}))
    else:
        for verdict in verdicts:
            _print(verdict)
    return 0 if all(verdict.passed for verdict in verdicts) else NOT_COMPARABLE


def _rows(parity: Parity) -> list[dict[str, object]]:
    return [
        {
            "workload": parity.workload,
            "framework": framework,
            "num_parameters": number,
            "passed": parity.passed,
            "preset": parity.preset,
            "precision": parity.precision,
            "failed_checks": [gate.name for gate in parity.checks if not gate.passed],
        }
        for framework, number in parity.num_parameters.items()
    ]


def _print(parity: Parity) -> None:
    title = f"{parity.workload}, {parity.precision}"
    grid = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in ("check", "verdict", "found"):
        grid.add_column(column)
    for gate in parity.checks:
        value = gate.detail
        if gate.tolerance:  # where something may differ
            difference = "not finite" if gate.value is None else f"{gate.value:.1e}"
            value = f"differ by {difference}, allowed {gate.tolerance:.0e}, {gate.detail}"
        grid.add_row(gate.name, "same" if gate.passed else "[bold red]differs[/]", escape(value))
    Console().print(grid)
    verdict = "comparable" if parity.passed else "NOT COMPARABLE: do not compare the two frameworks' numbers"
    click.echo(f"{parity.workload}: {verdict}\n")
