"""A study on this machine: its launches one after the other, with their progress, and the screen about it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from rich.console import Console
from rich.text import Text

from dlscale.base.quantities import format_seconds
from dlscale.base.strings import plural
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA
from dlscale.benchmarks.cli.plan_table import say_plan
from dlscale.benchmarks.cli.streams import say
from dlscale.benchmarks.launch.campaign import Campaign, open_campaign
from dlscale.benchmarks.study.plan import Launch


def run_here(campaign: Campaign, facts: Mapping[str, Any]) -> int:
    """Run what is left of a campaign, print one screen about the study and draw figures; study.json has the `facts`."""
    with open_campaign(campaign, facts) as launches:
        say_plan(campaign, launches)
        say(f"records: {campaign.store.folder}")
        _run_launches(campaign, launches)
    from dlscale.benchmarks.cli.report import show_study

    status = show_study(campaign.store)
    if campaign.todo() or status == FAILED_CASES:
        return FAILED_CASES
    # No training reached its target; a short study without intervals is no failure of `run`.
    return INSUFFICIENT_DATA if status == INSUFFICIENT_DATA and campaign.plan.study.target else 0


def _run_launches(campaign: Campaign, launches: Sequence[Launch]) -> None:
    """Run the launches with a line that says which, and the time left; a line each where none can be drawn again."""
    blocks = campaign.plan.num_launches
    planned = [campaign.plan.seconds([launch]) for launch in launches]
    paces: list[float] = []  # seconds over planned seconds, of the launches that have ended
    console = Console()
    drawn = console.is_terminal and not console.is_dumb_terminal
    # Drawing takes time from ranks that use every core: 0.5 ms.
    with console.status("", refresh_per_second=1.0) if drawn else nullcontext() as status:
        for number, launch in enumerate(launches):
            cell = launch.cell
            left = statistics.median(paces or [1.0]) * sum(planned[number:])
            settings = cell.backend_options | cell.algorithm_options
            options = (f"{name}={value}" for name, value in settings.items())
            label = ", ".join([cell.workload, cell.framework, cell.method, *options])
            line = Text(
                f"{number} of {len(launches)} launches, {format_seconds(left)} left; block "
                # Each tier of sizes has blocks of its own.
                f"{launch.cases[0].block % blocks + 1}/{blocks}: {label}, {plural(cell.num_ranks, 'rank')}",
                no_wrap=True,
                overflow="ellipsis",
            )
            status.update(line) if status else console.print(line, soft_wrap=True)
            begin = time.monotonic()
            records = campaign.run(launch)
            paces.append((time.monotonic() - begin) / planned[number])
            for record in records:
                if record.failure:
                    failure = Text(f"failed: {record.case.id}: {record.failure.message}")
                    console.print(failure, soft_wrap=True)
