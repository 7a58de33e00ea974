"""What the replicates of a prediction draw, how long a step's exchanges take in each, and the timeline of a step.

A replicate draws once: rates and latency between the sources' limits, packed or scattered nodes, routing between
minimal and adaptive, how fast a rank computes and software runs where that is derived. Steps draw the slowest rank
(`noise`) and Horovod's phase. The draws are the same on every number of nodes, so that curves do not rise by chance.

A step computes, exchanges a bucket as soon as it is ready and the one before is done, and updates:

    computes   |-- forward --|------ backward ------|            |- update -|
    bucket 0                      ready |== exchange ==|
    bucket 1                              ready ........|=== exchange ===|

The slowest rank decides when a bucket is ready. Without overlap all exchanges follow backpropagation. Where an
objective's are awaited, the next one begins that much later. Delayed by a step, they have the whole of the next one.
What is overlapped takes from the cores that compute: a step is longer by `beside`, as far as exchanges are overlapped.
All arrays are (R, K): R replicates of K steps each, or (R, 1).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.predict.backends import HOROVOD_BITS_BYTES, Bucket, ExchangeRule
from dlscale.analysis.predict.costs import drawn
from dlscale.analysis.predict.exchange import Algorithm, NetworkExchange, Placement, Routing, cost
from dlscale.analysis.predict.network import Network
from dlscale.analysis.predict.profile import ComputedStep, Profile
from dlscale.analysis.predict.scenario import Scenario

Floats = NDArray[np.float64]
STREAMS = ("once", "steps", "cycles", "messages", "error")
PLACES: tuple[tuple[Placement, Routing], ...] = (
    ("packed", "adaptive"),
    ("packed", "minimal"),
    ("scattered", "adaptive"),
)


class Draws(NamedTuple):
    """A size of `scenario`, and what each of its replicates draws once; from 0 to 1 where nothing else is said."""

    scenario: Scenario
    num_nodes: int
    rate: Floats  # a factor
    latency: Floats  # a factor
    minimal: Floats  # weight of minimal routing
    scattered: NDArray[np.bool_]
    pace: Floats  # of computing, as a factor on the profile's times
    software: Floats  # what software costs, between its limits
    threads: Floats  # how many of a server's cores work at once
    least_batch: Floats  # how many samples a step computes at least as long as
    contention: Floats  # what the backend's exchanges take from computing, which others' do not tell

    @property
    def num_ranks(self) -> int:
        """The workers."""
        return self.num_nodes * self.scenario.ranks_per_node

    @property
    def network(self) -> Network:
        """The network; where a server's processor has a cost, adding is in that."""
        network = self.scenario.network
        return replace(network, reduce_seconds_per_byte=0.0) if self.scenario.serving else network

    def pace_of(self, profile: Profile) -> Floats:
        """How much longer than in the profile both passes take, whose fixed cost has limits of its own."""
        fixed = profile.fixed_share
        idle = np.maximum(0.0, drawn(profile.least_batch, self.least_batch) / profile.local_batch - 1)
        computing = profile.backward_seconds / (profile.backward_seconds + profile.update_seconds)
        pace = self.pace * (1 + idle * computing)  # an update does not depend on the batch
        return (1 - fixed) * pace + fixed * drawn(profile.fixed_factors, self.software)


def seed_of(scenario: Scenario, name: str) -> tuple[int, int]:
    """That of the random numbers of that name, one of STREAMS; the same on every number of nodes."""
    return scenario.seed, STREAMS.index(name)


def draws_of(scenario: Scenario, num_nodes: int) -> Draws:
    """The draws of that size."""
    network, shape = scenario.network, (scenario.num_replicates, 1)
    once = np.random.default_rng(seed_of(scenario, "once")).random((8, *shape))
    rate, latency, minimal, scattered, pace, *others = once
    own = np.random.default_rng([scenario.seed, len(STREAMS), zlib.crc32(scenario.rule.backend.encode())])
    links = [drawn(network.rate_factors, rate), drawn(network.latency_factors, latency)]
    computing = drawn(scenario.profile.time_factors, pace)
    found = [*links, minimal, scattered < 0.5, computing, *others, own.random(shape)]
    return Draws._make([scenario, num_nodes, *found])


