"""A network as a machine's own exchanges calibrate it, and what such a prediction is not to be trusted with.

A network is calibrated for each backend, whose software is a part of a message's latency: by the control `exchange` of
studies, and by runs of `dlscale collectives`. Servers have no such exchange: the ring's, or MPI's, says what links are.
Exchanges must be of the network that is predicted: of the same system, real nodes for a real one, and emulated links
for as good ones; of the code and versions of the profile; and with as many ranks on a node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dlscale.analysis.predict.calibration import CalibrationPoint, calibrated
from dlscale.analysis.predict.calibration_records import (
    LINKS_OF,
    exchanges_of,
    measured_steps,
    points_of_run,
    points_of_study,
    step_error,
)
from dlscale.analysis.predict.scenario import Scenario, jitter_text
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.options import named_folder
from dlscale.benchmarks.launch.configuration import stated_emulation, stated_fabric
from dlscale.benchmarks.records.files import load_records
from dlscale.benchmarks.records.message_sizes import CAMPAIGN_FILE, MessageSizeRun, latest_run, load_run
from dlscale.benchmarks.records.record import Record, Setting
from dlscale.benchmarks.systems.system import System

LATEST_RUN = "collectives"


def calibration_folders(results: Path, names: Sequence[str]) -> list[Path]:
    """The folders of studies and of collectives runs, by path or name; `collectives` is the latest run.

    Raises UsageError for what is neither.
    """
    return [_folder(results, name) for name in names]


def _folder(results: Path, name: str) -> Path:
    if name == LATEST_RUN:
        return latest_run(results)
    for folder in (Path(name), results / LATEST_RUN / name):
        if (folder / CAMPAIGN_FILE).is_file():
            return folder
    return named_folder(results, name)


def calibrated_scenario(
    scenario: Scenario,
    machine: System,
    folders: Sequence[Path],
    sizes: Sequence[int],
    *,
    profiled: Path | None,
    force: bool,
) -> Scenario:
    """The scenario on the network that `calibration_folders` calibrate; as it is without an exchange.

    `profiled` is the study of the profile, whose code and machine those of studies must be. Raises UsageError where
    exchanges are of another machine, code or placement, where there are too few, and where the calibration has doubts,
    unless `force`, which keeps them.
    """
    if not scenario.rule.exchanges:
        return scenario
    backend = scenario.rule.backend
    links = LINKS_OF.get(backend, backend)
    fingerprint = _fingerprint(profiled)
    points: list[CalibrationPoint] = []
    for folder in folders:
        own, fingerprint = _points(folder, machine, links, fingerprint)
        points += own
    source = ", ".join(folder.name for folder in folders)
    source += f" (exchanges of {links})" if links != backend else ""
    found = calibrated(_placed_alike(points, scenario.ranks_per_node, links), scenario.network, source=source)
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
    studies = [folder for folder in folders if not (folder / CAMPAIGN_FILE).is_file()]
    steps = [step for folder in studies for step in measured_steps(fitted, load_records(folder)[0])]
    return replace(fitted, step_error=step_error(steps))


def calibration_line(scenario: Scenario) -> str:
    """What the calibration found, in a sentence."""
    network, error = scenario.network, scenario.held_out_error or 0.0
    not_measured = "not measured: " if network.message_jitter_seconds is None else ""
    steps = (
        f"; steps measured between nodes are {100 * scenario.step_error:.1f} % off, which the band has"
        * bool(scenario.step_error)
    )
    return (
        f"{scenario.rule.backend}, {network.source}: {1e6 * network.latency_seconds:.3g} us per message, "
        f"{network.node_bytes_per_second / 1e9:.3g} GB/s per node; {not_measured}{jitter_text(scenario)}; the largest "
        f"point, held out, is predicted with {100 * error:+.1f} %{steps}"
    )


def _points(
    folder: Path, machine: System, backend: str, fingerprint: str | None
) -> tuple[list[CalibrationPoint], str | None]:
    """The points of a folder, and the fingerprint that further ones must have; that of the first study's exchanges."""
    if (folder / CAMPAIGN_FILE).is_file():
        campaign, launches = load_run(folder)
        _check_run(campaign, machine, folder.name)
        return points_of_run(launches, backend), fingerprint
    records, _ = load_records(folder)
    points = points_of_study(records, backend, fingerprint=fingerprint)
    exchanges = [record for record in exchanges_of(records, backend) if record.good]
    for record in exchanges:
        _check_record(record, machine, folder.name)
    return points, fingerprint or next((record.fingerprint.digest for record in exchanges), None)


def _check_record(record: Record, machine: System, study: str) -> None:
    """Raises UsageError for an exchange between other nodes than the machine's."""
    if machine.emulation:
        configuration = record.configuration
        measured = {**configuration.fabric, **configuration.emulation} if configuration else {}
        if differing := _differing(measured, {**stated_fabric(machine), **stated_emulation(machine)}):
            raise UsageError(
                f"calibration from {study}: its links are not those of {machine.name} ({differing}); give a study "
                "with the same, or --system as it was measured"
            )
        return
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
    fabric = machine.fabric
    if campaign.system in (None, machine.title):
        return
    # Emulated hosts have the links of others whose rate is the same.
    rate = fabric.bandwidth.number if machine.emulation and fabric and fabric.bandwidth else None
    if rate and campaign.wire_bytes_per_second == rate:
        return
    raise UsageError(
        f"calibration from {run}: its exchanges are of {campaign.system}, not of {machine.title}; give a run on the "
        "system that is predicted"
    )


def _differing(measured: Mapping[str, Setting], stated: Mapping[str, Setting]) -> str:
    """What differs, in words; empty if nothing does."""
    names = [name for name in {**stated, **measured} if measured.get(name) != stated.get(name)]
    return ", ".join(
        f"{name} {measured.get(name, 'not stated')}, not {stated.get(name, 'stated')}" for name in names
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
            f"prediction {ranks_per_node}; give --ranks-per-node {counts[0]}, or a study with {ranks_per_node}"
        )
    return alike


def _fingerprint(profiled: Path | None) -> str | None:
    """The code and machine of the only profile in a study; None without one."""
    if profiled is None:
        return None
    records, _ = load_records(profiled)
    digests = {record.fingerprint.digest for record in records if record.case.cell.control == "profile"}
    return digests.pop() if len(digests) == 1 else None
