"""What emulated hosts have measured, for predictions to be held to: results/reference/emulated.json.

`make validate-emulated` runs the studies and writes the file, from their records. It has what a prediction needs, the
profiles of one host and the exchanges between some, and what it is compared with, the steps of trainings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    TypeAdapter,
    ValidationError,
)

from dlscale.analysis.findings.communication_only import communication_only
from dlscale.analysis.launches import launches_of
from dlscale.analysis.message_sizes.measurements import slowest_by_point
from dlscale.analysis.predict.measured_profiles import profile_of
from dlscale.analysis.predict.profile import Profile
from dlscale.base.definitions import Frozen
from dlscale.base.errors import UsageError
from dlscale.base.files import read_regular
from dlscale.benchmarks.records.cell import Setting
from dlscale.benchmarks.records.message_sizes import MessageSizeLaunch
from dlscale.benchmarks.records.record import Record
from dlscale.collectives import NAMES

FILE = Path(__file__).resolve().parents[2] / "results" / "reference" / "emulated.json"
QUANTILES = (0.05, 0.5, 0.95)
_MICROSECONDS = 6  # digits after the point of seconds
SAME = {"framework": "torch", "evidence": "emulated"}
_PROFILE = TypeAdapter(Profile)


class BucketTime(Frozen):
    """The exchange of `num_bytes`, which a step of `workload` has `count` of; None: of a message-size benchmark."""

    backend: str
    workload: str | None
    num_nodes: PositiveInt
    num_bytes: PositiveInt
    count: PositiveInt = 1
    num_launches: PositiveInt
    seconds: PositiveFloat  # of one, median over launches


class StepTime(Frozen):
    """The seconds of a training's steps, or why there are none."""

    workload: str
    backend: str
    backend_options: dict[str, Setting]
    num_nodes: PositiveInt  # of workers
    num_servers: NonNegativeInt
    seconds: list[list[PositiveFloat]]  # of each launch, the slowest rank's in each window
    failures: list[str]  # of launches that gave none
    foreign_cpu: list[float]  # of each launch, the share of its cores' time that other programs took

    @property
    def center(self) -> float:
        """The median over launches of each one's median."""
        return float(np.median([np.median(launch) for launch in self.seconds]))

    @property
    def quantiles(self) -> tuple[float, float]:
        """5 and 95 % of all windows."""
        low, _, high = np.quantile(np.concatenate(self.seconds), QUANTILES).tolist()
        return low, high


class MeasuredHosts(Frozen):
    """The file. Rates are in bytes per second of one direction."""

    date: str
    commit: str
    versions: dict[str, str]
    node: dict[str, Setting]
    system: str
    link_bytes_per_second: PositiveFloat  # headers included
    load: list[NonNegativeFloat]  # averages over the minute before each launch, ascending
    profiles: list[dict[str, Any]]  # `profile.Profile` of one host, but for what is the same of all
    buckets: list[BucketTime]
    steps: list[StepTime]

    def profile(self, workload: str) -> Profile:
        """The profile of a workload. Raises UsageError if there is none."""
        for found in self.profiles:
            if found["workload"] == workload:
                return _PROFILE.validate_python(found | SAME)
        raise UsageError(f"{FILE.name} has no profile of {workload}; run make validate-emulated")


def load_measured(path: Path = FILE) -> MeasuredHosts:
    """The file's content. Raises UsageError if it is missing or damaged."""
    try:
        return MeasuredHosts.model_validate_json(read_regular(path))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; run make validate-emulated") from None
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, problem["loc"])) or "top level"
        raise UsageError(f"{path}: {where}: {problem['msg']}; run make validate-emulated") from None


def measured_hosts(
    studies: Sequence[Sequence[Record]], runs: Sequence[MessageSizeLaunch], *, date: str
) -> MeasuredHosts:
    """The file of these studies' records, and of launches of `dlscale collectives` on the same hosts.

    Raises UsageError without a good record, and for what `profile_of` refuses.
    """
    records = [record for study in studies for record in study]
    good = [record for record in records if record.good]
    if not good:
        raise UsageError("no launch on emulated hosts is good; look into the records' failures")
    last = max(good, key=lambda record: record.started_at)
    profiled = dict.fromkeys(
        record.case.cell.workload for record in good if record.case.cell.control == "profile"
    )
    loads = [node.load_before for record in good for node in record.nodes[:1] if node.load_before is not None]
    fabric = last.configuration.fabric if last.configuration else {}
    return MeasuredHosts(
        date=date,
        commit=last.fingerprint.commit,
        versions=last.fingerprint.versions,
        node=last.fingerprint.node,
        system=last.system,
        link_bytes_per_second=float(fabric["bandwidth"]),
        load=sorted(round(load, 2) for load in loads),
        profiles=[_profile(records, workload) for workload in profiled],
        buckets=[*(bucket for study in studies for bucket in _buckets(study)), *_buckets_of_runs(runs)],
        steps=[step for study in studies for step in _steps(study)],
    )


def _profile(records: Sequence[Record], workload: str) -> dict[str, Any]:
    found = asdict(profile_of(records, workload, "torch"))
    known = ("workload", "preset", "local_batch", "forward_seconds", "backward_seconds", "update_seconds")
    return {name: _all_rounded(found[name]) for name in (*known, "gradients", "step_seconds", "source")}


def _all_rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _all_rounded(own) for name, own in value.items()}
    if isinstance(value, list | tuple):
        return [_all_rounded(own) for own in value]
    return _rounded(value) if isinstance(value, float) else value


def _buckets(records: Iterable[Record]) -> Iterator[BucketTime]:
    for found in communication_only(launches_of(record for record in records if record.good)):
        for size in found.sizes:
            yield BucketTime(
                backend=found.cell.backend,
                workload=found.cell.workload,
                num_nodes=found.cell.num_nodes,
                num_bytes=size.num_bytes,
                count=size.count,
                num_launches=size.seconds.n,
                seconds=_rounded(size.seconds.center),
            )


def _buckets_of_runs(runs: Iterable[MessageSizeLaunch]) -> Iterator[BucketTime]:
    times: dict[tuple[str, int, int], list[float]] = {}
    for launch in (launch for launch in runs if launch.purpose == "measured"):
        for (operation, point), calls in slowest_by_point(launch).items():
            if operation in NAMES and point.collective == "allreduce":
                key = (operation, launch.num_nodes, point.message_bytes)
                times.setdefault(key, []).append(float(np.median(calls)))
    for (backend, num_nodes, num_bytes), seconds in sorted(times.items()):
        yield BucketTime(
            backend=backend,
            workload=None,
            num_nodes=num_nodes,
            num_bytes=num_bytes,
            num_launches=len(seconds),
            seconds=_rounded(float(np.median(seconds))),
        )


def _steps(records: Sequence[Record]) -> Iterator[StepTime]:
    for launches in launches_of(records):
        if launches.cell.control != "train":
            continue
        cell = launches.cell
        shares = [case.record.foreign_cpu for case in launches.good]
        yield StepTime(
            workload=cell.workload,
            backend=cell.backend,
            backend_options=cell.backend_options,
            num_nodes=cell.num_ranks,  # one on each
            num_servers=cell.num_servers,
            seconds=[[_rounded(seconds) for seconds in case.seconds.tolist()] for case in launches.good],
            failures=[
                " ".join(case.record.failure.message.split())
                for case in launches.cases
                if case.record.failure
            ],
            foreign_cpu=[round(share, 3) for share in shares if share is not None],
        )


def _rounded(seconds: float) -> float:
    return round(seconds, _MICROSECONDS)