class BucketExchange(NamedTuple):
    """A bucket with the seconds that its exchange takes in each replicate."""

    bucket: Bucket
    seconds: Floats


def exchange_between(scenario: Scenario, num_nodes: int, algorithm: Algorithm) -> NetworkExchange:
    """An exchange between that many nodes of ranks."""
    servers = scenario.servers(num_nodes * scenario.ranks_per_node)
    return NetworkExchange(
        algorithm=algorithm,
        num_nodes=num_nodes,
        ranks_per_node=scenario.ranks_per_node,
        num_servers=scenario.rule.num_equal_servers(scenario.profile, servers),
        seed=scenario.seed,
    )


def exchanges_of(draws: Draws, profile: Profile) -> list[BucketExchange]:
    """The buckets with the seconds that each exchange takes in each replicate; none where nobody else is there."""
    rule = draws.scenario.rule
    if rule.asynchronous or (draws.num_ranks == 1 and not rule.serves):
        return []
    if rule.cycle_seconds:
        return _fused_exchanges(draws, profile)
    seconds_of = cache(partial(_seconds_of, draws))
    found = []
    for bucket in rule.buckets(profile):
        seconds = seconds_of(rule.algorithm(bucket.num_bytes))(bucket.num_bytes)
        if rule.serves:  # whose links it keeps busy so long, one way as long as the other
            seconds = pipelined(seconds, _worker_seconds(draws, bucket.num_bytes), draws.num_ranks)
        found.append(BucketExchange(bucket, seconds))
    return found


def pipelined(link: Floats, worker: Floats, num_workers: int) -> Floats:
    """Seconds of all workers' messages, of which a server's processor takes `worker` for one worker's.

    The longer of link and processor is the time of all, and the other one's that of a single worker's.
    """
    processor = num_workers * worker
    return np.asarray(np.maximum(link, processor) + np.minimum(link, processor) / num_workers)


def _worker_seconds(draws: Draws, num_bytes: int) -> Floats:
    """What the fullest server's processor takes for a bucket of one worker, there and back."""
    scenario = draws.scenario
    rule, serving = scenario.rule, scenario.serving
    if serving is None:
        return np.zeros_like(draws.rate)
    servers = rule.num_equal_servers(scenario.profile, scenario.servers(draws.num_ranks))
    messages = 1 / servers if rule.whole_tensors else 1.0
    return serving.seconds(messages, num_bytes / servers, software=draws.software, threads=draws.threads)


def _fused_exchanges(draws: Draws, profile: Profile) -> list[BucketExchange]:
    """Horovod's: what is fused depends on how long the exchange before takes, in the middle of the replicates."""
    rule, coordination = draws.scenario.rule, draws.scenario.coordination
    seconds_of = cache(partial(_seconds_of, draws))
    bits = 2 * seconds_of("recursive_doubling")(HOROVOD_BITS_BYTES)
    latency = draws.network.latency_seconds * draws.latency

    def seconds(bucket: Bucket) -> Floats:
        agreeing = bits
        if coordination:
            of_rank = coordination.seconds(latency, bucket.num_tensors, software=draws.software)
            agreeing = (draws.num_ranks - 1) * of_rank
        return np.asarray(agreeing + seconds_of(rule.algorithm(bucket.num_bytes))(bucket.num_bytes))

    buckets = rule.buckets(profile, seconds_of=lambda bucket: float(np.median(seconds(bucket))))
    return [BucketExchange(bucket, seconds(bucket)) for bucket in buckets]


