"""`dlscale run frameworks`: which framework to use here, from a study of speed and one of trainings to a target.

Both are studies as any other, with records of their own; `dlscale compare --frameworks` answers from them again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from dlscale.analysis.findings.framework_choice import num_pairs
from dlscale.analysis.statistics import blocks_needed
from dlscale.analysis.text import number
from dlscale.base.errors import UsageError
from dlscale.base.files import make_folder
from dlscale.base.quantities import format_seconds
from dlscale.benchmarks.cli import FAILED_CASES
from dlscale.benchmarks.cli.answer_frameworks import answer
from dlscale.benchmarks.cli.plan_table import plan_json
from dlscale.benchmarks.cli.request import Request, Start, data_of, study_of
from dlscale.benchmarks.cli.run_here import campaign_of, run_here, show_campaign
from dlscale.benchmarks.launch.campaign import Campaign
from dlscale.benchmarks.records.preparation import FOLDER as FORMATS_FOLDER
from dlscale.benchmarks.records.preparation import Preparation, read_preparation, write_preparation
from dlscale.benchmarks.study.cells import data_name, data_paths
from dlscale.benchmarks.study.study import Study, load_study
from dlscale.benchmarks.systems.system import System
from dlscale.models import NAMES as WORKLOADS
from dlscale.models.workload import SYNTHETIC

LOSS_STUDY = "framework-losses"
# Fields that only trainings to a target have, and those that only studies of speed have.
OF_LOSSES = ("target",)
OF_SPEED = ("controls", "budget", "rules.train_steps", "choice")


def run_frameworks(name: str, system: System, request: Request, how: Start) -> int:
    """Measure speed and trainings to a target in all programs, then answer which framework to use here.

    First the speed of every program is measured on 1 rank to one per core (study `name`), then trainings run to a
    target on the most ranks (study framework-losses), then the formats of images are read. Returns the exit status:
    2 if cases failed, 4 if a question is not decided. Raises UsageError.
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
            show_campaign(campaign, left)
        click.echo("\n".join([*skipped, _estimate(campaigns)]))
        return 0
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


# Data in several formats: each is repackaged once, which is timed, then read by a study of its own.
OF_IMAGES = ("resnet50", "inception_v3")  # the workloads that read them
LAUNCHES = 6  # of each cell, as many as an interval needs


def images_of(data: str | None, asked: Sequence[str] | None) -> tuple[str, Path]:
    """The first workload that reads images, and those that --data names for it. Raises UsageError without any."""
    workloads = WORKLOADS if list(asked or ()) == ["all"] else asked or ()
    paths = data_paths(data, workloads) if workloads else {}
    for name in workloads:
        if name in OF_IMAGES and name in paths and paths[name] != SYNTHETIC:
            return name, paths[name]
    raise UsageError(
        "choice.formats needs images to repackage: give --workloads resnet50 --data PATH (class folders, TFRecord "
        "files, an LMDB, a list or CIFAR-10's files; dlscale data digits writes some)"
    )


def prepare(
    source: Path, formats: Sequence[str], folder: Path, *, skip_bad: bool
) -> Iterator[tuple[Path, Preparation]]:
    """The source in each format, in a folder of its own below `folder`; what is there is not made again.

    Raises UsageError if the source cannot be read, or a format not be written.
    """
    if not source.exists():
        raise UsageError(f"--data {source}: there is no such file or folder; check the path")
    make_folder(folder)
    stem, _, digest = data_name(source).rpartition(":")
    for name in formats:
        target = folder / f"{Path(stem).stem}-{digest[:8]}-{name}"
        found = read_preparation(folder, target.name)
        if found is None:
            click.echo(f"repackaging {source} as {name} ...")
            found = _prepared(source, target, name, skip_bad=skip_bad)
            write_preparation(found, folder)
        click.echo(
            f"{target}: {found.num_samples} samples, {found.num_bytes / 1e6:.1f} MB in {found.num_files} files, "
            f"repackaged in {number(found.seconds)} s"
        )
        yield target, found


def _prepared(source: Path, target: Path, name: str, *, skip_bad: bool) -> Preparation:
    from dlscale.models.images.convert import convert

    begin = time.perf_counter()
    converted = convert(source, target, name, skip_bad=skip_bad, overwrite=True)
    seconds = time.perf_counter() - begin
    files = [path for path in target.rglob("*") if path.is_file()]
    return Preparation(
        name=target.name,
        format=name,
        source=source.name,
        source_format=converted.source_format,
        num_samples=converted.num_samples,
        num_skipped=len(converted.skipped),
        image_bytes=converted.num_bytes,
        num_bytes=sum(path.stat().st_size for path in files),
        num_files=len(files),
        seconds=seconds,
    )


def format_request(request: Request, workload: str, path: Path) -> Request:
    """What asks for the study that reads one format: training and reading alone, on 1 rank, without compilers."""
    own = {
        "workloads": [workload],
        "backends": ["none"],
        "controls": ["loader"],
        "compiled": False,
        "ranks": [1],
        "launches": request.get("launches") or LAUNCHES,
    }
    return request.changed(without=("backend_options", "nodes"), fields=own, data=str(path))
