"""A network as a machine's own exchanges calibrate it, and what such a prediction is not to be trusted with.

A network is calibrated for each backend, whose software is a part of a message's latency: by the control `exchange` of
studies, and by runs of `dlscale collectives`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dlscale.analysis.predict.calibrate import CalibrationPoint, calibrated
from dlscale.analysis.predict.calibration_points import points_of_run, points_of_study
from dlscale.analysis.predict.prediction import Situation
from dlscale.analysis.render.prediction import jitter_text
from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli.options import named_folder
from dlscale.benchmarks.records.files import load_records
from dlscale.benchmarks.records.message_sizes import CAMPAIGN_FILE, latest_run, load_run

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


def calibrated_situation(
    situation: Situation, folders: Sequence[Path], sizes: Sequence[int], *, profiled: Path | None, force: bool
) -> Situation:
    """The situation on the network that `calibration_folders` calibrate; as it is without an exchange.

    `profiled` is the study of the profile, whose code and machine those of studies must be. Raises UsageError where
    there are too few exchanges, and where the calibration has doubts, unless `force`, which keeps them.
    """
    if not situation.rule.exchanges:
        return situation
    backend = situation.rule.backend
    fingerprint = _fingerprint(profiled)
    points = [point for folder in folders for point in _points(folder, backend, fingerprint)]
    source = ", ".join(folder.name for folder in folders)
    found = calibrated(points, situation.network, source=source)
    doubts = found.doubts(max(sizes))
    if doubts and not force:
        raise UsageError(
            f"prediction over {backend}: {'; '.join(doubts)}; give fewer --nodes, or --force to see it all the same"
        )
    return replace(
        situation,
        network=found.network,
        calibrated_nodes=found.largest_nodes,
        held_out_error=found.held_out_error,
        no_jitter=found.no_jitter,
        doubts=doubts,
    )


def calibration_line(situation: Situation) -> str:
    """What the calibration found, in a sentence."""
    network, error = situation.network, situation.held_out_error or 0.0
    not_measured = "not measured: " if network.message_jitter_seconds is None else ""
    return (
        f"{situation.rule.backend}, {network.source}: {1e6 * network.latency_seconds:.3g} us per message, "
        f"{network.node_bytes_per_second / 1e9:.3g} GB/s per node; {not_measured}{jitter_text(situation)}; the largest "
        f"point, held out, is predicted with {100 * error:+.1f} %"
    )


def _points(folder: Path, backend: str, fingerprint: str | None) -> list[CalibrationPoint]:
    if (folder / CAMPAIGN_FILE).is_file():
        _, launches = load_run(folder)
        return points_of_run(launches, backend)
    records, _ = load_records(folder)
    return points_of_study(records, backend, fingerprint=fingerprint)


def _fingerprint(profiled: Path | None) -> str | None:
    """The code and machine of the only profile in a study; None without one."""
    if profiled is None:
        return None
    records, _ = load_records(profiled)
    digests = {record.fingerprint.digest for record in records if record.case.cell.control == "profile"}
    return digests.pop() if len(digests) == 1 else None
