"""`dlscale compare-algorithms`: a search of learning rates for every cell of a study, then the study with them.

Both are studies as any other, with records of their own.
"""

from __future__ import annotations

from typing import Any

import click

from dlscale.base.errors import UsageError
from dlscale.base.quantities import format_seconds
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA
from dlscale.benchmarks.cli.options import data_of, start_options, study_of, study_options, system_of
from dlscale.benchmarks.cli.plan_table import show_plan
from dlscale.benchmarks.cli.run import campaign_of, run_here, seconds_of_wait, show_campaign
from dlscale.benchmarks.cli.tune import rate_options, search_of
from dlscale.benchmarks.launch.campaign import Campaign
from dlscale.benchmarks.launch.supervisor import interrupt_on_signals
from dlscale.benchmarks.study.tuned import TUNED_FILE
from dlscale.benchmarks.systems.system import System

STUDY = "algorithms"
NUM_TUNING_SEEDS = 2


@click.command("compare-algorithms")
@click.argument("study", default=STUDY)
@rate_options
@click.option(
    "--tuning-launches",
    type=click.IntRange(min=1),
    default=NUM_TUNING_SEEDS,
    show_default=True,
    help="Trainings at each rate of the search; --launches are those of the comparison.",
)
@study_options
@start_options
def compare_algorithms(
    study: str,
    learning_rates: list[float] | None,
    num_rates: int | None,
    tuning_launches: int,
    dry_run: bool,
    in_allocation: bool,
    wait_quiet: str | None,
    **options: Any,
) -> int:
    """Compare the algorithms of STUDY (default: algorithms), each with the learning rate that suits it best.

    First every cell (backend, algorithm and their options) is trained at every rate of its grid, with as many seeds
    and at most as many samples (dlscale tune); then all cells are trained to the target with the rates that were
    found, on other seeds. Table, page and figure have time to solution, samples needed, samples/s and staleness of
    each, and its speed-up over synchronous SGD. The same command resumes it.

    \b
    Examples:
      dlscale compare-algorithms --dry-run
      dlscale compare-algorithms
      dlscale compare-algorithms --backends ring,mpi_ps --algorithms sync,easgd --num-rates 2 --tuning-launches 1
    """  # noqa: D301
    system = system_of(options)
    if system.has_jobs or in_allocation:
        raise UsageError(
            f"compare-algorithms on {system.name}: its second part needs the results of the first; submit "
            f"dlscale tune {study}, and then dlscale run {study} --tuned FILE"
        )
    wait_seconds = seconds_of_wait(wait_quiet)
    options |= {"data": data_of(system, options)}
    search, comparison = _campaigns(
        study,
        system,
        options,
        learning_rates=learning_rates,
        num_rates=num_rates,
        tuning_launches=tuning_launches,
    )
    if dry_run:
        show_campaign(search, search.todo(search.store.summaries()), commands=False)
        click.echo("then, with the rates that are found:")
        show_plan(comparison.plan, comparison.plan.launches)
        click.echo(_estimate(search, comparison))
        return 0
    interrupt_on_signals()
    click.echo(_estimate(search, comparison))
    status = run_here(search, data=options["data"], wait_seconds=wait_seconds)
    if status == FAILED_CASES:
        click.echo(
            "not compared: trainings of the search failed; the same command tries them again", err=True
        )
        return status
    path = search.store.folder / TUNED_FILE
    if not path.is_file():
        return status or INSUFFICIENT_DATA
    tuned = study_of(study, system, options | {"tuned": path, "learning_rate": None})
    return run_here(campaign_of(tuned, system, options), data=options["data"], wait_seconds=wait_seconds)


def _campaigns(
    study: str,
    system: System,
    options: dict[str, Any],
    *,
    learning_rates: list[float] | None,
    num_rates: int | None,
    tuning_launches: int,
) -> tuple[Campaign, Campaign]:
    """The search, and the comparison as it would be without one, of which only the plan is of use."""
    asked, fields = search_of(
        study,
        options | {"launches": tuning_launches},
        learning_rates=learning_rates,
        num_rates=num_rates,
        all_backends=True,
    )
    search = campaign_of(study_of(study, system, asked, **fields), system, asked)
    return search, campaign_of(study_of(study, system, options), system, options)


def _estimate(search: Campaign, comparison: Campaign) -> str:
    """About how long both take, of what is not there yet."""
    left = search.plan.seconds(search.todo(search.store.summaries()))
    later = comparison.plan.seconds(comparison.plan.launches)
    return (
        f"learning rates: about {format_seconds(left)}; the comparison: about {format_seconds(later)}; trainings that "
        "miss the target take longer"
    )
