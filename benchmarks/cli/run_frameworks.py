"""`dlscale run frameworks`: which framework to use here, from a study of speed and one of trainings to a target.

Both are studies as any other, with records of their own; `dlscale compare --frameworks` answers from them again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from dlscale.analysis.figures.frameworks import write_frameworks
from dlscale.analysis.findings.data_formats import (
    FORMAT_USES,
    FormatUse,
    data_is_prepared,
    format_uses,
    to_format_row,
)
from dlscale.analysis.findings.failures import study_warnings
from dlscale.analysis.findings.framework_answers import (
    Question,
    num_pairs,
    questions,
    to_answer_row,
    to_comparison_rows,
)
from dlscale.analysis.findings.framework_comparison import (
    COSTS,
    JOB_SECONDS,
    SPEED,
    Program,
    has_failed_cases,
    loss_rows,
    measured_only,
    programs,
    to_program_row,
)
from dlscale.analysis.provenance import provenance
from dlscale.analysis.render.grid import render_table
from dlscale.analysis.render.html.document import write_page
from dlscale.analysis.render.html.frameworks import page_of_frameworks
from dlscale.analysis.statistics import blocks_needed
from dlscale.base.errors import UsageError
from dlscale.base.files import make_folder
from dlscale.base.quantities import format_seconds
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA, NOT_COMPARABLE
from dlscale.benchmarks.cli.formats import format_request, images_of, prepare
from dlscale.benchmarks.cli.plan_table import plan_json
from dlscale.benchmarks.cli.report_together import FOLDER
from dlscale.benchmarks.cli.request import Request, data_of, study_of
from dlscale.benchmarks.cli.run import Start, campaign_of, run_here, show_campaign
from dlscale.benchmarks.cli.study_report import Loaded, load, tell_left_out
from dlscale.benchmarks.launch.campaign import Campaign
from dlscale.benchmarks.launch.supervisor import interrupt_on_signals
from dlscale.benchmarks.records.files import uncollected
from dlscale.benchmarks.records.preparation import FOLDER as FORMATS_FOLDER
from dlscale.benchmarks.records.preparation import read_preparations
from dlscale.benchmarks.records.store import Store
from dlscale.benchmarks.study.study import Study, load_study
from dlscale.benchmarks.systems.system import System

LOSS_STUDY = "framework-losses"
# Fields that only trainings to a target have, and those that only studies of speed have.
OF_LOSSES = ("target",)
OF_SPEED = ("controls", "budget", "rules.train_steps", "choice")


def run_frameworks(name: str, system: System, request: Request, how: Start) -> int:
    """Measure speed and trainings to a target in all programs, then answer which framework to use here.

    First the speed of every program is measured on 1 rank to one per core (study `name`), then trainings run to a
    target on the most ranks (study framework-losses), then the formats of images are read. Returns the exit status:
    2 if cases failed, 3 if the parity gate forbids a comparison, 4 if a question is not decided. Raises UsageError.
    """
    if system.has_jobs or how.in_allocation:
        raise UsageError(
            f"{name} on {system.name}: its answer needs the results of two studies; submit dlscale run {name} "
            f"--set choice.losses=no and dlscale run {LOSS_STUDY}, then dlscale compare --frameworks {name} "
            f"{LOSS_STUDY}"
        )
    request = request.changed(data=data_of(system, request))
    rules = study_of(name, system, request.changed(without=OF_LOSSES)).choice
    if rules is None:
        raise UsageError(f"study {name} compares no frameworks; run frameworks")
    images = images_of(request.data, request.get("workloads")) if rules.formats else None
    campaigns, skipped = _campaigns(name, system, request, losses=rules.losses)
    if images:
        skipped.append(
            f"then {images[1]} as {', '.join(rules.formats)}: repackaged, and read on 1 rank in both frameworks"
        )
    if not how.start:
        todo = [campaign.todo(campaign.store.summaries()) for campaign in campaigns]
        if how.as_json:
            parts = [plan_json(campaign.plan, left) for campaign, left in zip(campaigns, todo, strict=True)]
            click.echo(json.dumps({"schema": 1, "rows": [row for part in parts for row in part["rows"]]}))
            return 0
        for campaign, left in zip(campaigns, todo, strict=True):
            show_campaign(campaign, left, commands=how.commands)
        click.echo("\n".join([*skipped, _estimate(campaigns)]))
        return 0
    interrupt_on_signals()
    click.echo("\n".join([*skipped, _estimate(campaigns)]))
    quiet = request.changed(figures=False)
    statuses = [run_here(campaign, quiet) for campaign in campaigns]
    if images:
        workload, source = images
        place = campaigns[0].store.folder.parent / FORMATS_FOLDER
        for path, _ in prepare(source, rules.formats, place, skip_bad=bool(request.get("skip_bad"))):
            own = format_request(quiet.changed(without=(*OF_LOSSES, *OF_SPEED)), workload, path)
            campaigns.append(campaign_of(_speed_study(name, system, own), system, own))
            statuses.append(run_here(campaigns[-1], own))
    status = answer([campaign.store.folder for campaign in campaigns], request.results, rules.job_limit)
    return FAILED_CASES if FAILED_CASES in statuses else status


def _speed_study(name: str, system: System, request: Request) -> Study:
    """The measurement of speed, whose records are the same whatever is asked of them later."""
    return study_of(name, system, request).model_copy(update={"choice": None})


def _campaigns(
    name: str, system: System, request: Request, *, losses: bool
) -> tuple[list[Campaign], list[str]]:
    """The measurement of speed and, if asked for, the trainings to a target, and sentences on what has none."""
    own = request.changed(without=OF_LOSSES)
    speed = campaign_of(_speed_study(name, system, own), system, own)
    cells = [launch.cell for launch in speed.plan.launches]
    needed = blocks_needed(pairs) if (pairs := num_pairs(cells)) else 0
    if not request.has("launches") and needed > speed.plan.num_launches:
        own = own.changed(fields={"launches": needed})
        speed = campaign_of(_speed_study(name, system, own), system, own)
    if not losses:
        return [speed], []
    with_target, skipped = _with_target(speed.plan.study.workloads, request)
    if not with_target:
        return [speed], skipped
    own = request.changed(
        without=(*OF_SPEED, "nodes"),
        fields={"workloads": with_target, "ranks": [max(speed.plan.shape.ranks)]},
    )
    return [speed, campaign_of(study_of(LOSS_STUDY, system, own), system, own)], skipped


def _with_target(workloads: Sequence[str], request: Request) -> tuple[list[str], list[str]]:
    """The workloads that have a target, and a sentence for each other one."""
    study = load_study(LOSS_STUDY)
    if request.has("target.metric") or study.target is None:
        return list(workloads), []
    preset = request.get("preset") or study.preset
    found = [name for name in workloads if preset in study.target.goals.get(name, {})]
    return found, [
        f"no trainings of {name}: it has no target here; run them with --workloads {name} --target METRIC=THRESHOLD"
        for name in workloads
        if name not in found
    ]


def _estimate(campaigns: Sequence[Campaign]) -> str:
    """About how long they take, of what is not there yet."""
    parts = [
        f"{campaign.plan.study.title.lower()}: about "
        f"{format_seconds(campaign.plan.seconds(campaign.todo(campaign.store.summaries())))}"
        for campaign in campaigns
    ]
    return "; ".join(parts)


def answer(
    folders: Sequence[Path], results: Path, job_seconds: float = JOB_SECONDS, *, as_json: bool = False
) -> int:
    """Answer from the studies' records on the screen and on a page below `results`; returns the exit status.

    Raises UsageError if nothing was measured.
    """
    with uncollected():
        loaded = [load(Store(folder)) for folder in folders]
        studies = [one.study for one in loaded]
        places = dict.fromkeys(folder.resolve().parent / FORMATS_FOLDER for folder in folders)
        prepared = [found for place in places for found in read_preparations(place)]
        uses = format_uses(studies, prepared)
        items = [
            item
            for item in programs(studies, job_seconds=job_seconds)
            if not data_is_prepared(item.row, prepared)
        ]
        if not uses and not any(measured_only(items)):
            names = ", ".join(folder.name for folder in folders)
            raise UsageError(f"{names}: no training has a number; look at: dlscale status")
        asked = questions(items, studies)
        if as_json:
            click.echo(json.dumps(_json(items, asked, uses)))
        else:
            _print(items, asked, uses)
            _put(items, asked, uses, loaded=loaded, results=results)
        for study in studies:
            tell_left_out(study.bad_files, study.left_out)
    return _status(loaded, asked)


def _json(items: Sequence[Program], asked: Sequence[Question], uses: Sequence[FormatUse]) -> dict[str, Any]:
    return {
        "schema": 1,
        "rows": [to_program_row(item) for item in items],
        "answers": [to_answer_row(question) for question in asked],
        "comparisons": [row for question in asked for row in to_comparison_rows(question)],
        "losses": list(loss_rows(items)),
        "formats": [to_format_row(use) for use in uses],
    }


def _print(items: Sequence[Program], asked: Sequence[Question], uses: Sequence[FormatUse]) -> None:
    console = Console(highlight=False)
    console.print("[bold]Which framework to use here[/bold]")
    for question in asked:
        for sentence in question.sentences:
            console.print(sentence, markup=False)
    if not asked:
        console.print("No answer: no training was measured in two programs (frameworks, compiled or not).")
    console.print()
    for table in (SPEED.of(items), COSTS.of(items), FORMAT_USES.of(uses)):
        for part in render_table(table):
            console.print(part)


def _put(
    items: Sequence[Program],
    asked: Sequence[Question],
    uses: Sequence[FormatUse],
    *,
    loaded: Sequence[Loaded],
    results: Path,
) -> None:
    """Draw the figures and write the page, named for the studies, and print where they are."""
    origin = provenance(record for study in loaded for record in study.study.records)
    names = "+".join(study.folder.name for study in loaded)
    path = results / FOLDER / f"frameworks-{hashlib.sha256(names.encode()).hexdigest()[:8]}.html"
    make_folder(path.parent)
    written = write_frameworks(items, asked, path.with_suffix(""), origin)
    if drawn := sum(file.suffix == ".png" for file in written):
        click.echo(f"figures: {drawn} in {path.with_suffix('')}")
    warnings = [sentence for study in loaded for sentence, _ in study_warnings(study.study)]
    write_page(page_of_frameworks(items, asked, uses, warnings=warnings, origin=origin), path)
    click.echo(f"report: {path}\nopen: {path.resolve().as_uri()}")


def _status(loaded: Sequence[Loaded], asked: Sequence[Question]) -> int:
    if any(
        study.study.bad_files or study.study.left_out or has_failed_cases(study.study) for study in loaded
    ):
        return FAILED_CASES
    if any(question.forbidden for question in asked):
        return NOT_COMPARABLE
    undecided = any(standing.undecided for question in asked for standing in question.standings)
    return INSUFFICIENT_DATA if undecided or not asked else 0
