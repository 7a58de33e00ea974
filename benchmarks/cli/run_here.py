"""A study on this machine: its launches one after the other, with their progress, and the screen about it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from contextlib import nullcontext

from rich.console import Console
from rich.text import Text

from dlscale.base.quantities import format_seconds
from dlscale.base.strings import plural
from dlscale.benchmarks.cli import FAILED_CASES, INSUFFICIENT_DATA
from dlscale.benchmarks.cli.plan_table import say_plan
from dlscale.benchmarks.cli.streams import say
from dlscale.benchmarks.launch.campaign import Campaign, open_campaign
from dlscale.benchmarks.launch.environment import other_load
from dlscale.benchmarks.launch.probe import quota_warning
from dlscale.benchmarks.study.plan import Launch

REFRESHES_PER_SECOND = 1.0  # drawing takes time from ranks that use every core: 0.5 ms


def run_here(campaign: Campaign, data: str | None) -> int:
    """Run what is left of a campaign on this machine, print one screen about the study and draw its figures."""
    with open_campaign(campaign, {"data": data}) as launches:
        say_plan(campaign, launches)
        warnings = [quota_warning(campaign.fingerprint.node)]
        if names := campaign.withheld:
            warnings.append(
                f"launches do not get {', '.join(names)} of this shell; --set NAME=VALUE sets one"
            )
        needed, budget = campaign.plan.seconds(campaign.plan.launches), campaign.plan.study.budget
        if budget and needed > 1.05 * budget:
            warnings.append(f"the study takes at least {format_seconds(needed)}, more than its budget")
        if launches and (load := other_load()):
            warnings.append(f"the machine is busy ({load}): nothing will be claimed of noisy numbers")
        for warning in filter(None, warnings):
            say(f"warning: {warning}")
        say(f"records: {campaign.store.folder}")
        _run_launches(campaign, launches)
    from dlscale.benchmarks.cli.report import show_study

    status = show_study(campaign.store)
    if campaign.planned - campaign.store.finished() or status == FAILED_CASES:
        return FAILED_CASES
    # No training reached its target; a short study without intervals is no failure of `run`.
    return INSUFFICIENT_DATA if status == INSUFFICIENT_DATA and campaign.plan.study.target else 0


def _run_launches(campaign: Campaign, launches: Sequence[Launch]) -> None:
    """Run the launches with a line that says which, and the time left; a line each where none can be drawn again."""
    study, blocks = campaign.plan.study, campaign.plan.num_launches
    planned = [campaign.plan.seconds([launch]) for launch in launches]
    paces: list[float] = []  # seconds over planned seconds, of the launches that have ended
    console = Console()
    drawn = console.is_terminal and not console.is_dumb_terminal
    with console.status("", refresh_per_second=REFRESHES_PER_SECOND) if drawn else nullcontext() as status:
        for number, launch in enumerate(launches):
            cell = launch.cell
            left = statistics.median(paces or [1.0]) * sum(planned[number:])
            label = [cell.workload] * (len(study.workloads) > 1) + [cell.framework] * (
                len(study.frameworks) > 1
            )
            label += [cell.method, *(f"{name}={value}" for name, value in cell.options.items())]
            line = Text(
                f"{number} of {len(launches)} launches, {format_seconds(left)} left; block "
                # Each tier of sizes has blocks of its own.
                f"{launch.cases[0].block % blocks + 1}/{blocks}: {', '.join(label)}, {plural(cell.num_ranks, 'rank')}",
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
