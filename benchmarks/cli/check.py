"""`dlscale check`: are compared networks the same, and do they learn?

`parity` compares a workload in both frameworks, `physics` a trained network with a published selection, and
`timeline` writes Horovod's trace of every tensor.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dlscale.base import redaction
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import NOT_COMPARABLE
from dlscale.benchmarks.cli.check_physics import physics
from dlscale.benchmarks.cli.option_kinds import BackendOptions, Words
from dlscale.benchmarks.cli.options import json_option
from dlscale.benchmarks.cli.streams import live_console
from dlscale.benchmarks.launch import environment, launchers, parity_gate
from dlscale.benchmarks.launch.campaign import ALLOCATOR, QUIET
from dlscale.benchmarks.rank.parity import ParityRequest
from dlscale.benchmarks.rank.timeline import TimelineRequest
from dlscale.benchmarks.records.record import Parity, Setting
from dlscale.benchmarks.systems.system import default_environment, find_installation, load_system
from dlscale.collectives.registry import check_options
from dlscale.models import NAMES, load_workload
from dlscale.models.frameworks import FRAMEWORKS, KNOWN

LIMIT_SECONDS = 600


@click.command()
@click.option(
    "--workload", default="hep_cnn", show_default=True, help="Workload to train, on resident tensors."
)
@click.option("--framework", default="torch", show_default=True, help="Framework: torch or tensorflow.")
@click.option("--preset", help="Preset: paper, small or tiny; default: the workload's.")
@click.option("--ranks", type=click.IntRange(min=1), default=2, show_default=True, help="Number of ranks.")
@click.option("--steps", type=click.IntRange(min=1), default=20, show_default=True, help="Training steps.")
@click.option(
    "--backend-options", type=BackendOptions(), help="Horovod options, e.g. horovod.cycle_time_ms=0.5."
)
@click.option("--environment", "name", help="Environment to run in; default: the current one.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("horovod-timeline.json"),
    show_default=True,
    help="Trace file to write.",
)
def timeline(
    workload: str,
    framework: str,
    preset: str | None,
    ranks: int,
    steps: int,
    backend_options: dict[str, dict[str, Setting]] | None,
    name: str | None,
    out: Path,
) -> int:
    """Write Horovod's timeline of a few training steps, for chrome://tracing or Perfetto.

    The timeline adds overhead, so nothing is measured here, and studies do not allow it.

    \b
    Example: dlscale check timeline --workload resnet50 --ranks 2 --out trace.json
    """  # noqa: D301
    machine = load_system("local")
    installation = find_installation(machine, name or default_environment(machine))
    if others := sorted(set(backend_options or {}) - {"horovod"}):
        raise UsageError(
            f"--backend-options has {others[0]}, but the timeline is horovod's; give horovod.OPTION=VALUE"
        )
    options = {**(backend_options or {}).get("horovod", {}), "timeline": str(out.absolute())}
    check_options("horovod", options)
    if not out.absolute().parent.is_dir():
        raise UsageError(
            f"--out {out}: folder {out.parent} does not exist; create it or choose another --out"
        )
    report = environment.probe(installation, [("horovod", framework)])
    flavour = environment.check_mpi(installation, report)
    if report.problems:
        raise UsageError(next(iter(report.problems.values())))
    request = TimelineRequest(
        workload=workload,
        framework=framework,
        preset=load_workload(workload).preset(preset).name,
        num_steps=steps,
        options=options,
    )
    command = launchers.mpiexec(
        flavour,
        installation.mpiexec,
        num_ranks=ranks,
        oversubscribed=ranks > machine.num_cores(),
        variables={**ALLOCATOR, **QUIET, "OMP_NUM_THREADS": "1", **installation.variables},
        program=[
            str(installation.python),
            "-m",
            "dlscale.benchmarks.rank.timeline",
            request.model_dump_json(),
        ],
    )
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS, env=dict(os.environ)
        )
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"{steps} steps did not finish in {LIMIT_SECONDS // 60} minutes; use fewer --steps or a smaller --preset"
        ) from None
    if done.returncode or not out.exists():
        output = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["no output"]
        raise UsageError(f"the traced training failed: {redaction.redact(output[-1])}")
    click.echo(f"{steps} steps of {workload} on {ranks} ranks: {out} ({out.stat().st_size / 1e6:.1f} MB)")
    return 0


@click.group()
def check() -> None:
    """Check that both frameworks train the same network, and that it learns.

    \b
    Examples:
      dlscale check parity
      dlscale check physics
      dlscale check timeline
    """  # noqa: D301


check.add_command(physics)
check.add_command(timeline)


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
    with live_console(stderr=True).status("comparing") as status:
        for workload in names:
            status.update(f"comparing {workload} in {one} and {other}")
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
