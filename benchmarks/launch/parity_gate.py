"""Asks an environment's own Python for the parity of two frameworks, and keeps the answer with the study."""

from __future__ import annotations

import os
import signal
import subprocess
from functools import partial

from pydantic import ValidationError

from dlscale.base.errors import UsageError
from dlscale.base.files import write_atomically
from dlscale.base.redaction import redact
from dlscale.benchmarks.launch.campaign import QUIET, Campaign
from dlscale.benchmarks.launch.supervisor import end_with_parent
from dlscale.benchmarks.rank.parity import ParityRequest
from dlscale.benchmarks.records.files import PARITIES, load_parity
from dlscale.benchmarks.records.record import Parity
from dlscale.benchmarks.systems.system import Installation
from dlscale.models.frameworks import KNOWN

LIMIT_SECONDS = 1800


def ask(installation: Installation, request: ParityRequest) -> list[Parity]:
    """The verdict on each workload, from a process of its own: a framework's threads cannot be changed later.

    Raises UsageError if the process fails, with the last line of its output.
    """
    try:
        done = subprocess.run(
            [str(installation.python), "-m", "dlscale.benchmarks.rank.parity", request.model_dump_json()],
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_SECONDS,
            env={**os.environ, **installation.variables, **QUIET, "OMP_NUM_THREADS": "1"},
            preexec_fn=partial(end_with_parent, signal.SIGKILL),
        )
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"the parity gate of {', '.join(request.workloads)} was not done after {LIMIT_SECONDS / 60:.0f} minutes; "
            "compare a smaller preset with `dlscale check parity`, or one framework at a time"
        ) from None
    try:
        verdicts = [
            Parity.model_validate_json(line) for line in done.stdout.splitlines() if line.startswith("{")
        ]
    except ValidationError:
        verdicts = []
    if done.returncode or len(verdicts) != len(request.workloads):
        reason = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise UsageError(
            f"the parity gate of {', '.join(request.workloads)} could not be run: {redact(reason)}; "
            "`dlscale doctor` says what is missing"
        )
    return verdicts


def missing(campaign: Campaign) -> list[ParityRequest]:
    """What the gate still has to check of a study: the workloads that train in several of its frameworks."""
    study = campaign.plan.study
    known = {
        (parity.workload, parity.preset, parity.precision, frozenset(parity.num_parameters))
        for parity in load_parity(campaign.store.folder)
    }
    first, *others = sorted(study.frameworks, key=KNOWN.index)
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
