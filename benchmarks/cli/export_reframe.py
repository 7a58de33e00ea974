"""`dlscale export reframe`: a study as a test of the harness ReFrame, from a template.

The harness has an allocation of its own, and `dlscale run` starts its ranks in there; ranks are dlscale's to start,
so the harness puts no launcher before it.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

import click

from dlscale.analysis.families import family_of
from dlscale.analysis.findings.acceptance import limits_of
from dlscale.analysis.records import setting_columns
from dlscale.base import definitions
from dlscale.base.errors import UsageError
from dlscale.base.files import make_folder, write_atomically
from dlscale.benchmarks.cli.option_kinds import Counts, Words
from dlscale.benchmarks.cli.request import Request, data_of, request_of, study_of
from dlscale.benchmarks.records.expectations import read_expectations
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
@click.option(
    "--expectations",
    type=click.Path(path_type=Path),
    help="File of dlscale accept --record whose numbers are the test's references; default: none.",
)
def reframe(
    system: str,
    more: tuple[str, ...],
    study: str,
    nodes: list[int] | None,
    ranks: list[int] | None,
    backends: list[str] | None,
    valid_systems: list[str],
    out: Path | None,
    expectations: Path | None,
) -> int:
    """Write a ReFrame test of a study on SYSTEM.

    It runs all sizes in one job and reads its numbers from `dlscale report --json`. What follows `--` is given to
    `dlscale run`.

    \b
    Example: dlscale export reframe local --out dlscale_test.py -- --budget 2min
    """  # noqa: D301
    machine = load_system(system)
    sizes = _sizes(machine, nodes, ranks)
    asked = {"nodes" if machine.has_jobs else "ranks": sizes, "backends": backends}
    given = _request(study, more).changed(fields={name: value for name, value in asked.items() if value})
    chosen = study_of(study, machine, given)
    for name in chosen.backends:
        definitions.one_of("backend", name, BACKENDS)
    points = shape(chosen, machine)
    plan = expand(chosen, environment="", shape=points, data=data_of(machine, given), policy=machine.policy)
    per_node = points.ranks_per_node or 1
    words = run_words(
        _absolute(study), _absolute(system), sizes, chosen.backends, scheduled=machine.has_jobs, more=more
    )
    minutes = math.ceil(ESTIMATES * plan.seconds(plan.launches) / 60) + SPARE_MINUTES
    job = {
        "num_tasks": max(sizes) * per_node,
        "num_tasks_per_node": per_node,
        "num_cpus_per_task": cpus_per_rank(machine, per_node),
        "exclusive_access": True,
    }
    text = reframe_test(
        study,
        title=f"{chosen.title} on {machine.title}",
        words=words,
        valid_systems=valid_systems,
        minutes=minutes,
        job=job if machine.has_jobs else {},
        references=references_of(expectations, machine) if expectations else {},
    )
    if out is None:
        click.echo(text, nl=False)
        return 0
    if out.exists():
        raise UsageError(f"{out} exists, and may have been changed since; remove it, or choose another --out")
    make_folder(out.parent, option="--out")
    write_atomically(out, text, mode=0o644, remedy="choose another --out")
    click.echo(str(out))
    return 0


def _request(study: str, more: tuple[str, ...]) -> Request:
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


def _sizes(system: System, nodes: Sequence[int] | None, ranks: Sequence[int] | None) -> list[int]:
    """The numbers of nodes of an allocation, or of ranks on the only machine. Raises UsageError for the wrong kind."""
    if system.emulation:
        raise UsageError(
            f"{system.name} is emulated on this machine, where no harness runs it; name another --system"
        )
    if not system.has_jobs:
        if nodes:
            raise UsageError(f"--nodes on {system.name}, which has 1 node; use --ranks")
        return sorted({*(ranks or DEFAULT_RANKS)})
    if ranks:
        raise UsageError(f"--ranks on {system.name}, whose jobs have whole nodes; use --nodes")
    return sorted({*(nodes or DEFAULT_NODES)})


def _absolute(name: str) -> str:
    """A file's absolute path: a harness starts its tests in folders of its own. Other names stay."""
    return str(Path(name).absolute()) if name.endswith(".toml") else name


