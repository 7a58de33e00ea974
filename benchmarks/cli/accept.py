"""`dlscale accept`: whether a machine is as fast as it was when its expectations were recorded."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click
from pydantic import ValidationError
from rich.console import Console

from dlscale.analysis.between_studies import MIN_BASELINES
from dlscale.analysis.declare import brief
from dlscale.analysis.findings.acceptance import Acceptance, expected_of, sentences, telling_order
from dlscale.analysis.findings.acceptance import accept as hold
from dlscale.analysis.findings.history import HISTORY, history_data, on_screen
from dlscale.analysis.launches import latest_good
from dlscale.analysis.render.grid import render_table
from dlscale.analysis.text import plural
from dlscale.base.definitions import first_problem
from dlscale.base.errors import UsageError
from dlscale.base.files import make_folder
from dlscale.base.quantities import format_seconds
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA, NOT_COMPARABLE
from dlscale.benchmarks.cli.history import read_history, read_past
from dlscale.benchmarks.cli.options import choose_study, json_option, results_option
from dlscale.benchmarks.cli.request import Request
from dlscale.benchmarks.cli.run_here import measure_here
from dlscale.benchmarks.jobs.submission import own_nodes
from dlscale.benchmarks.launch.overheads import read_overheads
from dlscale.benchmarks.launch.preparing import prepare_campaign
from dlscale.benchmarks.records.expectations import (
    EXPECTATIONS_FILE,
    Expectations,
    read_expectations,
    write_expectations,
)
from dlscale.benchmarks.study.plan import Launch, Plan
from dlscale.benchmarks.study.study import Study
from dlscale.benchmarks.study.study_file import read_study_file
from dlscale.benchmarks.systems.system import load_system

QUICK_SECONDS = 150.0  # planned; plans may take a fifth longer, and it shall be three minutes
LEAST_LAUNCHES = 3  # of a cell


@click.command()
@click.argument("study", required=False)
@click.option("--system", default="local", show_default=True, help="System: a known name or a .toml file.")
@results_option
@click.option(
    "--expectations",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File of expectations; default: expectations.toml beside the system's file, or in the folder of its studies.",
)
@click.option("--record", is_flag=True, help="Write the expectations from the studies of a history.")
@click.option("--since", metavar="DATE", help="First day of the studies to record, as 2026-11-27.")
@click.option("--quick", is_flag=True, help="Only the most telling cells, in at most three minutes.")
@click.option("--in-allocation", is_flag=True, help="Use the nodes of the job that this runs in.")
@json_option
def accept(
    study: str | None,
    system: str,
    results: Path,
    expectations: Path | None,
    record: bool,
    since: str | None,
    quick: bool,
    in_allocation: bool,
    as_json: bool,
) -> int:
    """Measure the cells of a system's expectations and say of each whether it is as fast as expected.

    With STUDY it is not measured: that study is judged, which a job has run. With --record the expectations are
    written from the history of STUDY (default: the latest), of three studies at least (dlscale history). A cell is
    slower or faster if it differs by more than baselines differ from each other, corrected over all cells
    (docs/metrics.md).

    Exit status: 2 if a cell is slower, 3 if the machine or what measures is another, 4 if a cell was not measured.

    \b
    Examples:
      dlscale accept --record --results nightly
      dlscale accept --results nightly --quick
      dlscale accept weak-scaling --expectations cori.expectations.toml
    """  # noqa: D301
    machine = load_system(system)
    beside = Path(system).parent if system.endswith(".toml") else results / machine.name
    path = expectations or beside / EXPECTATIONS_FILE
    if record:
        if quick or in_allocation:
            raise UsageError("--record measures nothing; leave out --quick and --in-allocation")
        return _record(path, results, study, since)
    known = read_expectations(path)
    if known.system != machine.name:
        raise UsageError(
            f"{path} is for {known.system}, and --system is {machine.name}; give its own --expectations"
        )
    baselines = known.baselines
    wanted = None
    if study is not None:
        folder = choose_study(results, study, system=system)
    else:
        place = results / f"{datetime.now(UTC):%Y-%m-%dT%H%M%S}"
        folder, wanted = _measure(
            known, system, place, results, quick=quick, in_allocation=in_allocation, quiet=as_json
        )
    try:
        past, measured, note = read_past(folder, place=folder.name)
    except UsageError as error:
        raise UsageError(f"{folder}: {error}") from None
    if note:
        click.echo(f"left out: {note}", err=True)
    good = latest_good(measured.records)
    if busy := sum(record.disturbed for record in good):
        click.echo(
            f"the machine was busy in {busy} of {plural(len(good), 'case')}, which may be all that is slower; measure "
            "again when it is quiet",
            err=True,
        )
    held = hold(baselines, past, wanted=wanted)
    _print(held, as_json=as_json)
    if held.forbids:
        return NOT_COMPARABLE
    if any(row.worse for row in held.rows):
        return FAILED_CASES
    return INSUFFICIENT_DATA if held.missing or not held.rows else 0


def _print(held: Acceptance, *, as_json: bool) -> None:
    said = list(sentences(held))
    if as_json:
        rows = [history_data(row) for row in held.rows]
        content = {"rows": rows, "not_comparable": list(held.forbids), "missing": list(held.missing)}
        click.echo(json.dumps({"schema": 1, **content, "changed": dict(held.changed.changed)}))
        return
    console = Console(highlight=False)
    for part in render_table(
        brief(HISTORY.of(on_screen(held.rows)), without=("since", "seen from")), caption=True
    ):
        console.print(part)
    for sentence in said:
        console.print(sentence.text, markup=False, soft_wrap=True, style="bold" if sentence.strong else "")


def _record(path: Path, results: Path, name: str | None, since: str | None) -> int:
    """Write the expectations; returns the exit status. Raises UsageError for fewer than three baselines."""
    studies, _, notes = read_history(results, name, since)
    for note in notes:
        click.echo(f"left out: {note}", err=True)
    if len(studies) < MIN_BASELINES:
        raise UsageError(
            f"{plural(len(studies), 'baseline')} in {results}, and how much studies differ needs {MIN_BASELINES}; "
            "measure the same study again on other days, each into --results of its own"
        )
    baselines, expected, lacking = expected_of(studies)
    if not expected:
        raise UsageError(
            f"no cell is in all {len(studies)} baselines; leave out older ones: --since {studies[1].begun[:10]}"
        )
    last = studies[-1]
    file = read_study_file(results / last.place)
    make_folder(path.parent, option="--expectations")
    write_expectations(
        Expectations(
            system=str(last.key["system"]),
            study=file.study.model_dump_json(),
            environment=file.environment,
            data=file.data,
            expected=expected,
            baselines=baselines,
        ),
        path,
    )
    if lacking:
        click.echo(f"left out: {', '.join(lacking)}: not in all baselines", err=True)
    click.echo(
        f"expectations: {path} ({plural(len(baselines[-1].cells), 'cell')} of {plural(len(studies), 'baseline')})"
    )
    return 0


def _measure(
    known: Expectations,
    system: str,
    place: Path,
    results: Path,
    *,
    quick: bool,
    in_allocation: bool,
    quiet: bool,
) -> tuple[Path, list[str]]:
    """Measure the cells anew into a folder of their own; gives the study's folder, and the cells. Raises UsageError."""
    machine = load_system(system)
    if machine.has_jobs and not in_allocation:
        raise UsageError(
            f"accept on {machine.name} outside a job; use --in-allocation in a job, or judge a study that jobs have "
            "measured: dlscale accept STUDY"
        )
    try:
        study = Study.model_validate_json(known.study)
    except ValidationError as error:
        raise UsageError(
            f"the study of these expectations is invalid: {first_problem(error)}; record them again"
        ) from None
    if quick:  # the shortest windows that the rules allow
        study = study.model_copy(update={"budget": None})
    campaign = prepare_campaign(
        study, machine, environment_name=known.environment, data=known.data, results=place
    )
    plan = replace(campaign.plan, overhead_seconds=read_overheads(results / machine.name))
    expected = set(known.baselines[-1].cells)
    launches = [launch for launch in plan.launches if any(case.cell.id in expected for case in launch.cases)]
    if quick:
        launches = quick_launches(plan, launches, telling_order(known.baselines, launches=LEAST_LAUNCHES))
    if not launches:
        raise UsageError("no expected cell is in this study's plan any more; record the expectations again")
    campaign = replace(campaign, plan=replace(plan, launches=tuple(launches)))
    if in_allocation:
        campaign = replace(campaign, nodes=own_nodes(campaign))
    if quick and not quiet:
        cells = {launch.cell.id for launch in launches}
        click.echo(
            f"quick: {len(cells)} of {len(expected)} cells, about {format_seconds(plan.seconds(launches))}"
        )
    with redirect_stdout(sys.stderr if quiet else sys.stdout):
        measure_here(campaign, Request(data=known.data))
    chosen = {case.cell.id for launch in launches for case in launch.cases} if quick else expected
    return campaign.store.folder, sorted(expected & chosen)


def quick_launches(plan: Plan, launches: Sequence[Launch], order: Sequence[str]) -> list[Launch]:
    """The launches of the most telling cells that fit into QUICK_SECONDS: LEAST_LAUNCHES of each, or as many as fit."""
    chosen: set[str] = set()
    blocks: dict[str, list[Launch]] = {}
    for launch in launches:
        for case in launch.cases:
            blocks.setdefault(case.cell.id, []).append(launch)
    seconds = 0.0
    for cell_id in order:
        own = blocks.get(cell_id, [])[:1]
        cost = plan.seconds(own)
        if (
            own
            and own[0].cell.id not in chosen
            and (not chosen or (seconds + cost) * LEAST_LAUNCHES <= QUICK_SECONDS)
        ):
            chosen.add(own[0].cell.id)
            seconds += cost
    most = max(LEAST_LAUNCHES, int(QUICK_SECONDS / max(seconds, 1e-3)))
    return [launch for launch in launches if launch.cell.id in chosen and launch.cases[0].block < most]