def _seconds_of(draws: Draws, algorithm: Algorithm) -> Callable[[int], Floats]:
    """Bytes -> seconds of an exchange in each replicate."""
    network, exchange = draws.network, exchange_between(draws.scenario, draws.num_nodes, algorithm)
    alone = [
        cost(network, replace(exchange, placement=placement, routing=routing))
        for placement, routing in PLACES[: len(PLACES) if network.groups else 1]
    ]
    fixed, slope = np.array(alone[0])
    if network.groups:
        wide, direct, far = (np.reshape(each, (2, 1, 1)) for each in alone)
        fixed, slope = np.where(draws.scattered, far, (1 - draws.minimal) * wide + draws.minimal * direct)
    return lambda num_bytes: np.asarray(fixed * draws.latency + num_bytes * slope / draws.rate)


def asynchronous_seconds(draws: Draws, profile: Profile, factors: Floats) -> Floats:
    """Seconds in which as many local batches are applied as there are ranks; `factors` are those of any one rank.

    A worker alone with the servers, or what their busiest link or processor needs for one worker's gradients.
    """
    network, rule = draws.network, draws.scenario.rule
    exchange = exchange_between(draws.scenario, draws.num_nodes, "parameter_servers")
    num_bytes = sum(bucket.num_bytes for bucket in rule.buckets(profile))
    own = cost(network, replace(exchange, num_nodes=1, ranks_per_node=1)).of(num_bytes)
    latency = 2 * network.latency_seconds
    of_server = num_bytes / exchange.num_servers
    busy = of_server * max(1 / network.node_bytes_per_second, network.reduce_seconds_per_byte)
    worker = np.sum([_worker_seconds(draws, bucket.num_bytes) for bucket in rule.buckets(profile)], axis=0)
    trip = latency * draws.latency + max(0.0, own - latency) / draws.rate + worker
    alone = (profile.backward_seconds + profile.update_seconds) * factors + trip
    return np.asarray(np.maximum(alone, draws.num_ranks * np.maximum(busy / draws.rate, worker)))


def step_seconds(
    computed: ComputedStep,
    rule: ExchangeRule,
    exchanges: Sequence[BucketExchange],
    factors: Floats,
    rng: np.random.Generator,
    *,
    beside: Floats | float = 0.0,
) -> Floats:
    """(R, K) seconds of synchronous steps whose slowest rank computes `factors` times as long as planned.

    Wholly overlapped, its exchanges would make it compute `beside` seconds longer.
    """
    backward: Floats = computed.backward_seconds * factors
    alone: Floats = backward + computed.update_seconds * factors
    if not exchanges:
        return alone
    in_all: Floats = np.sum([exchange.seconds for exchange in exchanges], axis=0)
    if rule.overlap == "none":
        return alone + in_all
    if rule.overlap == "next_step":
        seconds = np.maximum(alone, in_all)
    else:
        end, behind = _exchanged(rule, exchanges, factors, rng)
        seconds = np.maximum(backward + behind, end) + computed.update_seconds * factors
    overlapped = 1 - np.clip((seconds - alone) / np.maximum(in_all, 1e-300), 0.0, 1.0)
    return np.asarray(seconds + beside * overlapped, dtype=np.float64)


def _exchanged(
    rule: ExchangeRule, exchanges: Sequence[BucketExchange], factors: Floats, rng: np.random.Generator
) -> tuple[Floats, Floats | float]:
    """When the last of overlapped exchanges is done, and by how much they make backpropagation later."""
    end = ready = np.zeros_like(factors)
    late: Floats | float = 0.0
    objective = 0
    for exchange in exchanges:  # objective after objective
        bucket = exchange.bucket
        if bucket.objective != objective and rule.objectives == "awaited":
            objective, late = bucket.objective, late + np.maximum(0.0, end - ready)
        ready = bucket.ready_seconds * factors + late
        if rule.cycle_seconds:  # a cycle begins any time between now and its length from now
            ready = ready + rule.cycle_seconds * rng.random(factors.shape)
        end = np.maximum(end, ready) + exchange.seconds
    return end, late
