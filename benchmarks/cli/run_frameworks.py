"""`dlscale run frameworks`: which framework to use here, from a study of speed and one of trainings to a target.

Both are studies as any other, with records of their own; `dlscale compare --frameworks` answers from them again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import click

from dlscale.analysis.findings.framework_choice import num_pairs
from dlscale.analysis.statistics import blocks_needed
from dlscale.base.errors import UsageError
from dlscale.base.quantities import format_seconds
from dlscale.benchmarks.cli import FAILED_CASES
from dlscale.benchmarks.cli.answer_frameworks import answer
from dlscale.benchmarks.cli.formats import format_request, images_of, prepare
from dlscale.benchmarks.cli.plan_table import plan_json
from dlscale.benchmarks.cli.request import Request, Start, data_of, study_of
from dlscale.benchmarks.cli.run_here import campaign_of, run_here, show_campaign
from dlscale.benchmarks.launch.campaign import Campaign
from dlscale.benchmarks.records.preparation import FOLDER as FORMATS_FOLDER
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
