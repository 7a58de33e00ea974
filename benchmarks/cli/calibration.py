"""A network as a study's own exchanges calibrate it, and what such a prediction is not to be trusted with.

A network is calibrated for each backend, whose software is a part of a message's latency.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dlscale.analysis.predict.prediction import Situation
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.files import load_records

POINTS_MODULE, FIT_MODULE = (
    "dlscale.analysis.predict.calibration_points",
    "dlscale.analysis.predict.calibrate",
)
MOST_TIMES = 64  # the largest measured number of nodes
LARGEST_ERROR = 0.15  # of the largest point, which was held out


def calibrated_situation(
    situation: Situation, folder: Path, sizes: Sequence[int], *, profiled: Path | None, force: bool
) -> Situation:
    """The situation on the network that the study in `folder` calibrates; as it is without an exchange.

    `profiled` is the study of the profile, whose code and machine must be the same. Raises UsageError where the study
    has too few exchanges, for sizes beyond MOST_TIMES the largest measured one, and where the point that was held out
    is wrong by more than LARGEST_ERROR, the last two unless `force`, which makes them doubts.
    """
    if not situation.rule.exchanges:
        return situation
    backend = situation.rule.backend
    points, fit = (_module(name) for name in (POINTS_MODULE, FIT_MODULE))
    records, _ = load_records(folder)
    measured = points.points_of_study(records, backend, fingerprint=_fingerprint(profiled))
    found: Any = fit.calibrated(measured, situation.network, source=folder.name)
    doubts = []
    if max(sizes) > MOST_TIMES * found.largest_nodes:
        doubts.append(
            f"{max(sizes)} nodes are more than {MOST_TIMES} times the {found.largest_nodes} of the calibration"
        )
    if abs(found.held_out_error) > LARGEST_ERROR:
        doubts.append(
            f"the calibration is wrong by {100 * found.held_out_error:+.0f} % for its largest point, which was held out"
        )
    if doubts and not force:
        raise UsageError(
            f"prediction over {backend}: {'; '.join(doubts)}; give fewer --nodes, or --force to see it all the same"
        )
    return replace(
        situation,
        network=found.network,
        calibrated_nodes=found.largest_nodes,
        held_out_error=found.held_out_error,
        doubts=tuple(doubts),
    )


def calibration_line(situation: Situation) -> str:
    """What the calibration found, in a sentence."""
    network, error = situation.network, situation.held_out_error or 0.0
    return (
        f"{situation.rule.backend}, {network.source}: {1e6 * network.latency_seconds:.3g} us per message, "
        f"{network.node_bytes_per_second / 1e9:.3g} GB/s per node; the largest point, held out, is predicted with "
        f"{100 * error:+.1f} %"
    )


def _fingerprint(profiled: Path | None) -> str | None:
    """The code and machine of the only profile in a study; None without one."""
    if profiled is None:
        return None
    records, _ = load_records(profiled)
    digests = {record.fingerprint.digest for record in records if str(record.case.cell.control) == "profile"}
    return digests.pop() if len(digests) == 1 else None


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise UsageError("--calibrate is not in this dlscale; leave it out") from None
