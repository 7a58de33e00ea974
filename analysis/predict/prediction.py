"""From a profile, a network and a backend's rule to a curve over nodes, with its band.

A point is R replicates. Each draws what is not known, a step then draws what varies (`timeline`), and, where a study
has measured steps between nodes, by how much predictions of those are off.

A replicate's rate is that of the mean of its K steps, as a study measures it. The centre is the median over replicates,
the band their 5 and 95 %. Efficiency is relative to one rank without communication, whose time per sample is the
profile's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.predict.costs import drawn
from dlscale.analysis.predict.exchange import ENGINE, ENGINE_VERSION, cost
from dlscale.analysis.predict.noise import slowest
from dlscale.analysis.predict.profile import Profile, at_batch
from dlscale.analysis.predict.scenario import GATHERS, NO_LIMITS, Scenario, check_sizes, origins_of
from dlscale.analysis.predict.timeline import (
    Draws,
    asynchronous_seconds,
    draws_of,
    exchange_between,
    exchanges_of,
    seed_of,
    step_seconds,
)
from dlscale.benchmarks.records.prediction import Band, PredictionRecord
from dlscale.collectives.sharding import NONE

Floats = NDArray[np.float64]

NUM_STEPS = 20  # the fewest that a study measures
BAND_PERCENT = (5.0, 95.0)
SURE = 0.95  # of the replicates, in which one of two backends is faster
FASTER = 1.01  # times as fast: nearer than predictions are to measured exchanges
BATCH, STRAGGLERS, EXPOSED = "batch effect", "stragglers", "exposed communication"
# Fields of a record that a scenario has.
OF_SCENARIO = ("shard", "scaling_mode", "num_replicates", "doubts")
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
    wire_seconds: float  # of the gradients on the fullest link of a node, without anything else
    parts: dict[str, float]
    replicates: Floats = field(compare=False, repr=False)  # (R,) efficiency
    rates: Floats = field(compare=False, repr=False)  # (R,) samples/s


class PredictedCurve(NamedTuple):
    """The points of one backend, in ascending order."""

    scenario: Scenario
    points: tuple[PredictedPoint, ...]


def predict_curve(scenario: Scenario, sizes: Sequence[int]) -> PredictedCurve:
    """The points on so many nodes. Raises UsageError as `predict_point`, before anything is computed."""
    check_sizes(scenario, sizes)
    return PredictedCurve(scenario, tuple(predict_point(scenario, num_nodes) for num_nodes in sorted(sizes)))


def predict_point(scenario: Scenario, num_nodes: int) -> PredictedPoint:
    """The point on so many nodes. Raises UsageError as `check_sizes` and `exchange.cost`."""
    check_sizes(scenario, [num_nodes])
    rule, shape = scenario.rule, (scenario.num_replicates, NUM_STEPS)
    num_ranks = num_nodes * scenario.ranks_per_node
    local_batch = scenario.local_batch(num_ranks)
    base, profile = at_batch(scenario.profile, scenario.batch), at_batch(scenario.profile, local_batch)
    draws = draws_of(scenario, num_nodes)
    pace, whole_update = draws.pace_of(profile), profile.update_seconds
    # What a step takes beside its parts (fetching a batch, the loop itself) grows with them.
    beside = profile.mean_step_seconds / (profile.backward_seconds + whole_update)
    waits_for = num_ranks if rule.exchanges and not rule.asynchronous else 1
    slow = slowest(scenario.noise, waits_for, shape, seed_of(scenario, "steps"))
    factors = beside * slow * pace
    seconds, profile = _steps(draws, profile, factors)
    mean = seconds.mean(axis=1)
    if scenario.step_error and (num_ranks > 1 or rule.serves):
        error = np.random.default_rng(seed_of(scenario, "error")).standard_normal(scenario.num_replicates)
        mean = mean * np.exp(scenario.step_error * error)
    computing = factors.mean(axis=1) * (profile.backward_seconds + whole_update)
    saved = factors.mean(axis=1) * (whole_update - profile.update_seconds)
    ideal = base.mean_step_seconds / scenario.batch * local_batch * draws.pace_of(base)[:, 0]
    here = beside * (profile.backward_seconds + whole_update) * pace[:, 0]
    lost = {STRAGGLERS: computing - here, EXPOSED: mean - computing + saved}
    if scenario.scaling_mode == "strong":
        lost[BATCH] = here - ideal
    if saved.any():
        lost[UPDATE] = -saved
    rates, efficiencies = num_ranks * local_batch / mean, ideal / mean
    return PredictedPoint(
        num_nodes=num_nodes,
        num_ranks=num_ranks,
        num_servers=scenario.servers(num_ranks),
        local_batch=local_batch,
        samples_per_second=_band(rates),
        efficiency=_band(efficiencies),
        step_seconds=_band(mean),
        wire_seconds=wire_seconds(scenario, num_nodes),
        parts=_typical({name: each / mean for name, each in lost.items()}, 1 - efficiencies),
        replicates=efficiencies,
        rates=rates,
    )


def _steps(draws: Draws, profile: Profile, factors: Floats) -> tuple[Floats, Profile]:
    """(R, K) seconds of steps, and the profile of what a rank computes in them."""
    scenario = draws.scenario
    if scenario.rule.asynchronous:
        return asynchronous_seconds(draws, profile, factors), profile
    exchanges = exchanges_of(draws, profile)
    gathers: Floats | float = 0.0
    if scenario.shard != NONE and exchanges:
        # Half of an allreduce scatters the sums as gradients become ready, and half of one gathers weights.
        exchanges = [exchange._replace(seconds=exchange.seconds / 2) for exchange in exchanges]
        gathers = GATHERS[scenario.shard] * np.sum([exchange.seconds for exchange in exchanges], axis=0)
        profile = replace(profile, update_seconds=profile.update_seconds / draws.num_ranks)
    rng = np.random.default_rng(seed_of(scenario, "cycles"))
    beside = _contention(draws, profile)
    seconds = step_seconds(profile, scenario.rule, exchanges, factors, rng, beside=beside)
    return seconds + gathers, profile


def _contention(draws: Draws, profile: Profile) -> Floats | float:
    """(R, 1) seconds that computing takes longer beside exchanges, if these are wholly overlapped."""
    scenario, count = draws.scenario, draws.num_ranks
    if count == 1 or scenario.contention == NO_LIMITS:
        return 0.0
    around = 1.0 if scenario.rule.serves else 2 * (count - 1) / count
    num_bytes = profile.num_bytes * scenario.rule.bytes_per_element / 4
    return around * num_bytes * drawn(scenario.contention, draws.contention)


def wire_seconds(scenario: Scenario, num_nodes: int) -> float:
    """What a step's gradients take on the fullest link of a node: nothing of the software, of noise, or of groups."""
    rule = scenario.rule
    if not rule.exchanges or (num_nodes == 1 and not rule.serves):
        return 0.0
    link = replace(scenario.network, groups=None, latency_seconds=0.0, reduce_seconds_per_byte=0.0)
    link = replace(link, node_memory_bytes_per_second=math.inf, device_link_bytes_per_second=None)
    seconds = 0.0
    for it in rule.buckets(scenario.profile):
        exchange = exchange_between(scenario, num_nodes, rule.algorithm(it.num_bytes))
        seconds += cost(link, exchange).of(it.num_bytes)
    return seconds


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


