"""A study on this machine: its launches one after the other, with their progress, and the screen about it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
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


def run_here(campaign: Campaign, facts: Mapping[str, Any]) -> int:
    """Run what is left of a campaign, print one screen about the study and draw figures; study.json has the `facts`.

    A line says which launch runs, and the time left; each launch has a line where none can be drawn again.
    """
    plan, console = campaign.plan, Console()
    paces: list[float] = []  # seconds over planned seconds of what has ended
    with open_campaign(campaign, facts) as launches:
        say_plan(campaign, launches)
        say(f"records: {campaign.store.folder}")
        planned = [plan.seconds([launch]) for launch in launches]
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
                    f"{launch.cases[0].block % plan.num_launches + 1}/{plan.num_launches}: {label}, "
                    f"{plural(cell.num_ranks, 'rank')}",
                    no_wrap=True,
                    overflow="ellipsis",
                )
                status.update(line) if status else console.print(line, soft_wrap=True)
                begin = time.monotonic()
                failures = {record.case.id: record.failure for record in campaign.run(launch)}
                paces.append((time.monotonic() - begin) / planned[number])
                for case, failure in failures.items():
                    if failure:
                        console.print(Text(f"failed: {case}: {failure.message}"), soft_wrap=True)
    from dlscale.benchmarks.cli.report import show_study

    ended = show_study(campaign.store)
    if campaign.todo() or ended == FAILED_CASES:
        return FAILED_CASES
    # No training reached its target; a short study without intervals is no failure of `run`.
    return INSUFFICIENT_DATA if ended == INSUFFICIENT_DATA and plan.study.target else 0
