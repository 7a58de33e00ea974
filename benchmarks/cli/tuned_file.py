"""The file of learning rates that a study found: `dlscale run time-to-solution --set target.tuned=FILE`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import click

from dlscale.analysis.findings import tuning
from dlscale.analysis.findings.tuning import RateSearch
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.study_report import Loaded
from dlscale.benchmarks.records.tuning import configuration_of
from dlscale.benchmarks.study.study_file import read_study_file
from dlscale.benchmarks.study.tuned import TUNED_FILE, ClosestRate, Tuned, TunedRate, write_tuned


def put_tuned(loaded: Loaded) -> None:
    """Write the rates that a study found into its folder and print where, or why not; nothing if it tried none."""
    searches = tuning.FINDING.of(loaded.study)
    if not searches:
        return
    path = loaded.folder / TUNED_FILE
    try:
        tuned = _tuned(loaded, searches)
        write_tuned(tuned, path)
    except UsageError as error:
        click.echo(f"no {TUNED_FILE}: {error}", err=True)
        return
    number = (
        f" ({len(tuned.rates)} of {len(searches)} configurations)" if len(tuned.rates) < len(searches) else ""
    )
    click.echo(f"tuned: {path}{number}; use it: dlscale run time-to-solution --set target.tuned={path}")


def _tuned(loaded: Loaded, searches: Sequence[RateSearch]) -> Tuned:
    """What the searches found. Raises UsageError where trainings are missing, or no rate reached the target."""
    if missing := [search.configuration.text for search in searches if not search.complete]:
        raise UsageError(
            f"trainings of {missing[0]} are missing, and every rate is to have the same budget; run the same command "
            "again, which runs the rest"
        )
    cells = [search.tried[0].cell for search in searches]
    # Over one backend a rate is that of all whose updates are the same; over several each has its own.
    exchanging = [cell for cell in cells if cell.backend != "none"]
    by_cell = len({(cell.backend, cell.num_servers, repr(cell.backend_options)) for cell in exchanging}) > 1
    configurations = [configuration_of(cell, by_cell=by_cell) for cell in cells]
    if len({rate.num_planned for search in searches for rate in search.tried}) > 1:
        raise UsageError(
            "configurations had unequal numbers of trainings; tune with dlscale run tuning, which gives all as many"
        )
    study = read_study_file(loaded.folder).study
    target = searches[0].tried[0].target
    if target.max_samples is None:
        raise UsageError(
            "trainings had no limit of samples, so that speed decides; tune with target.max_samples"
        )
    grid = sorted(float(rate) for rate in study.axes["learning_rate"])
    rates, missed = [], []
    for search, configuration in zip(searches, configurations, strict=True):
        own = study.rates_of(configuration.algorithm, configuration.algorithm_options)
        # Scaling keeps the order of rates, and a complete search has trained at all of them.
        if (best := search.best) and best.expected:
            rates.append(
                TunedRate(
                    learning_rate=own[search.tried.index(best)],
                    expected_samples=best.expected.center,
                    num_reached=best.num_reached,
                    configuration=configuration,
                    learning_rates=own if own != grid else [],
                )
            )
        elif (near := search.closest) and near.closest is not None:
            missed.append(
                ClosestRate(
                    learning_rate=own[search.tried.index(near)],
                    closest=near.closest,
                    configuration=configuration,
                )
            )
    if not rates:
        raise UsageError(
            "no rate reached the target; try other learning_rates, more max_samples, or another --target"
        )
    seeds = [seed for search in searches for seed in search.seeds]
    return Tuned(
        study=loaded.folder.name,
        learning_rates=grid,
        num_seeds=searches[0].tried[0].num_planned,
        first_seed=min(seeds),
        last_seed=max(seeds),
        max_samples=target.max_samples,
        max_seconds=target.max_seconds,
        num_trainings=sum(search.num_trainings for search in searches),
        seconds=math.fsum(search.seconds for search in searches),
        rates=rates,
        missed=missed,
    )
