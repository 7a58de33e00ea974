"""Writing down what a system that is not here would be given."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from dlscale.benchmarks import submission
from dlscale.benchmarks.campaign import Campaign, describe
from dlscale.benchmarks.jobs import JobPlan
from dlscale.models.files import make_folder, write_atomically

FILE = "rehearsal.json"


def write_rehearsal(campaign: Campaign, jobs: Sequence[JobPlan], *, account: str | None) -> None:
    """Scripts, the launches' command lines and the plan, in the campaign's folder. Nothing there is a record."""
    folder = campaign.store.folder
    make_folder(folder)
    rows = []
    for job in jobs:
        text = submission.script(campaign, job, account=account, after=None)
        write_atomically(folder / f"{job.name}.sh", text)
        lines = [shlex.join(campaign.command(launch)) for launch in job.launches]
        write_atomically(folder / f"{job.name}.launches.txt", "\n".join(lines) + "\n")
        rows.append(
            {
                "job": job.name,
                "num_nodes": job.num_nodes,
                "num_launches": len(job.launches),
                "seconds": job.seconds,
                "billed_node_hours": job.billed_node_hours,
            }
        )
    description = describe(campaign) | {"evidence": "nothing was measured", "jobs": rows}
    write_atomically(folder / FILE, json.dumps(description, indent=1))