def run_words(
    study: str,
    system: str,
    sizes: Sequence[int],
    backends: Sequence[str],
    *,
    scheduled: bool,
    more: Sequence[str] = (),
) -> list[str]:
    """The words after `dlscale`, each quoted for a shell; a scheduled run uses the allocation that it is in."""
    where = ("--in-allocation", "--nodes") if scheduled else ("--ranks",)
    listed = [",".join(map(str, values)) for values in (sizes, backends)]
    words = ("run", study, "--system", system, *where, listed[0], "--backends", listed[1])
    return [shlex.quote(word) for word in (*words, "--results", "results", *more)]


def reframe_test(
    study: str,
    *,
    title: str,
    words: Sequence[str],
    valid_systems: Sequence[str],
    minutes: int,
    job: dict[str, int | bool],
    references: Mapping[str, Reference] | None = None,
) -> str:
    """The file: one test, whose `job` has as many nodes as the largest size and runs all of them on parts of it.

    `words` come quoted for the shell, as ReFrame writes them into its job script; what is put into the template is not
    looked at again.
    """
    stem = study.rpartition("/")[2].removesuffix(".toml")
    values = {
        "NAME": "dlscale_" + re.sub(r"\W+", "_", stem, flags=re.ASCII),
        "TITLE": _one_line(title),
        "VALID_SYSTEMS": repr(list(valid_systems)),
        "WORDS": "".join(f"\n        {word!r}," for word in words) + "\n    ",
        "TIME_LIMIT": repr(f"{minutes}m"),
        "REFERENCE": f"    reference = {{'*': {dict(references)!r}}}\n" if references else "",
        "NODES": "".join(f"    {name} = {value}\n" for name, value in job.items()),
    }
    file = resources.files("dlscale.benchmarks.exports").joinpath("reframe.py.template")
    return re.sub(r"@([A-Z_]+)@", lambda match: values[match[1]], file.read_text("utf-8"))


Reference = tuple[
    float, float, float, str
]  # the value, how far below and above it may be as shares, its unit


def references_of(path: Path, system: System) -> dict[str, Reference]:
    """What each number of the test should be, by its name. Raises UsageError for expectations of another system.

    The limits are those of `dlscale accept` for one more study of as many launches.
    """
    known = read_expectations(path)
    if known.system != system.name:
        raise UsageError(f"--expectations {path} is for {known.system}, not {system.name}; give its own")
    limits = limits_of(known.baselines)
    found: dict[str, Reference] = {}
    for cell_id, past in known.baselines[-1].cells.items():
        cell = past.cell
        columns = setting_columns(family_of(cell, system=known.system), cell)
        words = "_".join(str(columns[name]) for name in ROW if columns[name])
        servers = f"_{cell.num_servers}s" if cell.num_servers else ""
        label = re.sub(r"\W+", "_", words) + f"_{cell.num_nodes}n_{cell.num_ranks}r{servers}"
        for metric, (suffix, unit) in NUMBERS.items():
            if number := known.expected.get(metric, {}).get(cell_id):
                width = limits[metric, cell_id].half_width
                found[label + suffix] = (number.median, math.expm1(-width), math.expm1(width), unit)
    return found


# As the template's `label` has them.
ROW = ("workload", "framework", "backend", "backend_options", "environment")
NUMBERS = {"throughput": ("", "samples/s"), "efficiency": ("_efficiency", "1")}  # suffix and unit of a metric


def _one_line(text: str) -> str:
    """Text for a comment or a docstring: one line of printable characters that ends neither."""
    return "".join(c for c in " ".join(text.split()) if c.isprintable()).replace("\\", "/").replace('"', "'")
