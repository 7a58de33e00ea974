"""Predicted curves as records, which reports, figures and exports show beside what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from dlscale.analysis.predict.engines import digest_of
from dlscale.analysis.predict.prediction import (
    METHOD,
    PredictedCurve,
    PredictedPoint,
    Situation,
    method_of,
)
from dlscale.analysis.statistics import Interval
from dlscale.benchmarks.records.prediction import Band, PredictionRecord


def prediction_records(
    curves: Iterable[PredictedCurve], *, commit: str = "", command: str = ""
) -> Iterator[PredictionRecord]:
    """A record per point; `commit` and `command` are those that predicted it."""
    for curve in curves:
        for point in curve.points:
            yield prediction_record(curve, point, commit=commit, command=command)


def prediction_record(
    curve: PredictedCurve, point: PredictedPoint, *, commit: str = "", command: str = ""
) -> PredictionRecord:
    """The record of a point of this curve."""
    situation = curve.situation
    profile, network, engine = situation.profile, situation.network, situation.engine
    noise, not_measured = noise_texts(situation)
    return PredictionRecord(
        system=network.name,
        workload=profile.workload,
        preset=profile.preset,
        framework=profile.framework,
        backend=situation.rule.backend,
        backend_options=dict(situation.backend_options),
        exchange_algorithm=situation.exchange_algorithm,
        scaling_mode=situation.scaling_mode,
        num_ranks=point.num_ranks,
        num_servers=point.num_servers,
        num_nodes=point.num_nodes,
        local_batch=point.local_batch,
        global_batch=point.local_batch * point.num_ranks,
        samples_per_second=_band(point.samples_per_second),
        efficiency=_band(point.efficiency),
        step_seconds=_band(point.step_seconds),
        parts=point.parts,
        method=METHOD,
        level=point.efficiency.level,
        num_replicates=situation.num_replicates,
        seed=situation.seed,
        engine=engine.name,
        engine_version=engine.version,
        engine_method=method_of(situation, point.num_nodes),
        profile_evidence=profile.evidence,
        profile_source=profile.source,
        profile_digest=digest_of(profile),
        network_source=network.source,
        network_digest=digest_of(network),
        calibrated_nodes=situation.calibrated_nodes,
        held_out_error=situation.held_out_error,
        noise=tuple(noise),
        noise_not_measured=tuple(not_measured),
        doubts=situation.doubts,
        commit=commit,
        command=command,
    )


def jitter_text(situation: Situation) -> str:
    """How late single messages are, or why that was not measured."""
    jitter = situation.network.message_jitter_seconds
    if jitter is None:
        return f"jitter of messages ({situation.no_jitter})"
    return f"messages are late by {1e6 * jitter:.3g} us in the mean"


def noise_texts(situation: Situation, *, of_messages: bool = True) -> tuple[list[str], list[str]]:
    """What is measured of the noise, and what is not."""
    measured, not_measured = list(situation.noise.measured), list(situation.noise.not_measured)
    if steps := situation.noise.steps:
        measured.insert(
            0,
            f"{len(steps)} measured steps, standard deviation {100 * float(np.std(steps)):.1f} % of their mean; a busy "
            "machine makes it too large",
        )
    if of_messages and situation.rule.exchanges:
        known = situation.network.message_jitter_seconds is not None
        (measured if known else not_measured).append(jitter_text(situation))
    return measured, not_measured


def _band(interval: Interval) -> Band:
    """The band of a predicted value, which always has limits."""
    low, high = interval.low, interval.high
    return Band(
        low=interval.center if low is None else low,
        center=interval.center,
        high=interval.center if high is None else high,
    )
