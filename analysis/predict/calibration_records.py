"""What a machine has measured between nodes: exchanges as points of a calibration, steps as the prediction's error.

Exchanges are those of control `exchange` and of `dlscale collectives`. A backend's exchange of n bytes is taken for the
algorithm that predictions give it (`backend_rules`). Networks differ between backends, whose software is a part of a
message's latency: points of one backend make one calibration. They must be of the network that is predicted: of the
same system, real nodes for a real one, and emulated links for as good ones; of the code and versions of the profile;
and with as many ranks on a node.

A calibration fits the exchanges alone. What a training adds to them (ranks that compute more slowly beside an exchange,
what overlaps less than planned) shows only in its steps: on each number of nodes that a study has measured, the step is
predicted, too. The root mean square of log(predicted / measured) is the standard deviation of the model's own error,
which a band beyond the measured sizes has to contain.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dlscale.analysis.findings.communication_only import EXCHANGE_CONTROL, communication_only
from dlscale.analysis.launches import good_launches, launches_of
from dlscale.analysis.predict.backend_rules import (
    ExchangeRule,
    exchanges_by,
    rule_of,
    rule_of_cell,
)
from dlscale.analysis.predict.calibration import CalibrationPoint, calibrated
from dlscale.analysis.predict.exchange import NetworkExchange
from dlscale.analysis.predict.node_calibration import node_line, on_node
from dlscale.analysis.predict.prediction import predict_point
from dlscale.analysis.predict.scenario import Scenario, jitter_text
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.files import load_records
from dlscale.benchmarks.records.message_sizes import (
    CAMPAIGN_FILE,
    MessageSizeLaunch,
    MessageSizeRun,
    load_run,
)
from dlscale.benchmarks.records.record import Record
from dlscale.benchmarks.systems.system import System
from dlscale.collectives.sharding import NONE

# Servers have no exchange among ranks. What links are, another backend over the same sockets or MPI says.
LINKS_OF = {"grpc_ps": "ring", "mpi_ps": "mpi"}
MIN_CALLS = 20  # of a launch, for how they spread

MeasuredStep = tuple[Scenario, int, float]
"""What was trained, on how many nodes, and the seconds of a step."""


def calibrated_scenario(
    scenario: Scenario,
    machine: System,
    folders: Sequence[Path],
    sizes: Sequence[int],
    *,
    fingerprint: str | None,
    force: bool,
) -> Scenario:
    """The scenario on the network that folders of studies and collectives runs calibrate; as it is without an exchange.

    `fingerprint` is that of the profile. Raises UsageError where exchanges are of another machine, code or placement,
    where there are too few, and where the calibration has doubts, unless `force`, which keeps them.
    """
    if not scenario.rule.exchanges:
        return scenario
    backend = scenario.rule.backend
    measured = LINKS_OF.get(backend, backend)
    points: list[CalibrationPoint] = []
    for folder in folders:
        if _is_run(folder):
            campaign, launches = load_run(folder)
            _check_run(campaign, machine, folder.name)
            points += points_of_run(launches, measured)
            continue
        records, _ = load_records(folder)
        points += points_of_study(records, measured, fingerprint=fingerprint)
        for record in (record for record in exchanges_of(records, measured) if record.good):
            check_record(record, machine, folder.name)
            fingerprint = fingerprint or record.fingerprint.digest
    source = ", ".join(folder.name for folder in folders)
    studies = [record for folder in folders if not _is_run(folder) for record in load_records(folder)[0]]
    scenario = on_node(scenario, studies, source=source)
    if scenario.network.within_node and not points:  # the network is as its file says
        return scenario
    source += f" (exchanges of {measured})" if measured != backend else ""
    found = calibrated(
        _placed_alike(points, scenario.ranks_per_node, measured), scenario.network, source=source
    )
    doubts = found.doubts(max(sizes))
    if doubts and not force:
        raise UsageError(
            f"prediction over {backend}: {'; '.join(doubts)}; give fewer --nodes, or --force to see it all the same"
        )
    fitted = replace(
        scenario,
        network=found.network,
        calibrated_nodes=found.largest_nodes,
        held_out_error=found.held_out_error,
        no_jitter=found.no_jitter,
        doubts=doubts,
    )
    return replace(fitted, step_error=step_error(measured_steps(fitted, studies)))


def calibration_line(scenario: Scenario) -> str:
    """What the calibration found, in a sentence or two."""
    within = node_line(scenario)
    if scenario.calibrated_nodes is None:
        return within
    network, error = scenario.network, scenario.held_out_error or 0.0
    not_measured = "not measured: " if network.message_jitter_seconds is None else ""
    steps = (
        f"; steps measured between nodes are {100 * scenario.step_error:.1f} % off, which the band has"
        * bool(scenario.step_error)
    )
    return (
        f"{scenario.rule.backend}, {network.source}: {1e6 * network.latency_seconds:.3g} us per message, "
        f"{network.node_bytes_per_second / 1e9:.3g} GB/s per node; {not_measured}{jitter_text(scenario)}; the largest "
        f"point, held out, is predicted with {100 * error:+.1f} %{steps}" + f"; {within}" * bool(within)
    )


def _is_run(folder: Path) -> bool:
    """Whether it is a run of `dlscale collectives`, and no study."""
    return (folder / CAMPAIGN_FILE).is_file()


def check_record(record: Record, machine: System, study: str) -> None:
    """Raises UsageError for an exchange between other nodes than the machine's."""
    if record.system != machine.name:
        raise UsageError(
            f"calibration from {study}: its exchanges are of {record.system}, not of {machine.name}; give a study of "
            "the system that is predicted"
        )
    if record.evidence == "emulated":
        raise UsageError(
            f"calibration from {study}: its nodes share one machine, so nothing went over the network of "
            f"{machine.name}; give a study on nodes of their own"
        )


