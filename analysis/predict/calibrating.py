"""A scenario with what a machine has measured: exchanges as points of a calibration, steps as the prediction's error.

A backend's exchange of n bytes is taken for the algorithm that predictions give it (`backends`); points of one backend
make one calibration, as its software is a part of a message's latency. What a training adds to exchanges shows only in
its steps: those that a study has measured between nodes are predicted, too, and the root mean square of log(predicted /
measured) is the standard deviation of the model's own error, which a band beyond the measured sizes has to contain.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from dlscale.analysis.load import Study
from dlscale.analysis.predict import costs, network, prediction
from dlscale.analysis.predict.backends import ExchangeRule, rule_of
from dlscale.analysis.predict.calibration import CalibrationPoint, calibrated
from dlscale.analysis.predict.exchange import NetworkExchange
from dlscale.analysis.predict.scenario import Scenario
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records import message_sizes, store
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.record import Record
from dlscale.benchmarks.systems.system import System
from dlscale.collectives import capabilities
from dlscale.collectives.sharding import NONE

MeasuredStep = tuple[Scenario, int, float]  # on how many nodes, and the seconds of a step


def calibrated_scenario(
    machine: System,
    folders: Sequence[Path],
    scenario: Scenario,
    sizes: Sequence[int],
    *,
    fingerprint: str | None,
) -> Scenario:
    """The scenario on the network that folders of studies and collectives runs calibrate; as it is without an exchange.

    `fingerprint` is that of the profile. Beyond the calibrated range the scenario has doubts. Raises UsageError.
    """
    backend, per_node = scenario.rule.backend, scenario.ranks_per_node
    if not scenario.rule.exchanges:
        return scenario
    row, measured = capabilities(backend), backend
    if row.servers:  # they have no exchange among ranks: another backend says what links are
        measured = row.predicted_as.get(scenario.profile.framework, backend)
    points: list[CalibrationPoint] = []
    records: list[Record] = []
    for folder in folders:
        if (folder / message_sizes.CAMPAIGN_FILE).is_file():
            campaign, launches = message_sizes.load_run(folder)
            found, wanted = campaign.system or machine.title, machine.title
            points += points_of_run(launches, measured)
        else:
            own, _ = store.load_records(folder)
            records += own
            good, wanted = _good_exchanges(own, measured), machine.name
            found = good[0].system
            points += points_of_study(good, measured, fingerprint=fingerprint)
            if good[0].evidence == "emulated":
                found = f"hosts that share one machine, so nothing went over the network of {wanted}"
            fingerprint = fingerprint or good[0].fingerprint.digest
        if found != wanted:
            raise UsageError(
                f"calibration from {folder.name}: its exchanges are of {found}, not of {wanted}; give one of the "
                "system that is predicted"
            )
    source, study = ", ".join(folder.name for folder in folders), Study(records)
    alike = [point for point in points if point.exchange.ranks_per_node == per_node]
    if points and not alike:
        counts = sorted({point.exchange.ranks_per_node for point in points})
        raise UsageError(
            f"calibration of {measured}: its exchanges have {', '.join(map(str, counts))} ranks per node, the "
            f"prediction {per_node}; give --set ranks_per_node={counts[0]}, or a study with {per_node}"
        )
    source += f" (exchanges of {measured})" if measured != backend else ""
    calibration = calibrated(alike, scenario.network, source=source)
    fitted = replace(scenario, network=calibration.network, doubts=calibration.doubts(max(sizes)))
    error = step_error(measured_steps(fitted, study))
    value, what = f"{100 * error:.1f} %, in the band", f"error of steps over {backend}"
    origin = network.input_of(what, value, "measured", source)
    return replace(fitted, step_error=error, assumed=(*fitted.assumed, origin)) if error else fitted


def _good_exchanges(records: Iterable[Record], backend: str) -> list[Record]:
    """The good records of a backend's control `exchange`, at least one. Raises UsageError."""
    kind = ("exchange", backend)
    own = [record for record in records if (record.case.cell.control, record.case.cell.backend) == kind]
    good = [record for record in own if record.good]
    if not own:
        raise UsageError(
            f"calibration of {backend}: the study has no exchange of it; run one with --backends {backend} and "
            "--set controls=exchange"
        )
    if not good:
        why = own[0].failure.message if own[0].failure else "no reason is known"
        raise UsageError(
            f"calibration of {backend}: none of {len(own)} exchanges is good ({why}); run the study again"
        )
    return good


def points_of_study(
    good: Sequence[Record], backend: str, *, fingerprint: str | None = None
) -> list[CalibrationPoint]:
    """A point per size of bucket and cell of a backend's exchanges between nodes.

    Raises UsageError if they are of other code, machines or links than each other or the profile's `fingerprint`.
    """
    kinds = {
        "fingerprint": {record.fingerprint.digest for record in good} | {fingerprint or ""} - {""},
        "system": {record.system for record in good},
        "kind of evidence": {str(record.evidence) for record in good},
    }
    for name, values in kinds.items():
        if len(values) > 1:
            raise UsageError(
                f"calibration of {backend}: its exchanges, and the profile, are of more than one {name} "
                f"({', '.join(sorted(values))}); calibrate with a study of one"
            )
    return [
        _point(rule_of_cell(cell), num_bytes, cell.num_nodes, cell.num_ranks, seconds)
        for cell, num_bytes, seconds in bucket_times(Study(good))
        if cell.num_nodes > 1
    ]


