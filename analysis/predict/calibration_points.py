"""The exchanges that a machine has measured, as points of a calibration: control `exchange`, and collectives runs.

A backend's exchange of n bytes is taken for the algorithm that predictions give it (`backend_rules`). Networks differ
between backends, whose software is a part of a message's latency: points of one backend make one calibration.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from dlscale.analysis.findings.communication_only import EXCHANGE_CONTROL, communication_only
from dlscale.analysis.launches import launches_of
from dlscale.analysis.message_sizes.measurements import slowest_by_point
from dlscale.analysis.predict.backend_rules import rule_of
from dlscale.analysis.predict.calibrate import CalibrationPoint
from dlscale.analysis.predict.engine import NetworkExchange
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.message_sizes import MessageSizeLaunch
from dlscale.benchmarks.records.record import Cell, Record

RUN_MODE = "fresh"  # as gradients are when they are exchanged
MIN_CALLS = 20  # of a launch, for how they spread


def points_of_study(
    records: Iterable[Record], backend: str, *, fingerprint: str | None = None
) -> list[CalibrationPoint]:
    """A point per size of bucket and cell of a backend's control `exchange` between nodes.

    `fingerprint` is that of the profile which is predicted with. Raises UsageError if there is none, if its launches
    failed, or if they are of other code or machines than that or each other.
    """
    records = [
        record
        for record in records
        if (record.case.cell.control, record.case.cell.backend) == (EXCHANGE_CONTROL, backend)
    ]
    if not records:
        raise UsageError(
            f"calibration of {backend}: the study has no exchange of it; run one with --backends {backend} and "
            "--controls exchange"
        )
    good = [record for record in records if record.good]
    if not good:
        failure = records[0].failure
        raise UsageError(
            f"calibration of {backend}: none of {len(records)} exchanges is good "
            f"({failure.message if failure else 'no reason is known'}); run the study again"
        )
    digests = sorted(
        {record.fingerprint.digest for record in good} | ({fingerprint} if fingerprint else set())
    )
    if len(digests) > 1:
        raise UsageError(
            f"calibration of {backend}: fingerprints {', '.join(digests)} differ: code, versions or node changed; "
            "calibrate with a study of the same"
        )
    if len(systems := sorted({record.system for record in good})) > 1:
        raise UsageError(
            f"calibration of {backend}: records of {', '.join(systems)}; give a study of one system"
        )
    found = communication_only(launches_of(good))
    return [
        CalibrationPoint(
            exchange=_exchange(each.cell, size.num_bytes),
            num_bytes=size.num_bytes,
            seconds=size.seconds.center,
        )
        for each in found
        if each.cell.num_nodes > 1
        for size in each.sizes
    ]


def points_of_run(launches: Sequence[MessageSizeLaunch], backend: str) -> list[CalibrationPoint]:
    """A point per size and number of ranks of a backend's allreduce between nodes in `dlscale collectives`.

    The median over launches of each one's median call in mode `fresh`, and of how its calls spread. Raises UsageError
    if there is none, or if several libraries did it.
    """
    measured = [launch for launch in launches if launch.purpose == "measured" and launch.num_nodes > 1]
    times: dict[tuple[int, int, int], list[float]] = {}
    spreads: dict[tuple[int, int, int], list[float]] = {}
    libraries: dict[str, None] = {}
    failures: dict[str, None] = {}
    for launch in measured:
        for (operation, point), calls in slowest_by_point(launch).items():
            if (operation, point.collective, point.mode) == (backend, "allreduce", RUN_MODE):
                libraries[f"{launch.backend} ({launch.setting})"] = None
                key = (launch.num_nodes, launch.num_ranks, point.message_bytes)
                times.setdefault(key, []).append(float(np.median(calls)))
                if len(calls) >= MIN_CALLS:
                    low, high = np.quantile(calls, (0.25, 0.75)).tolist()
                    spreads.setdefault(key, []).append(high - low)
        if launch.failure:
            failures[launch.failure] = None
    if not times:
        why = f" ({next(iter(failures))})" if failures else ""
        raise UsageError(
            f"calibration of {backend}: the run has no allreduce of it between nodes in mode {RUN_MODE}{why}; run "
            f"dlscale collectives with --backends {backend} on 2 nodes or more"
        )
    if len(libraries) > 1:
        raise UsageError(
            f"calibration of {backend}: {', '.join(libraries)} did it in one run; give a run of one of them"
        )
    return [
        CalibrationPoint(
            exchange=NetworkExchange(
                algorithm=rule_of(backend, {}, framework="torch", num_servers=0, spare_core=False).algorithm(
                    num_bytes
                ),
                num_nodes=num_nodes,
                ranks_per_node=-(-num_ranks // num_nodes),
            ),
            num_bytes=num_bytes,
            seconds=float(np.median(seconds)),
            spread=float(np.median(own)) if (own := spreads.get((num_nodes, num_ranks, num_bytes))) else None,
        )
        for (num_nodes, num_ranks, num_bytes), seconds in sorted(times.items())
    ]


def _exchange(cell: Cell, num_bytes: int) -> NetworkExchange:
    rule = rule_of(
        cell.backend,
        cell.backend_options,
        framework=cell.framework,
        num_servers=cell.num_servers,
        spare_core=False,
    )
    return NetworkExchange(
        algorithm=rule.algorithm(num_bytes),
        num_nodes=cell.num_nodes,
        ranks_per_node=-(-cell.num_ranks // cell.num_nodes),
        num_servers=cell.num_servers,
    )