def fastest(curves: Sequence[PredictedCurve]) -> dict[int, list[bool]]:
    """{nodes: whether each curve may be the fastest there}, by replicates with the same draws, where all have them."""
    by_nodes = [{point.num_nodes: point.rates for point in curve.points} for curve in curves]
    found = {}
    for num_nodes in set.intersection(*map(set, by_nodes)) if len(curves) > 1 else ():
        rates = [own[num_nodes] for own in by_nodes]
        best = max(rates, key=lambda own: float(np.median(own)))
        found[num_nodes] = [own is best or float(np.mean(best > FASTER * own)) < SURE for own in rates]
    return found


def prediction_records(
    curves: Sequence[PredictedCurve], *, commit: str = "", command: str = ""
) -> Iterator[PredictionRecord]:
    """A record per point of one training's curves; `commit` and `command` are those that predicted it."""
    is_fastest = fastest(curves)
    for index, curve in enumerate(curves):
        scenario = curve.scenario
        profile, origins = scenario.profile, tuple(origins_of(scenario))
        for point in curve.points:
            yield PredictionRecord(
                system=scenario.network.name,
                **{name: getattr(profile, name) for name in ("workload", "preset", "framework")},
                **{name: getattr(scenario, name) for name in OF_SCENARIO},
                **{it.name: getattr(point, it.name) for it in fields(point) if it.compare},
                backend=scenario.rule.backend,
                backend_options=dict(scenario.backend_options),
                global_batch=point.local_batch * point.num_ranks,
                may_be_fastest=is_fastest[point.num_nodes][index] if point.num_nodes in is_fastest else None,
                engine=ENGINE,
                engine_version=ENGINE_VERSION,
                origins=origins,
                commit=commit,
                command=command,
            )
