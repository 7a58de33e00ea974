"""`dlscale compare-frameworks`: which framework to use here, from a study of speed and one of trainings to a target.

Both are studies as any other, with records of their own; `--from` answers from studies that were measured.
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
from dlscale.base.quantities import format_seconds, parse_seconds
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA, NOT_COMPARABLE
from dlscale.benchmarks.cli.format_options import format_fields, formats_of, images_of, prepare
from dlscale.benchmarks.cli.option_kinds import Words
from dlscale.benchmarks.cli.options import (
    TARGET_OPTIONS,
    data_of,
    json_option,
    named_folder,
    start_options,
    study_of,
    study_options,
    system_of,
)
from dlscale.benchmarks.cli.report_together import FOLDER
from dlscale.benchmarks.cli.run import campaign_of, run_here, seconds_of_wait, show_campaign
from dlscale.benchmarks.cli.study_report import Loaded, load, tell_left_out
from dlscale.benchmarks.launch.campaign import Campaign
from dlscale.benchmarks.launch.supervisor import interrupt_on_signals
from dlscale.benchmarks.records.files import uncollected
from dlscale.benchmarks.records.preparation import FOLDER as FORMATS_FOLDER
from dlscale.benchmarks.records.preparation import read_preparations
from dlscale.benchmarks.records.store import Store
from dlscale.benchmarks.study.study import load_study
from dlscale.benchmarks.systems.system import System

SPEED_STUDY, LOSS_STUDY = "frameworks", "framework-losses"
# Options that only trainings to a target have, and those that only studies of speed have.
OF_LOSSES = ("target", *TARGET_OPTIONS, "learning_rate_scaling", "tuned")
OF_SPEED = ("controls", "budget", "train_steps")


@click.command("compare-frameworks")
@click.option(
    "--losses",
    type=bool,
    is_flag=False,
    flag_value=True,
    default=True,
    show_default=True,
    help="Trainings to a target beside the measurements of speed: --losses no leaves them out.",
)
@click.option(
    "--job-limit",
    default=f"{JOB_SECONDS / 60:.0f}min",
    show_default=True,
    help="Wall time of a job, of which start and checkpoint take a share.",
)
@click.option(
    "--formats",
    type=Words(),
    help="Formats that the images of --data are repackaged in, timed and read: folders, tfrecord, lmdb, list or all.",
)
@click.option(
    "--from",
    "measured",
    type=Words(),
    help="Studies that were measured, to answer from without running anything: folders or beginnings of names.",
)
@study_options
@start_options
@json_option
def compare_frameworks(
    losses: bool,
    job_limit: str,
    formats: list[str] | None,
    measured: list[str] | None,
    dry_run: bool,
    in_allocation: bool,
    wait_quiet: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Answer which framework to use here: TensorFlow or PyTorch, compiled or not.

    First the speed of every program is measured on 1 rank to one per core (study frameworks), then trainings run to a
    target on the most ranks (study framework-losses). The answer compares the programs pair by pair, with intervals;
    tables have throughput, time per step and epoch, time and steps to the target, start, memory, checkpoints, and the
    lines that a script changes. Where the parity gate did not find the same network in both frameworks, they are not
    compared. The same command resumes it.

    Exit status: 2 if cases failed, 3 if the parity gate forbids a comparison, 4 if a question is not decided.

    \b
    Examples:
      dlscale compare-frameworks --dry-run
      dlscale compare-frameworks
      dlscale compare-frameworks --workloads all --losses no --ranks 1,2,4
      dlscale compare-frameworks --workloads resnet50 --data images --losses no --formats tfrecord,lmdb
      dlscale compare-frameworks --from frameworks,framework-losses --json
    """  # noqa: D301
    job_seconds = _job_seconds(job_limit)
    results = Path(options["results"])
    if measured:
        if dry_run or in_allocation or wait_quiet or formats:
            raise UsageError(
                "--from runs nothing; leave out --dry-run, --in-allocation, --wait-quiet and --formats"
            )
        folders = [named_folder(results, name) for name in measured]
        return _answer(folders, results, job_seconds, as_json=as_json)
    if as_json:
        raise UsageError(
            f"--json is of studies that were measured; run without it, then give --from {SPEED_STUDY},{LOSS_STUDY}"
        )
    system = system_of(options)
    if system.has_jobs or in_allocation:
        raise UsageError(
            f"compare-frameworks on {system.name}: its answer needs the results of two studies; submit dlscale run "
            f"{SPEED_STUDY} and dlscale run {LOSS_STUDY}, then give --from {SPEED_STUDY},{LOSS_STUDY}"
        )
    wait_seconds = seconds_of_wait(wait_quiet)
    options |= {"data": data_of(system, options)}
    wanted = formats_of(formats)
    images = images_of(options["data"], options["workloads"]) if wanted else None
    campaigns, skipped = _campaigns(system, options, losses=losses)
    if images:
        skipped.append(
            f"then {images[1]} as {', '.join(wanted)}: repackaged, and read on 1 rank in both frameworks"
        )
    if dry_run:
        for campaign in campaigns:
            show_campaign(campaign, campaign.todo(campaign.store.summaries()), commands=False)
        click.echo("\n".join([*skipped, _estimate(campaigns)]))
        return 0
    interrupt_on_signals()
    click.echo("\n".join([*skipped, _estimate(campaigns)]))
    statuses = [
        run_here(campaign, data=options["data"], wait_seconds=wait_seconds, figures=False)
        for campaign in campaigns
    ]
    if images:
        workload, source = images
        own = options | dict.fromkeys((*OF_LOSSES, *OF_SPEED))
        place = campaigns[0].store.folder.parent / FORMATS_FOLDER
        for path, _ in prepare(source, wanted, place, skip_bad=bool(options["skip_bad"])):
            fields = format_fields(own, workload, path)
            campaigns.append(campaign_of(study_of(SPEED_STUDY, system, fields), system, fields))
            statuses.append(
                run_here(campaigns[-1], data=fields["data"], wait_seconds=wait_seconds, figures=False)
            )
    folders = [campaign.store.folder for campaign in campaigns]
    status = _answer(folders, results, job_seconds, as_json=False)
    return FAILED_CASES if FAILED_CASES in statuses else status