def _check_run(campaign: MessageSizeRun, machine: System, run: str) -> None:
    """Raises UsageError for a run on another system; one that names none is not known to be."""
    if campaign.system not in (None, machine.title):
        raise UsageError(
            f"calibration from {run}: its exchanges are of {campaign.system}, not of {machine.title}; give a run on "
            "the system that is predicted"
        )


def _placed_alike(
    points: Sequence[CalibrationPoint], ranks_per_node: int, backend: str
) -> list[CalibrationPoint]:
    """The points with so many ranks on a node. Raises UsageError if all have other numbers."""
    alike = [point for point in points if point.exchange.ranks_per_node == ranks_per_node]
    if points and not alike:
        counts = sorted({point.exchange.ranks_per_node for point in points})
        raise UsageError(
            f"calibration of {backend}: its exchanges have {', '.join(map(str, counts))} ranks per node, the "
            f"prediction {ranks_per_node}; give --set ranks_per_node={counts[0]}, or a study with {ranks_per_node}"
        )
    return alike


def exchanges_of(records: Iterable[Record], backend: str) -> list[Record]:
    """The records of a backend's control `exchange`."""
    kind = (EXCHANGE_CONTROL, backend)
    return [record for record in records if (record.case.cell.control, record.case.cell.backend) == kind]


def points_of_study(
    records: Iterable[Record], backend: str, *, fingerprint: str | None = None
) -> list[CalibrationPoint]:
    """A point per size of bucket and cell of a backend's control `exchange` between nodes.

    `fingerprint` is that of the profile which is predicted with. Raises UsageError if there is none, if its launches
    failed, or if they are of other code, machines or links than that or each other.
    """
    records = exchanges_of(records, backend)
    if not records:
        raise UsageError(
            f"calibration of {backend}: the study has no exchange of it; run one with --backends {backend} and "
            "--set controls=exchange"
        )
    good = [record for record in records if record.good]
    if not good:
        failure = records[0].failure
        raise UsageError(
            f"calibration of {backend}: none of {len(records)} exchanges is good "
            f"({failure.message if failure else 'no reason is known'}); run the study again"
        )
    _check_one_origin(good, backend, fingerprint)
    return [
        _point(
            rule_of_cell(each.cell, spare_core=False),
            size.num_bytes,
            num_nodes=each.cell.num_nodes,
            num_ranks=each.cell.num_ranks,
            num_servers=each.cell.num_servers,
            seconds=size.seconds.center,
        )
        for each in communication_only(launches_of(good))
        if each.cell.num_nodes > 1
        for size in each.sizes
    ]


def _check_one_origin(good: Sequence[Record], backend: str, fingerprint: str | None) -> None:
    """Raises UsageError unless all exchanges are of one code, one machine and one kind of links."""
    digests = {record.fingerprint.digest: record.fingerprint for record in good}
    if len(every := sorted({*digests, *([fingerprint] if fingerprint else [])})) > 1:
        versions = [
            f"{name} {' and '.join(map(str, values))}"
            for name in sorted({name for own in digests.values() for name in own.versions})
            if len(values := list(dict.fromkeys(own.versions.get(name) for own in digests.values()))) > 1
        ]
        what = ", ".join(versions) or "code, versions or node changed"
        raise UsageError(
            f"calibration of {backend}: fingerprints {', '.join(every)} differ: {what}; calibrate with a study of the "
            "same"
        )
    for name, kinds in (
        ("system", {record.system for record in good}),
        ("kind of evidence", {str(record.evidence) for record in good}),
    ):
        if len(kinds) > 1:
            raise UsageError(
                f"calibration of {backend}: records of {', '.join(sorted(kinds))}; give a study of one {name}"
            )


