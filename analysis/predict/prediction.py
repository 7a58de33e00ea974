"""From a profile, a network and a backend's rule to a curve over nodes, with its band.

A point is R replicates. Each draws what is not known, a step then draws what varies:

    replicate   rates and latency between the sources' limits, packed or scattered nodes, routing between minimal and
                adaptive, the coefficient of variation of steps where they were not measured, how fast a rank computes
                where that is derived
    step        the slowest rank (`noise`), Horovod's phase

and, where a study has measured steps between nodes, by how much predictions of those are off.

A replicate's rate is that of the mean of its K steps, as a study measures it. The centre is the median over replicates,
the band their 5 and 95 %. The engine is asked for two sizes per algorithm and kind of placement and routing, because an
exchange is affine in its bytes; replicates then need no engine. Efficiency is relative to base case (a), one rank
without a communication layer, whose time per sample is the profile's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.predict.backend_rules import HOROVOD_BITS_BYTES, Bucket, ExchangeRule
from dlscale.analysis.predict.engine import Algorithm, Engine, Method, NetworkExchange
from dlscale.analysis.predict.loggp import mean_jitter
from dlscale.analysis.predict.network import Network, Placement, Routing
from dlscale.analysis.predict.noise import Noise, slowest
from dlscale.analysis.predict.profile import Profile, at_batch
from dlscale.analysis.predict.timeline import BucketExchange, asynchronous_seconds, step_seconds
from dlscale.analysis.statistics import Interval
from dlscale.base.errors import UsageError

Floats = NDArray[np.float64]

NUM_REPLICATES = 2000
NUM_STEPS = 20  # the fewest that a study measures
BAND_PERCENT = (5.0, 95.0)
METHOD = "5 to 95 % of replicates"
IDEAL, BATCH, STRAGGLERS, EXPOSED = "ideal", "batch effect", "stragglers", "exposed communication"


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What is predicted, but for the number of nodes. `batch` is per rank under weak scaling, else in total."""

    network: Network
    engine: Engine
    profile: Profile
    noise: Noise
    rule: ExchangeRule
    scaling_mode: Literal["weak", "strong"]
    batch: int
    ranks_per_node: int = 1
    num_servers: Callable[[int], int] = field(default=lambda _: 0)  # for so many ranks
    num_replicates: int = NUM_REPLICATES
    seed: int = 0
    calibrated_nodes: int | None = None  # the most that the network was calibrated on; None: it was not
    held_out_error: float | None = None  # of the largest point, by a calibration without it
    no_jitter: str = (
        "it takes --calibrate with a run of dlscale collectives"  # to measure the jitter of messages
    )
    doubts: tuple[str, ...] = ()  # why it is not to be trusted, where that was asked for
    backend_options: Mapping[str, Any] = field(default_factory=dict)  # that `rule` was made from
    exchange_algorithm: str = ""  # in the place of the backend's own; empty: its own
    step_error: float = 0.0  # of predicted steps where steps were measured, as a logarithm (`step_error.py`)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedPoint:
    """A number of nodes. `parts` are shares of the predicted step that are lost, and add up to 1 - efficiency."""

    num_nodes: int
    num_ranks: int
    num_servers: int
    local_batch: int
    samples_per_second: Interval
    efficiency: Interval
    step_seconds: Interval
    parts: dict[str, float]
    replicates: Floats = field(
        default_factory=lambda: np.empty(0), compare=False, repr=False
    )  # (R,) efficiency
    rates: Floats = field(default_factory=lambda: np.empty(0), compare=False, repr=False)  # (R,) samples/s


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedCurve:
    """The points of one backend, in ascending order; `sensitivity` is of the last one, empty unless asked for."""

    situation: Situation
    points: tuple[PredictedPoint, ...]
    sensitivity: dict[str, float]


def predict_curve(situation: Situation, sizes: Sequence[int], *, explain: bool = False) -> PredictedCurve:
    """The points on so many nodes. Raises UsageError as `predict_point`, before anything is computed."""
    check_sizes(situation, sizes)
    points = tuple(predict_point(situation, num_nodes) for num_nodes in sorted(sizes))
    last = sensitivity(situation, max(sizes)) if explain and situation.rule.exchanges else {}
    return PredictedCurve(situation=situation, points=points, sensitivity=last)


@dataclass(frozen=True, slots=True)
class _Draws:
    """What each replicate draws once, (R, 1)."""

    rate: Floats
    latency: Floats
    minimal: Floats  # weight of minimal routing
    scattered: NDArray[np.bool_]


