"""`dlscale run` of a study with [tuning]: a search of learning rates for every cell, then the study with them.

Both are studies as any other, with records of their own.
"""

from __future__ import annotations

import json

import click

from dlscale.base.errors import UsageError
from dlscale.base.quantities import format_seconds
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA
from dlscale.benchmarks.cli.plan_table import plan_json, show_plan
from dlscale.benchmarks.cli.request import Request, Start, data_of, study_of
from dlscale.benchmarks.cli.run_here import campaign_of, run_here, show_campaign
from dlscale.benchmarks.launch.campaign import Campaign
from dlscale.benchmarks.study.search import search_of
from dlscale.benchmarks.study.study import Study
from dlscale.benchmarks.study.tuned import TUNED_FILE
from dlscale.benchmarks.systems.system import System


def run_tuned(name: str, study: Study, system: System, request: Request, how: Start) -> int:
    """Search the learning rates of a study and run it with them; returns the exit status. Raises UsageError."""
    if how.in_allocation:
        raise UsageError(f"{study.name} with --in-allocation: its second part needs the results of the first")
    request = request.changed(data=data_of(system, request))
    search = campaign_of(search_of(study), system, request)
    comparison = campaign_of(study.model_copy(update={"tuning": None}), system, request)
    if not how.start:
        todo = search.todo(search.store.summaries())
        if how.as_json:
            parts = [plan_json(search.plan, todo), plan_json(comparison.plan, comparison.plan.launches)]
            click.echo(json.dumps({"schema": 1, "rows": [row for part in parts for row in part["rows"]]}))
            return 0
        show_campaign(search, todo)
        click.echo("then, with the rates that are found:")
        show_plan(comparison.plan, comparison.plan.launches)
        click.echo(_estimate(search, comparison))
        return 0
    click.echo(_estimate(search, comparison))
    status = run_here(search, request)
    if status == FAILED_CASES:
        click.echo(
            "not compared: trainings of the search failed; the same command tries them again", err=True
        )
        return status
    path = search.store.folder / TUNED_FILE
    if not path.is_file():
        return status or INSUFFICIENT_DATA
    with_rates = request.changed(
        without=("tuning", "target.learning_rate"), fields={"target.tuned": str(path)}
    )
    tuned = study_of(name, system, with_rates).model_copy(update={"tuning": None})
    return run_here(campaign_of(tuned, system, request), request)


def _estimate(search: Campaign, comparison: Campaign) -> str:
    """About how long both take, of what is not there yet."""
    left = search.plan.seconds(search.todo(search.store.summaries()))
    later = comparison.plan.seconds(comparison.plan.launches)
    return (
        f"learning rates: about {format_seconds(left)}; the comparison: about {format_seconds(later)}; trainings that "
        "miss the target take longer"
    )
