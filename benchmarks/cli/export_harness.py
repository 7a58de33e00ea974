"""`dlscale export reframe`: a study as a test of the harness ReFrame."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click

from dlscale.base import definitions
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.option_kinds import Counts, Words
from dlscale.benchmarks.cli.request import Request, data_of, request_of, study_of
from dlscale.benchmarks.exports.harness import HarnessRun, reframe_test
from dlscale.benchmarks.study.expand import expand
from dlscale.benchmarks.study.sizes import shape
from dlscale.benchmarks.systems.start import cpus_per_rank
from dlscale.benchmarks.systems.system import System, load_system
from dlscale.collectives import NAMES as BACKENDS

OURS = ("system", "nodes", "ranks", "backends", "results", "dry_run", "in_allocation")
DEFAULT_NODES = (1, 2, 4)
DEFAULT_RANKS = (1, 2)
SPARE_MINUTES = 10  # of a test's time limit
ESTIMATES = 3  # a study may take longer than its plan says


@click.command()
@click.argument("system")
@click.argument("more", metavar="[-- RUN_OPTIONS]", nargs=-1, type=click.UNPROCESSED)
@click.option("--study", default="weak-scaling", show_default=True, help="Study, or its .toml file.")
@click.option(
    "--nodes", type=Counts(), help="Numbers of nodes, on a system with a scheduler; default: 1,2,4."
)
@click.option(
    "--ranks", type=Counts(), help="Numbers of ranks, on a system without a scheduler; default: 1,2."
)
@click.option("--backends", type=Words(), help="Backends to run; default: those of the study.")
@click.option(
    "--valid-systems",
    type=Words(),
    default="*",
    show_default=True,
    help="Systems by their names in ReFrame, as in cori:knl.",
)
@click.option("--out", type=click.Path(path_type=Path), help="File to write; default: standard output.")
def reframe(valid_systems: list[str], out: Path | None, **options: Any) -> int:
    """Write a ReFrame test of a study on SYSTEM.

    It runs all sizes in one job and reads its numbers from `dlscale report --json`. What follows `--` is given to
    `dlscale run`.

    \b
    Example: dlscale export reframe local --out dlscale_test.py -- --budget 2min
    """  # noqa: D301
    return _emit(reframe_test(_harness_run(**options), valid_systems=valid_systems), out)


def _harness_run(
    system: str,
    more: tuple[str, ...],
    study: str,
    nodes: list[int] | None,
    ranks: list[int] | None,
    backends: list[str] | None,
) -> HarnessRun:
    """Everything checked that can be without the machine. Raises UsageError."""
    machine, given = load_system(system), _parse(study, more)
    nodes, ranks = _sizes(machine, nodes, ranks)
    sizes = {"nodes": nodes, "ranks": ranks, "backends": backends}
    given = given.changed(fields={name: value for name, value in sizes.items() if value})
    chosen = study_of(study, machine, given)
    for name in chosen.backends:
        definitions.one_of("backend", name, BACKENDS)
    points = shape(chosen, machine)
    plan = expand(chosen, environment="", shape=points, data=data_of(machine, given), policy=machine.policy)
    per_node = points.ranks_per_node or 1
    return HarnessRun(
        study=_absolute(study),
        study_title=chosen.title,
        system=_absolute(system),
        system_title=machine.title,
        backends=tuple(chosen.backends),
        scheduled=machine.has_jobs,
        sizes=tuple(sorted({*(nodes or []), *(ranks or [])})),
        ranks_per_node=per_node,
        cpus_per_rank=cpus_per_rank(machine, per_node),
        minutes=math.ceil(ESTIMATES * plan.seconds(plan.launches) / 60) + SPARE_MINUTES,
        more=more,
    )


def _parse(study: str, more: tuple[str, ...]) -> Request:
    """What the user asks of `dlscale run`. Raises UsageError for options that the test sets itself."""
    from dlscale.benchmarks.cli.run import run

    if "--help" in more or "-h" in more:
        raise UsageError("--help after -- ; for the options that may stand there: dlscale run --help")
    with run.make_context("dlscale run", [study, *more]) as context:
        given = dict(context.params)
    request = request_of(given)
    for name in OURS:
        if given.get(name) or request.has(name):
            option = "--" + name.replace("_", "-")
            raise UsageError(f"{option} after --, which the exported test sets itself; leave it out there")
    return request


def _sizes(
    system: System, nodes: list[int] | None, ranks: list[int] | None
) -> tuple[list[int] | None, list[int] | None]:
    """The sizes that were asked for or the usual ones, as nodes or as ranks. Raises UsageError for the wrong kind."""
    if system.emulation:
        raise UsageError(
            f"{system.name} is emulated on this machine, where no harness runs it; name another --system"
        )
    if system.scheduler == "none":
        if nodes:
            raise UsageError(f"--nodes on {system.name}, which has 1 node; use --ranks")
        return None, ranks or list(DEFAULT_RANKS)
    if ranks:
        raise UsageError(f"--ranks on {system.name}, whose jobs have whole nodes; use --nodes")
    return nodes or list(DEFAULT_NODES), None


def _absolute(name: str) -> str:
    """A file's absolute path: a harness starts its tests in folders of its own. Other names stay."""
    return str(Path(name).absolute()) if name.endswith(".toml") else name


def _emit(text: str, out: Path | None) -> int:
    if out is None:
        click.echo(text, nl=False)
        return 0
    if out.exists():
        raise UsageError(f"{out} exists, and may have been changed since; remove it, or choose another --out")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror}; choose another --out") from None
    click.echo(str(out))
    return 0
