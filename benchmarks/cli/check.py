"""`dlscale check`: is a workload the same network in two frameworks (`check parity`), and is it that also on ranks that
share samples (`check split`)?
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import NOT_COMPARABLE, SubVerbs
from dlscale.benchmarks.cli.option_kinds import Words
from dlscale.benchmarks.cli.options import json_option
from dlscale.benchmarks.cli.streams import working
from dlscale.benchmarks.launch import asking, environment, parity_gate
from dlscale.benchmarks.rank.parity import ParityRequest
from dlscale.benchmarks.rank.split_check import SPLITS, SplitCheck, SplitRequest
from dlscale.benchmarks.records.record import Gate, Parity
from dlscale.benchmarks.systems.system import (
    Installation,
    default_environment,
    find_installation,
    load_system,
)
from dlscale.models import NAMES, load_workload
from dlscale.models.frameworks import FRAMEWORKS

F = TypeVar("F", bound=Callable[..., Any])
LIMIT_SECONDS = 1800  # of a workload on ranks that share samples


def _check_options(command: F) -> F:
    """What is checked, and where."""
    workloads = click.option(
        "--workloads", type=Words(), default="all", show_default=True, help="Workloads to check, or all."
    )
    preset = click.option("--preset", default="tiny", show_default=True, help="Preset to check.")
    precision = click.option(
        "--precision",
        type=click.Choice(["fp32", "bf16"]),
        default="fp32",
        show_default=True,
        help="Precision to check in.",
    )
    frameworks = click.option(
        "--frameworks",
        type=Words(),
        default=",".join(FRAMEWORKS),
        show_default=True,
        help="Frameworks to check; of all workloads those that are written in both.",
    )
    name = click.option("--environment", "name", help="Environment to run in; default: the current one.")
    return workloads(preset(precision(frameworks(name(json_option(command))))))


def _installation(name: str | None, frameworks: Sequence[str]) -> Installation:
    """The environment of that name, which has these frameworks. Raises UsageError."""
    machine = load_system("local")
    installation = find_installation(machine, name or default_environment(machine))
    environment.check_frameworks(installation, environment.probe(installation), frameworks)
    return installation


@click.group(cls=SubVerbs)
def check() -> None:
    """Check that both frameworks train the same network, and ranks that share samples, too.

    \b
    Example: dlscale check parity
    """  # noqa: D301


@check.command("parity")
@_check_options
def parity(
    workloads: list[str], preset: str, precision: str, frameworks: list[str], name: str | None, as_json: bool
) -> int:
    """Compare each workload in two frameworks: layers, parameters, FLOPs, outputs, gradients, losses.

    Exit status 3 if a workload differs between the frameworks.

    \b
    Examples:
      dlscale check parity --workloads resnet50 --precision bf16
    """  # noqa: D301
    if len(frameworks) != 2 or len(set(frameworks) & set(FRAMEWORKS)) != 2:
        raise UsageError(
            f"parity is of two frameworks, and --frameworks is {','.join(frameworks)}; choose two of: "
            f"{', '.join(FRAMEWORKS)}"
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
    installation = _installation(name, frameworks)
    verdicts: list[Parity] = []
    with working(stderr=True) as update:
        for workload in names:
            update(f"comparing {workload} in {one} and {other}")
            request = ParityRequest(
                workloads=[workload], preset=preset, precision=precision, frameworks=(one, other)
            )
            verdicts += parity_gate.ask(installation, request)
    if as_json:
        click.echo(
            json.dumps({"schema": 1, "rows": [row for verdict in verdicts for row in _parity_rows(verdict)]})
        )
    else:
        for verdict in verdicts:
            _print_parity(verdict)
    return 0 if all(verdict.passed for verdict in verdicts) else NOT_COMPARABLE


def _parity_rows(parity: Parity) -> list[dict[str, object]]:
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


def _print_parity(parity: Parity) -> None:
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


@check.command("split")
@_check_options
def split(
    workloads: list[str], preset: str, precision: str, frameworks: list[str], name: str | None, as_json: bool
) -> int:
    """Compare ranks that share samples by rows with one device, and 2 ranks in both frameworks: outputs and gradients.

    On 2 ranks and, where samples have as many blocks of rows, on 3, in float64 and in the precision asked for; where
    it can, the preset has as many more rows as that takes. Exit status 3 if they differ.

    \b
    Examples:
      dlscale check split
      dlscale check split --workloads resnet50 --frameworks torch --precision bf16
    """  # noqa: D301
    if unknown := [framework for framework in frameworks if framework not in FRAMEWORKS]:
        raise UsageError(
            f"samples are not split in {', '.join(unknown)}; choose --frameworks from: {', '.join(FRAMEWORKS)}"
        )
    names = list(NAMES) if workloads == ["all"] else workloads
    for workload in names:
        load_workload(workload).preset(preset)
    installation = _installation(name, frameworks)
    found: list[SplitCheck] = []
    with working(stderr=True) as update:
        for workload in names:
            if load_workload(workload).splittable:
                update(f"checking {workload} in {', '.join(frameworks)}")
                request = SplitRequest(
                    workload=workload, frameworks=frameworks, preset=preset, precision=precision
                )
                found += _ask(installation, request)
    whole = [workload for workload in names if not load_workload(workload).splittable]
    if as_json:
        click.echo(json.dumps({"schema": 1, "rows": list(_split_rows(found, whole))}))
    else:
        _print_split(found, whole, precision)
    return 0 if all(check.passed for check in found) else NOT_COMPARABLE


def _ask(installation: Installation, request: SplitRequest) -> list[SplitCheck]:
    """The answers for a workload, from a process of its own. Raises UsageError if it fails."""
    try:
        return asking.ask(
            installation.python,
            "benchmarks.rank.split_check",
            request.model_dump_json(),
            answer=SplitCheck,
            num_answers=len(request.frameworks) * len(SPLITS) + (len(request.frameworks) > 1),
            variables=installation.variables,
            limit_seconds=LIMIT_SECONDS,
            num_threads=1,
        )
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"the check of {request.workload} was not done after {LIMIT_SECONDS / 60:.0f} minutes; check a smaller "
            "preset, or one framework at a time"
        ) from None
    except asking.NoAnswerError as error:
        raise UsageError(
            f"the check of {request.workload} could not be run: {error}; `dlscale doctor` says what is missing"
        ) from None


def _split_rows(found: list[SplitCheck], whole: list[str]) -> Iterator[dict[str, object]]:
    for check in found:
        yield {
            "workload": check.workload,
            "framework": check.framework,
            "split": check.split,
            "passed": check.passed if check.checks else None,
            "preset": check.preset,
            "precision": check.precision,
            "failed_checks": [gate.name for gate in check.checks if not gate.passed],
        }
    for workload in whole:
        yield {"workload": workload, "split": 1, "passed": None}


def _print_split(found: list[SplitCheck], whole: list[str], precision: str) -> None:
    grid = Table(box=None, pad_edge=False)
    for column in ("workload", "framework", "ranks", "in float64", f"in {precision}, of what is allowed"):
        grid.add_column(column)
    for check in found:
        verdicts = [_verdict(gate) for gate in check.checks] or ["[dim]too few blocks of rows[/]"]
        grid.add_row(check.workload, check.framework, str(check.split), *verdicts)
    if found:
        Console().print(grid)
    for workload in whole:
        click.echo(f"{workload}: samples stay whole; its network cannot be split by rows")
    if failed := [gate for check in found for gate in check.checks if not gate.passed]:
        click.echo(f"DIFFERENT: {failed[0].detail}")
    elif any(check.checks for check in found):
        alike = (
            f", and {SPLITS[0]} the same in both frameworks"
            if any(" versus " in one.framework for one in found)
            else ""
        )
        click.echo(f"ranks that share samples do what one device does{alike}")


def _verdict(gate: Gate) -> str:
    value = "not finite" if gate.value is None else f"{gate.value:.1g}"
    return f"same ({value})" if gate.passed else f"[bold red]differs[/] ({value})"