def _job_seconds(text: str) -> float:
    try:
        seconds = parse_seconds(text)
    except ValueError as error:
        raise UsageError(f"--job-limit: {error}") from None
    if not seconds > 0:
        raise UsageError(f"--job-limit {text}: a job has some time; give e.g. 30min")
    return seconds


def _campaigns(system: System, options: dict[str, Any], *, losses: bool) -> tuple[list[Campaign], list[str]]:
    """The measurement of speed and, if asked for, the trainings to a target, and sentences on what has none."""
    own = options | dict.fromkeys(OF_LOSSES)
    speed = campaign_of(study_of(SPEED_STUDY, system, own), system, own)
    cells = [launch.cell for launch in speed.plan.launches]
    needed = blocks_needed(pairs) if (pairs := num_pairs(cells)) else 0
    if options["launches"] is None and needed > speed.plan.num_launches:
        own = own | {"launches": needed}
        speed = campaign_of(study_of(SPEED_STUDY, system, own), system, own)
    if not losses:
        return [speed], []
    with_target, skipped = _with_target(speed.plan.study.workloads, options)
    if not with_target:
        return [speed], skipped
    own = options | dict.fromkeys(OF_SPEED)
    own |= {"workloads": with_target, "ranks": [max(speed.plan.shape.ranks)], "nodes": None}
    return [speed, campaign_of(study_of(LOSS_STUDY, system, own), system, own)], skipped


def _with_target(workloads: Sequence[str], options: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The workloads that have a target, and a sentence for each other one."""
    study = load_study(LOSS_STUDY)
    if options["target"] or study.target is None:
        return list(workloads), []
    preset = options["preset"] or study.preset
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


def _answer(folders: Sequence[Path], results: Path, job_seconds: float, *, as_json: bool) -> int:
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