def check_sizes(situation: Situation, sizes: Sequence[int]) -> None:
    """Returns if the machine has so many nodes, and ranks divide the batch. Raises UsageError."""
    for num_nodes in sizes:
        num_ranks = num_nodes * situation.ranks_per_node
        num_servers = _servers(situation, num_ranks)
        count = num_nodes + math.ceil(num_servers / situation.ranks_per_node)
        if count > situation.network.num_nodes:
            servers = f" ({num_servers} servers included)" if num_servers else ""
            raise UsageError(
                f"{count} nodes{servers} on {situation.network.name}, which has {situation.network.num_nodes}; "
                "give fewer --nodes" + (" or --servers" if servers else "")
            )
        if situation.scaling_mode == "strong" and situation.batch % num_ranks:
            raise UsageError(
                f"strong scaling of {situation.profile.workload}: global batch {situation.batch} is not a multiple of "
                f"{num_ranks} ranks; give --nodes that divide it, or another --batch"
            )


def predict_point(situation: Situation, num_nodes: int) -> PredictedPoint:
    """The point on so many nodes. Raises UsageError as `check_sizes`, and for what the engine cannot do."""
    check_sizes(situation, [num_nodes])
    num_ranks = num_nodes * situation.ranks_per_node
    local_batch = situation.batch if situation.scaling_mode == "weak" else situation.batch // num_ranks
    base, profile = at_batch(situation.profile, situation.batch), at_batch(situation.profile, local_batch)
    rng = np.random.default_rng([situation.seed, num_nodes])
    draws = _draw(situation, rng)
    shape = (situation.num_replicates, NUM_STEPS)
    rule = situation.rule
    # What a step takes beside its parts (fetching a batch, the loop itself) grows with them.
    beside = profile.mean_step_seconds / (profile.backward_seconds + profile.update_seconds)
    waits_for = num_ranks if rule.exchanges and not rule.asynchronous else 1
    dropped = min(rule.num_dropped, num_ranks - 1)
    factors = beside * slowest(situation.noise, waits_for, shape, rng, num_dropped=dropped)
    exchanges = _exchanges(situation, profile, num_nodes, draws, rng)
    pace = np.ones((situation.num_replicates, 1))
    if profile.time_factors != (1.0, 1.0):
        pace = _between(profile.time_factors, pace.shape, rng)
        factors = factors * pace
    if rule.asynchronous:
        seconds = _asynchronous(situation, profile, num_nodes, factors, draws)
    else:
        seconds = step_seconds(profile, rule, exchanges, factors, rng)
    mean = seconds.mean(axis=1)
    if situation.step_error and (num_ranks > 1 or rule.serves):
        mean = mean * np.exp(situation.step_error * rng.standard_normal(situation.num_replicates))
    computing = factors.mean(axis=1) * (profile.backward_seconds + profile.update_seconds)
    ideal = base.mean_step_seconds / situation.batch * local_batch
    step, computes = float(np.median(mean)), float(np.median(computing))
    rates = num_ranks * local_batch / mean
    efficiencies = ideal * pace[:, 0] / mean
    parts = {
        BATCH: (profile.mean_step_seconds - ideal) / step,
        STRAGGLERS: (computes - profile.mean_step_seconds) / step,
        EXPOSED: (step - computes) / step,
    }
    if situation.scaling_mode == "weak":
        del parts[BATCH]
    return PredictedPoint(
        num_nodes=num_nodes,
        num_ranks=num_ranks,
        num_servers=_servers(situation, num_ranks),
        local_batch=local_batch,
        samples_per_second=_band(rates),
        efficiency=_band(efficiencies),
        step_seconds=_band(mean),
        parts=parts,
        replicates=efficiencies,
        rates=rates,
    )


def sensitivity(situation: Situation, num_nodes: int) -> dict[str, float]:
    """{what would be different: efficiency then}, from the same draws; "as it is" is first."""
    return {
        name: predict_point(other, num_nodes).efficiency.center
        for name, other in changed_situations(situation).items()
    }


def changed_situations(situation: Situation) -> dict[str, Situation]:
    """{what is different: the situation then}; "as it is" is first."""
    rule = situation.rule
    changed = {
        "as it is": situation,
        "twice the bandwidth": with_factors(situation, link_rate=2),
        "half the latency": with_factors(situation, latency=0.5),
        "half the jitter": with_factors(situation, jitter=0.5),
    }
    if rule.bytes_per_element > 2:
        changed["bf16 gradients"] = replace(situation, rule=replace(rule, bytes_per_element=2))
    return changed