def bucket_times(study: Study) -> Iterator[tuple[Cell, int, float]]:
    """The cell, bytes and seconds of the buckets of each size of control `exchange`.

    A launch's value is the slowest rank's mean of one bucket of that size, median over its windows; of launches the
    median, but of those with other buckets than most.
    """
    good = study.good[(study.good["control"] == "exchange") & (study.good["num_ranks"] > 1)]
    for _, launches in good.groupby("cell", sort=False):
        records = [study.records[number] for number in launches["number"]]
        timed = [(tuple(it.bucket_bytes), own) for it in records if (own := _bucket_seconds(it)) is not None]
        if not timed:
            continue
        buckets = Counter(cut for cut, _ in timed).most_common(1)[0][0]
        for size in sorted(set(buckets)):
            is_so = np.array(buckets) == size
            each = [
                np.median(times[:, :, is_so].mean(axis=2).max(axis=1))
                for cut, times in timed
                if cut == buckets
            ]
            yield records[0].case.cell, size, float(np.median(each))


def _bucket_seconds(record: Record) -> costs.Floats | None:
    """[W][P][buckets] seconds per step of each bucket; None unless all ranks have valid times of all of them."""
    windows, num_buckets = record.counted, len(record.bucket_bytes)
    each = windows.bucket_seconds
    if each is None or each.shape[2] != num_buckets or not (each.size and (each > 0).all()):
        return None
    return np.asarray(each / windows.num_steps[:, None, None])


def points_of_run(
    launches: Sequence[message_sizes.MessageSizeLaunch], backend: str
) -> list[CalibrationPoint]:
    """A point per size and number of ranks of a backend's allreduce between nodes in `dlscale collectives`.

    The median over launches of each one's median call. Raises UsageError if there is none, or of several libraries.
    """
    measured = [launch for launch in launches if launch.purpose == "measured" and launch.num_nodes > 1]
    rows = []
    for launch in measured:
        calls: dict[int, list[float]] = defaultdict(list)  # by bytes, on the slowest rank
        for block in launch.samples:
            if (block.operation, block.collective) == (backend, "allreduce"):
                calls[block.message_bytes] += (1e-9 * np.max(block.nanoseconds, axis=0)).tolist()
        for num_bytes, seconds in calls.items():
            library = f"{launch.backend} ({launch.setting})"
            rows.append((library, launch.num_nodes, launch.num_ranks, num_bytes, np.median(seconds)))
    names = ["library", "num_nodes", "num_ranks", "num_bytes", "seconds"]
    frame = pd.DataFrame(rows, columns=names)
    if not rows:
        why = next((f" ({launch.failure})" for launch in measured if launch.failure), "")
        raise UsageError(
            f"calibration of {backend}: the run has no allreduce of it between nodes{why}; run "
            f"dlscale collectives with --backends {backend} on 2 nodes or more"
        )
    if frame["library"].nunique() > 1:
        raise UsageError(
            f"calibration of {backend}: {', '.join(frame['library'].unique())} did it in one run; give a run of one of "
            "them"
        )
    rule = rule_of(backend, {}, framework="torch", num_servers=0, spare_core=False)
    medians = frame.groupby(names[1:4])["seconds"].median()
    return [_point(rule, size, nodes, ranks, seconds) for (nodes, ranks, size), seconds in medians.items()]


def _point(
    rule: ExchangeRule, num_bytes: int, num_nodes: int, num_ranks: int, seconds: float
) -> CalibrationPoint:
    exchange = NetworkExchange(
        algorithm=rule.algorithm(num_bytes), num_nodes=num_nodes, ranks_per_node=-(-num_ranks // num_nodes)
    )
    return CalibrationPoint(
        exchange=exchange, num_bytes=num_bytes, seconds=seconds, cycle_seconds=rule.cycle_seconds
    )


def rule_of_cell(cell: Cell, *, spare_core: bool = False) -> ExchangeRule:
    """The rule of a measured cell. Raises UsageError as `rule_of`."""
    return rule_of(
        cell.backend,
        cell.backend_options,
        framework=cell.framework,
        num_servers=cell.num_servers,
        spare_core=spare_core,
    )


def step_error(measured: Iterable[MeasuredStep]) -> float:
    """The root mean square of log(predicted / measured); 0 where nothing was measured."""
    errors = [
        math.log(
            prediction.predict_point(replace(scenario, step_error=0.0), num_nodes).step_seconds.center
            / seconds
        )
        for scenario, num_nodes, seconds in measured
    ]
    return math.sqrt(sum(error**2 for error in errors) / len(errors)) if errors else 0.0


def measured_steps(scenario: Scenario, study: Study) -> Iterator[MeasuredStep]:
    """The trainings between nodes that a study has of the scenario, at its batch per rank."""
    per_node, profile, good = scenario.ranks_per_node, scenario.profile, study.good
    if scenario.scaling_mode != "weak":
        return
    wanted = {name: getattr(profile, name) for name in ("workload", "preset", "framework")}
    wanted |= {"control": "train", "shard": NONE, "split": 1, "local_batch": scenario.batch}
    for name, value in wanted.items():
        good = good[good[name] == value]
    for _, launches in good[good["num_nodes"] > 1].groupby("cell", sort=False):
        cell = study.records[launches["number"].iloc[0]].case.cell
        servers = cell.num_servers if scenario.rule.serves else scenario.num_servers(cell.num_ranks)
        if (
            _exchanges_by(scenario.rule, cell)
            and cell.num_ranks % per_node == 0
            and cell.num_nodes == math.ceil(cell.num_processes / per_node)
            and servers == scenario.num_servers(cell.num_ranks)
        ):
            yield scenario, cell.num_ranks // per_node, float(launches["step_seconds"].median())


def _exchanges_by(rule: ExchangeRule, cell: Cell) -> bool:
    """Whether a measured cell exchanges by this rule; not with options that are not modelled."""
    try:
        return rule_of_cell(cell, spare_core=rule.overlap == "thread") == rule
    except UsageError:
        return False
