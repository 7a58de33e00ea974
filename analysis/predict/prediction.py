"""From a profile, a network and a backend's rule to a curve over nodes, with its band.

A point is R replicates. Each draws what is not known, a step then draws what varies:

    replicate   rates and latency, placement and routing, how fast a rank computes, what software costs (`draws`);
                the coefficient of variation of steps where they were not measured
    step        the slowest rank (`noise`), Horovod's phase

and, where a study has measured steps between nodes, by how much predictions of those are off.

A replicate's rate is that of the mean of its K steps, as a study measures it. The centre is the median over replicates,
the band their 5 and 95 %. Efficiency is relative to one rank without communication, whose time per sample is the
profile's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.predict.costs import drawn
from dlscale.analysis.predict.draws import Draws, asynchronous, draws_of, exchanges_of, seed_of
from dlscale.analysis.predict.loggp import ENGINE, ENGINE_VERSION
from dlscale.analysis.predict.noise import slowest_of_seed
from dlscale.analysis.predict.profile import Profile, at_batch
from dlscale.analysis.predict.scenario import GATHERS, Scenario, changed_scenarios, check_sizes, noise_texts
from dlscale.analysis.predict.timeline import step_seconds
from dlscale.benchmarks.records.prediction import Band, PredictionRecord
from dlscale.collectives.sharding import NONE

Floats = NDArray[np.float64]

NUM_STEPS = 20  # the fewest that a study measures
BAND_PERCENT, LEVEL = (5.0, 95.0), 0.9
METHOD = "5 to 95 % of replicates"
IDEAL, BATCH, STRAGGLERS, EXPOSED = "ideal", "batch effect", "stragglers", "exposed communication"
UPDATE = "update of a part"  # a gain where optimizers are sharded


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedPoint:
    """A number of nodes. `parts` are shares of the predicted step that are lost, and add up to 1 - efficiency."""

    num_nodes: int
    num_ranks: int
    num_servers: int
    local_batch: int
    samples_per_second: Band
    efficiency: Band
    step_seconds: Band
    parts: dict[str, float]
    replicates: Floats = field(compare=False, repr=False)  # (R,) efficiency
    rates: Floats = field(compare=False, repr=False)  # (R,) samples/s


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedCurve:
    """The points of one backend, in ascending order; `sensitivity` is of the last one, empty unless asked for."""

    scenario: Scenario
    points: tuple[PredictedPoint, ...]
    sensitivity: dict[str, float]


def predict_curve(scenario: Scenario, sizes: Sequence[int], *, explain: bool = False) -> PredictedCurve:
    """The points on so many nodes. Raises UsageError as `predict_point`, before anything is computed."""
    check_sizes(scenario, sizes)
    points = tuple(predict_point(scenario, num_nodes) for num_nodes in sorted(sizes))
    last = sensitivity(scenario, max(sizes)) if explain and scenario.rule.exchanges else {}
    return PredictedCurve(scenario=scenario, points=points, sensitivity=last)


def predict_point(scenario: Scenario, num_nodes: int) -> PredictedPoint:
    """The point on so many nodes. Raises UsageError as `check_sizes` and `loggp.cost`."""
    check_sizes(scenario, [num_nodes])
    num_ranks = num_nodes * scenario.ranks_per_node
    local_batch = scenario.local_batch(num_ranks)
    base, profile = at_batch(scenario.profile, scenario.batch), at_batch(scenario.profile, local_batch)
    draws = draws_of(scenario, num_nodes)
    shape = (scenario.num_replicates, NUM_STEPS)
    rule = scenario.rule
    # What a step takes beside its parts (fetching a batch, the loop itself) grows with them.
    beside = profile.mean_step_seconds / (profile.backward_seconds + profile.update_seconds)
    waits_for = num_ranks if rule.exchanges and not rule.asynchronous else 1
    dropped = min(rule.num_dropped, num_ranks - 1)
    pace = draws.pace_of(profile)
    steps = slowest_of_seed(scenario.noise, waits_for, shape, seed_of(scenario, "steps"), num_dropped=dropped)
    factors = beside * steps * pace
    exchanges = exchanges_of(draws, profile)
    whole_update = profile.update_seconds
    gathers = np.zeros((scenario.num_replicates, 1))
    if scenario.shard != NONE and exchanges:
        # Half of an allreduce scatters the sums as gradients become ready, and half of one gathers weights.
        exchanges = [replace(exchange, seconds=exchange.seconds / 2) for exchange in exchanges]
        halves = np.sum([exchange.seconds for exchange in exchanges], axis=0)
        gathers = GATHERS[scenario.shard] * halves
        profile = replace(profile, update_seconds=whole_update / num_ranks)
    copying = scenario.copying * draws.in_training if exchanges else 0.0

    def halted(moment: float) -> Floats:
        copied = sum(it.num_bytes for it in profile.gradients if it.ready_seconds <= moment)
        return np.asarray(copying * copied, dtype=np.float64)

    if rule.asynchronous:
        seconds = asynchronous(draws, profile, factors)
    else:
        seconds = gathers + step_seconds(
            profile,
            rule,
            exchanges,
            factors,
            draws.stream("cycles"),
            halted=halted,
            beside=_contention(draws, profile),
        )
    mean = seconds.mean(axis=1)
    if scenario.step_error and (num_ranks > 1 or rule.serves):
        mean = mean * np.exp(
            scenario.step_error * draws.stream("error").standard_normal(scenario.num_replicates)
        )
    computing = factors.mean(axis=1) * (profile.backward_seconds + whole_update)
    saved = factors.mean(axis=1) * (whole_update - profile.update_seconds)
    ideal = base.mean_step_seconds / scenario.batch * local_batch * draws.pace_of(base)[:, 0]
    here = profile.mean_step_seconds * pace[:, 0]
    rates = num_ranks * local_batch / mean
    efficiencies = ideal / mean
    lost = {
        BATCH: here - ideal,
        STRAGGLERS: computing - here,
        EXPOSED: mean - computing + saved,
        UPDATE: -saved,
    }
    there = {BATCH: scenario.scaling_mode == "strong", UPDATE: bool(saved.any())}
    parts = {name: seconds / mean for name, seconds in lost.items() if there.get(name, True)}
    return PredictedPoint(
        num_nodes=num_nodes,
        num_ranks=num_ranks,
        num_servers=scenario.servers(num_ranks),
        local_batch=local_batch,
        samples_per_second=_band(rates),
        efficiency=_band(efficiencies),
        step_seconds=_band(mean),
        parts=_typical(parts, 1 - efficiencies),
        replicates=efficiencies,
        rates=rates,
    )


def sensitivity(scenario: Scenario, num_nodes: int) -> dict[str, float]:
    """{what would be different: efficiency then}, from the same draws; "as it is" is first."""
    return {
        name: predict_point(other, num_nodes).efficiency.center
        for name, other in changed_scenarios(scenario).items()
    }


def sensitivity_rows(curve: PredictedCurve) -> Iterator[dict[str, Any]]:
    """The efficiencies of the largest size with other inputs, for programs; none unless they were asked for."""
    scenario = curve.scenario
    for change, efficiency in curve.sensitivity.items():
        yield {
            "system": scenario.network.name,
            "workload": scenario.profile.workload,
            "backend": scenario.rule.backend,
            "num_nodes": curve.points[-1].num_nodes,
            "change": change,
            "efficiency": efficiency,
        }


def _contention(draws: Draws, profile: Profile) -> Floats | float:
    """(R, 1) seconds that computing takes longer beside exchanges, if these are wholly overlapped."""
    scenario = draws.scenario
    if draws.num_ranks == 1 or scenario.contention == (0.0, 0.0):
        return 0.0
    num_bytes = (
        sum(gradient.num_bytes for gradient in profile.gradients) * scenario.rule.bytes_per_element / 4
    )
    around = 1.0 if scenario.rule.serves else 2 * (draws.num_ranks - 1) / draws.num_ranks
    return around * num_bytes * drawn(scenario.contention, draws.contention)


def _typical(parts: Mapping[str, Floats], lost: Floats) -> dict[str, float]:
    """The parts (R,) of what is `lost` (R,) as the twentieth of the replicates in the middle has them.

    They add up to the median of what is lost: the largest has what its neighbours in the order lose beside it.
    """
    count = len(lost)
    order, reach = np.argsort(lost), count // 40
    middle = order[(count - 1) // 2 - reach : count // 2 + reach + 1]
    found = {name: float(shares[middle].mean()) for name, shares in parts.items()}
    largest = max(found, key=lambda name: abs(found[name]))
    found[largest] += float(np.median(lost)) - sum(found.values())
    return found


def _band(values: Floats) -> Band:
    low, center, high = np.percentile(values, (BAND_PERCENT[0], 50.0, BAND_PERCENT[1])).tolist()
    return Band(low=low, center=center, high=high)


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
    scenario = curve.scenario
    profile, network = scenario.profile, scenario.network
    noise, not_measured = noise_texts(scenario)
    return PredictionRecord(
        system=network.name,
        workload=profile.workload,
        preset=profile.preset,
        framework=profile.framework,
        backend=scenario.rule.backend,
        backend_options=dict(scenario.backend_options),
        exchange_algorithm=scenario.exchange_algorithm,
        shard=scenario.shard,
        scaling_mode=scenario.scaling_mode,
        num_ranks=point.num_ranks,
        num_servers=point.num_servers,
        num_nodes=point.num_nodes,
        local_batch=point.local_batch,
        global_batch=point.local_batch * point.num_ranks,
        samples_per_second=point.samples_per_second,
        efficiency=point.efficiency,
        step_seconds=point.step_seconds,
        parts=point.parts,
        method=METHOD,
        level=LEVEL,
        num_replicates=scenario.num_replicates,
        seed=scenario.seed,
        engine=ENGINE,
        engine_version=ENGINE_VERSION,
        profile_evidence=profile.evidence,
        profile_source=profile.source,
        profile_digest=_digest(profile),
        network_source=network.source,
        network_digest=_digest(network),
        calibrated_nodes=scenario.calibrated_nodes,
        held_out_error=scenario.held_out_error,
        noise=tuple(noise),
        noise_not_measured=tuple(not_measured),
        doubts=scenario.doubts,
        commit=commit,
        command=command,
    )


def _digest(value: Any) -> str:
    """12 hexadecimal digits that change with any field of a dataclass."""
    unsaid = {
        "least_batch": (1.0, 1.0),
    }  # profiles of before there were these keep their digests
    fields = {name: of for name, of in asdict(value).items() if name not in unsaid or of != unsaid[name]}
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:12]