def with_factors(
    situation: Situation, *, link_rate: float = 1, latency: float = 1, jitter: float = 1
) -> Situation:
    """The situation with so many times the rate of all links, the latency, and the noise of steps and messages."""
    network = situation.network
    groups = network.groups and replace(
        network.groups,
        group_bytes_per_second=network.groups.group_bytes_per_second * link_rate,
        pair_bytes_per_second=network.groups.pair_bytes_per_second * link_rate,
        extra_latency_seconds=network.groups.extra_latency_seconds * latency,
    )
    late = network.message_jitter_seconds
    other = replace(
        network,
        node_bytes_per_second=network.node_bytes_per_second * link_rate,
        latency_seconds=network.latency_seconds * latency,
        groups=groups,
        message_jitter_seconds=None if late is None else late * jitter,
    )
    return replace(situation, network=other, noise=situation.noise.scaled(jitter))


def _draw(situation: Situation, rng: np.random.Generator) -> _Draws:
    shape = (situation.num_replicates, 1)

    network = situation.network
    return _Draws(
        rate=_between(network.rate_factors, shape, rng),
        latency=_between(network.latency_factors, shape, rng),
        minimal=rng.random(shape),
        scattered=rng.random(shape) < 0.5,
    )


def _between(limits: tuple[float, float], shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    low, high = limits
    return np.asarray(low * (high / low) ** rng.random(shape), dtype=np.float64)


def _exchanges(
    situation: Situation, profile: Profile, num_nodes: int, draws: _Draws, rng: np.random.Generator
) -> list[BucketExchange]:
    """The buckets with the seconds that each exchange takes in each replicate; none where nobody else is there."""
    rule = situation.rule
    if rule.asynchronous or (num_nodes * situation.ranks_per_node == 1 and not rule.serves):
        return []
    if rule.cycle_seconds:
        return _fused_exchanges(situation, profile, num_nodes, draws, rng)
    num_servers = _servers(situation, num_nodes * situation.ranks_per_node)
    buckets = rule.buckets(profile, num_servers=num_servers)
    # All servers get chunks at the same time, so that a chunk takes as long as a message that all have a share of.
    at_once = num_servers if rule.in_chunks else 1
    sizes: dict[Algorithm, list[int]] = {}
    for bucket in buckets:
        sizes.setdefault(rule.algorithm(bucket.num_bytes), []).append(at_once * bucket.num_bytes)
    seconds = {
        algorithm: _affine(situation, algorithm, num_nodes, own, draws, rng)
        for algorithm, own in sizes.items()
    }
    if rule.in_chunks:
        adding = num_nodes * situation.ranks_per_node * situation.network.reduce_seconds_per_byte
        return [
            _there_and_back(
                bucket,
                seconds["parameter_servers"](at_once * bucket.num_bytes),
                adding=bucket.num_bytes * adding / draws.rate,
            )
            for bucket in buckets
        ]
    return [
        BucketExchange(bucket=bucket, seconds=seconds[rule.algorithm(bucket.num_bytes)](bucket.num_bytes))
        for bucket in buckets
    ]


def _fused_exchanges(
    situation: Situation, profile: Profile, num_nodes: int, draws: _Draws, rng: np.random.Generator
) -> list[BucketExchange]:
    """Horovod's: what is fused depends on how long the exchange before takes, in the middle of the replicates."""
    rule = situation.rule
    bits = _affine(situation, "recursive_doubling", num_nodes, [HOROVOD_BITS_BYTES], draws, rng)
    agreeing = 2 * bits(HOROVOD_BITS_BYTES)
    whole = max(2, sum(gradient.num_bytes for gradient in profile.gradients) * rule.bytes_per_element // 4)
    lines: dict[Algorithm, Callable[[int], Floats]] = {}

    def seconds(num_bytes: int) -> Floats:
        algorithm = rule.algorithm(num_bytes)
        if algorithm not in lines:
            lines[algorithm] = _affine(situation, algorithm, num_nodes, [whole], draws, rng)
        own: Floats = agreeing + lines[algorithm](num_bytes)
        return own

    buckets = rule.buckets(profile, seconds_of=lambda num_bytes: float(np.median(seconds(num_bytes))))
    return [BucketExchange(bucket=bucket, seconds=seconds(bucket.num_bytes)) for bucket in buckets]


def _there_and_back(bucket: Bucket, seconds: Floats, *, adding: Floats) -> BucketExchange:
    """Servers' links are as long busy one way as the other; they add before anything comes back."""
    back: Floats = np.maximum(0.0, seconds - adding) / 2
    return BucketExchange(bucket=bucket, seconds=seconds - back, back_seconds=back)


def _affine(
    situation: Situation,
    algorithm: Algorithm,
    num_nodes: int,
    sizes: Sequence[int],
    draws: _Draws,
    rng: np.random.Generator,
) -> Callable[[int], Floats]:
    """Bytes -> seconds (R, 1) of an exchange in each replicate."""
    low, high = min(sizes), max(sizes)
    low = low if low < high else max(1, high // 4)
    high = max(high, low + 1)

    def line(placement: Placement, routing: Routing) -> tuple[float, float]:
        exchange = _exchange(situation, algorithm, num_nodes, placement, routing)
        first, second = situation.engine.exchange_seconds(situation.network, exchange, [low, high])
        slope = max(0.0, (second - first) / (high - low))
        return max(0.0, first - slope * low), slope

    adaptive = line("packed", "adaptive")
    if situation.network.groups is None:
        fixed, slope = (np.full_like(draws.rate, value) for value in adaptive)
    else:
        minimal, scattered = line("packed", "minimal"), line("scattered", "adaptive")
        fixed, slope = (
            np.where(draws.scattered, far, (1 - draws.minimal) * wide + draws.minimal * direct)
            for wide, direct, far in zip(adaptive, minimal, scattered, strict=True)
        )
    exchange = _exchange(situation, algorithm, num_nodes, "packed", "adaptive")
    jitter = mean_jitter(situation.network, exchange, num_bytes=high, rng=rng)
    return lambda num_bytes: fixed * draws.latency + jitter + num_bytes * slope / draws.rate


def _asynchronous(
    situation: Situation, profile: Profile, num_nodes: int, factors: Floats, draws: _Draws
) -> Floats:
    """A worker alone with the servers, and what their busiest link needs for one worker's gradients."""
    network = situation.network
    num_ranks = num_nodes * situation.ranks_per_node
    num_bytes = sum(bucket.num_bytes for bucket in situation.rule.buckets(profile))
    alone = replace(
        _exchange(situation, "parameter_servers", num_nodes, "packed", "adaptive"),
        num_nodes=1,
        ranks_per_node=1,
    )
    (own,) = situation.engine.exchange_seconds(network, alone, [num_bytes])
    latency = 2 * network.latency_seconds
    of_server = num_bytes / alone.num_servers
    busy = max(of_server / network.node_bytes_per_second, of_server * network.reduce_seconds_per_byte)
    return asynchronous_seconds(
        profile,
        own_exchange=latency * draws.latency + max(0.0, own - latency) / draws.rate,
        server_seconds=busy / draws.rate,
        factors=factors,
        num_ranks=num_ranks,
    )


def _exchange(
    situation: Situation, algorithm: Algorithm, num_nodes: int, placement: Placement, routing: Routing
) -> NetworkExchange:
    return NetworkExchange(
        algorithm=algorithm,
        num_nodes=num_nodes,
        ranks_per_node=situation.ranks_per_node,
        num_servers=situation.rule.num_equal_servers(
            situation.profile, _servers(situation, num_nodes * situation.ranks_per_node)
        ),
        placement=placement,
        routing=routing,
        seed=situation.seed,
    )


def method_of(situation: Situation, num_nodes: int) -> Method:
    """How the engine finds the times of the exchanges between so many nodes; of all, servers have the most flows."""
    algorithm: Algorithm = "parameter_servers" if situation.rule.serves else "ring"
    return situation.engine.method(_exchange(situation, algorithm, num_nodes, "packed", "adaptive"))


def _servers(situation: Situation, num_ranks: int) -> int:
    return situation.num_servers(num_ranks) if situation.rule.serves else 0


def _band(values: Floats) -> Interval:
    low, high = (float(np.percentile(values, percent)) for percent in BAND_PERCENT)
    return Interval(
        center=float(np.median(values)),
        low=low,
        high=high,
        level=(BAND_PERCENT[1] - BAND_PERCENT[0]) / 100,
        method=METHOD,
        n=len(values),
    )