def points_of_run(launches: Sequence[MessageSizeLaunch], backend: str) -> list[CalibrationPoint]:
    """A point per size and number of ranks of a backend's allreduce between nodes in `dlscale collectives`.

    The median over launches of each one's median call, and of how its calls spread. Raises UsageError
    if there is none, or if several libraries did it.
    """
    measured = [launch for launch in launches if launch.purpose == "measured" and launch.num_nodes > 1]
    times: dict[tuple[int, int, int], list[float]] = {}
    spreads: dict[tuple[int, int, int], list[float]] = {}
    libraries: dict[str, None] = {}
    for launch in measured:
        for num_bytes, calls in _slowest_calls(launch, backend).items():
            libraries[f"{launch.backend} ({launch.setting})"] = None
            key = (launch.num_nodes, launch.num_ranks, num_bytes)
            times.setdefault(key, []).append(float(np.median(calls)))
            if len(calls) >= MIN_CALLS:
                low, high = np.quantile(calls, (0.25, 0.75)).tolist()
                spreads.setdefault(key, []).append(high - low)
    if not times:
        why = next((f" ({launch.failure})" for launch in measured if launch.failure), "")
        raise UsageError(
            f"calibration of {backend}: the run has no allreduce of it between nodes{why}; run "
            f"dlscale collectives with --backends {backend} on 2 nodes or more"
        )
    if len(libraries) > 1:
        raise UsageError(
            f"calibration of {backend}: {', '.join(libraries)} did it in one run; give a run of one of them"
        )
    rule = rule_of(backend, {}, framework="torch", num_servers=0, spare_core=False)
    return [
        _point(
            rule,
            num_bytes,
            num_nodes=num_nodes,
            num_ranks=num_ranks,
            seconds=float(np.median(seconds)),
            spread=float(np.median(own)) if (own := spreads.get((num_nodes, num_ranks, num_bytes))) else None,
        )
        for (num_nodes, num_ranks, num_bytes), seconds in sorted(times.items())
    ]


def _slowest_calls(launch: MessageSizeLaunch, operation: str) -> dict[int, np.ndarray]:
    """Seconds of each call of an allreduce on its slowest rank, all rounds together, by message size."""
    rounds: dict[int, list[np.ndarray]] = {}
    for block in launch.samples:
        if (block.operation, block.collective) == (operation, "allreduce"):
            slowest = 1e-9 * np.asarray(block.nanoseconds, np.float64).max(axis=0)
            rounds.setdefault(block.message_bytes, []).append(slowest)
    return {num_bytes: np.concatenate(blocks) for num_bytes, blocks in rounds.items()}


def _point(
    rule: ExchangeRule,
    num_bytes: int,
    *,
    num_nodes: int,
    num_ranks: int,
    num_servers: int = 0,
    seconds: float,
    spread: float | None = None,
) -> CalibrationPoint:
    exchange = NetworkExchange(
        algorithm=rule.algorithm(num_bytes),
        num_nodes=num_nodes,
        ranks_per_node=-(-num_ranks // num_nodes),
        num_servers=num_servers,
    )
    return CalibrationPoint(
        exchange=exchange,
        num_bytes=num_bytes,
        seconds=seconds,
        spread=spread,
        cycle_seconds=rule.cycle_seconds,
    )


def step_error(measured: Iterable[MeasuredStep]) -> float:
    """The root mean square of log(predicted / measured); 0 where nothing was measured."""
    errors = [
        math.log(predict_point(replace(scenario, step_error=0.0), num_nodes).step_seconds.center / seconds)
        for scenario, num_nodes, seconds in measured
    ]
    return math.sqrt(sum(error**2 for error in errors) / len(errors)) if errors else 0.0


def measured_steps(scenario: Scenario, records: Iterable[Record]) -> Iterator[MeasuredStep]:
    """The trainings between nodes that these records have of the scenario, at its batch per rank."""
    records = [record for record in records if record.case.cell.control == "train" and record.good]
    for launches in good_launches(launches_of(records)):
        if _is_of(scenario, launches.cell):
            seconds = float(np.median([case.world for case in launches.cases]))
            yield scenario, launches.cell.num_ranks // scenario.ranks_per_node, seconds


def _is_of(scenario: Scenario, cell: Cell) -> bool:
    profile, rule = scenario.profile, scenario.rule
    per_node = scenario.ranks_per_node
    if cell.num_nodes < 2 or scenario.scaling_mode != "weak" or cell.shard != NONE or cell.split > 1:
        return False
    if (cell.workload, cell.preset, cell.framework, cell.backend, cell.local_batch) != (
        profile.workload,
        profile.preset,
        profile.framework,
        rule.backend,
        scenario.batch,
    ):
        return False
    if cell.num_ranks % per_node or cell.num_nodes != math.ceil(cell.num_processes / per_node):
        return False
    if rule.serves and cell.num_servers != scenario.num_servers(cell.num_ranks):
        return False
    return exchanges_by(rule, cell)
