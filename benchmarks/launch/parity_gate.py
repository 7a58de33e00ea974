"""Asks an environment's own Python for the parity of two frameworks, and keeps the answer with the study."""

from __future__ import annotations

import subprocess

from dlscale.base.errors import UsageError
from dlscale.base.files import write_atomically
from dlscale.benchmarks.launch import asking
from dlscale.benchmarks.launch.campaign import Campaign
from dlscale.benchmarks.rank.parity import ParityRequest
from dlscale.benchmarks.records.files import PARITIES, load_parity
from dlscale.benchmarks.records.record import Parity
from dlscale.benchmarks.systems.system import Installation
from dlscale.models.frameworks import FRAMEWORKS

LIMIT_SECONDS = 1800


def ask(installation: Installation, request: ParityRequest) -> list[Parity]:
    """The verdict on each workload, from a process of its own: a framework's threads cannot be changed later.

    Raises UsageError if the process fails, with the last line of its output.
    """
    try:
        return asking.ask(
            installation.python,
            "benchmarks.rank.parity",
            request.model_dump_json(),
            answer=Parity,
            num_answers=len(request.workloads),
            variables=installation.variables,
            limit_seconds=LIMIT_SECONDS,
            num_threads=1,
        )
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"the parity gate of {', '.join(request.workloads)} was not done after {LIMIT_SECONDS / 60:.0f} minutes; "
            "compare a smaller preset with `dlscale check parity`, or one framework at a time"
        ) from None
    except asking.NoAnswerError as error:
        raise UsageError(
            f"the parity gate of {', '.join(request.workloads)} could not be run: {error}; "
            "`dlscale doctor` says what is missing"
        ) from None


def missing(campaign: Campaign) -> list[ParityRequest]:
    """What the gate still has to check of a study: the workloads that train in several of its frameworks."""
    study = campaign.plan.study
    known = {
        (parity.workload, parity.preset, parity.precision, frozenset(parity.num_parameters))
        for parity in load_parity(campaign.store.folder)
    }
    first, *others = sorted(study.frameworks, key=FRAMEWORKS.index)
    wanted = [
        ParityRequest(
            workloads=[workload.name],
            preset=workload.preset(study.preset).name,
            precision=precision,
            frameworks=(first, other),
        )
        for workload in map(study.facts, study.workloads)
        for other in others
        if {first, other} <= set(workload.frameworks)
        for precision in dict.fromkeys(variant.precision for variant in study.variants("none"))
    ]
    return [
        request
        for request in wanted
        if (request.workloads[0], request.preset, request.precision, frozenset(request.frameworks))
        not in known
    ]


def keep(campaign: Campaign, verdicts: list[Parity]) -> None:
    """Add verdicts to those in the study's folder."""
    together = [*load_parity(campaign.store.folder), *verdicts]
    write_atomically(campaign.store.parity_path, PARITIES.dump_json(together, indent=1).decode())
