"""What the replicates of a prediction draw, and how long a step's exchanges take in each.

    once        rates and latency between the sources' limits, packed or scattered nodes, routing between minimal and
                adaptive, how fast a rank computes and software runs where that is derived
    per step    in `prediction`: the slowest rank, Horovod's phase

The draws of a replicate are the same on every number of nodes, so that curves do not rise or fall by chance. Replicates
share the cost of each algorithm for each kind of placement and routing, which is affine in the bytes.

A server works on a message while its link carries others. Of P workers' messages the longer of link and processor is
the time of all, and the other one's that of a single worker's, with which the pipeline fills:

    max(link, processor) + min(link, processor) / P
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.predict.backend_rules import HOROVOD_BITS_BYTES, Bucket
from dlscale.analysis.predict.costs import drawn
from dlscale.analysis.predict.exchange import Algorithm, NetworkExchange
from dlscale.analysis.predict.loggp import cost, mean_jitter
from dlscale.analysis.predict.network import Network, Placement, Routing
from dlscale.analysis.predict.profile import Profile
from dlscale.analysis.predict.scenario import Scenario
from dlscale.analysis.predict.timeline import BucketExchange, asynchronous_seconds

Floats = NDArray[np.float64]
STREAMS = ("once", "steps", "cycles", "messages", "error")


@dataclass(frozen=True, slots=True)
class Draws:
    """A size of `scenario`, and what each of its replicates draws once, (R, 1)."""

    scenario: Scenario
    num_nodes: int
    rate: Floats
    latency: Floats
    minimal: Floats  # weight of minimal routing
    scattered: NDArray[np.bool_]
    pace: Floats  # of computing, as a factor on the profile's times
    # From 0 to 1, between the limits: how many samples a step computes at least as long as.
    least_batch: Floats
    lag: Floats  # likewise: how much later than links alone would have it chunks come back
    software: Floats  # from 0 to 1: what software costs, between its limits
    threads: Floats  # likewise: how many of a server's cores work at once
    contention: (
        Floats  # likewise: what the backend's exchanges take from computing, which others' do not tell
    )

    @property
    def num_ranks(self) -> int:
        """The workers."""
        return self.num_nodes * self.scenario.ranks_per_node

    @property
    def network(self) -> Network:
        """The network; where a server's processor has a cost, adding is in that."""
        network = self.scenario.network
        return replace(network, reduce_seconds_per_byte=0.0) if self.scenario.serving else network

    @property
    def in_training(self) -> Floats:
        """(R, 1) how many times as long as by itself what a node's memory carries takes."""
        return drawn(self.scenario.in_training, self.software)

    def stream(self, name: str) -> np.random.Generator:
        """The random numbers of that name, the same on every number of nodes."""
        return stream(self.scenario, name)

    def pace_of(self, profile: Profile) -> Floats:
        """How much longer than in the profile both passes take, whose fixed cost has limits of its own."""
        fixed = profile.fixed_share
        idle = np.maximum(0.0, drawn(profile.least_batch, self.least_batch) / profile.local_batch - 1)
        computing = profile.backward_seconds / (profile.backward_seconds + profile.update_seconds)
        pace = self.pace * (1 + idle * computing)  # an update does not depend on the batch
        return (1 - fixed) * pace + fixed * drawn(profile.fixed_factors, self.software)

    def exchange(
        self, algorithm: Algorithm, placement: Placement = "packed", routing: Routing = "adaptive"
    ) -> NetworkExchange:
        """An exchange between the nodes."""
        scenario = self.scenario
        return NetworkExchange(
            algorithm=algorithm,
            num_nodes=self.num_nodes,
            ranks_per_node=scenario.ranks_per_node,
            num_servers=scenario.rule.num_equal_servers(scenario.profile, scenario.servers(self.num_ranks)),
            placement=placement,
            routing=routing,
            seed=scenario.seed,
        )


def stream(scenario: Scenario, name: str) -> np.random.Generator:
    """The random numbers of that name, one of STREAMS."""
    return np.random.default_rng(seed_of(scenario, name))


def seed_of(scenario: Scenario, name: str) -> tuple[int, int]:
    """That of `stream`."""
    return scenario.seed, STREAMS.index(name)


def draws_of(scenario: Scenario, num_nodes: int) -> Draws:
    """The draws of that size."""
    network, uniform = scenario.network, stream(scenario, "once").random((9, scenario.num_replicates, 1))
    own = np.random.default_rng([scenario.seed, len(STREAMS), zlib.crc32(scenario.rule.backend.encode())])
    return Draws(
        scenario=scenario,
        num_nodes=num_nodes,
        rate=drawn(network.rate_factors, uniform[0]),
        latency=drawn(network.latency_factors, uniform[1]),
        minimal=uniform[2],
        scattered=uniform[3] < 0.5,
        pace=drawn(scenario.profile.time_factors, uniform[4]),
        software=uniform[5],
        threads=uniform[6],
        least_batch=uniform[7],
        lag=uniform[8],
        contention=own.random((scenario.num_replicates, 1)),
    )


def exchanges_of(draws: Draws, profile: Profile) -> list[BucketExchange]:
    """The buckets with the seconds that each exchange takes in each replicate; none where nobody else is there."""
    rule = draws.scenario.rule
    if rule.asynchronous or (draws.num_ranks == 1 and not rule.serves):
        return []
    if rule.cycle_seconds:
        return _fused_exchanges(draws, profile)
    num_servers = draws.scenario.servers(draws.num_ranks)
    buckets = rule.buckets(profile, num_servers=num_servers)
    # All servers get chunks at the same time, so that a chunk takes as long as a message that all have a share of.
    at_once = num_servers if rule.in_chunks else 1
    largest: dict[Algorithm, int] = {}
    for bucket in buckets:
        algorithm = rule.algorithm(bucket.num_bytes)
        largest[algorithm] = max(largest.get(algorithm, 0), at_once * bucket.num_bytes)
    seconds = {algorithm: _seconds_of(draws, algorithm, size) for algorithm, size in largest.items()}
    found = []
    for bucket in buckets:
        link = seconds[rule.algorithm(bucket.num_bytes)](at_once * bucket.num_bytes)
        found.append(
            _served(draws, bucket, link) if rule.serves else BucketExchange(bucket=bucket, seconds=link)
        )
    return found


def _served(draws: Draws, bucket: Bucket, link: Floats) -> BucketExchange:
    """An exchange with servers, whose links it keeps busy for `link`, one way as long as the other.

    Chunks come back while others go; servers work on what comes, and add before anything comes back.
    """
    rule = draws.scenario.rule
    worker = worker_seconds(draws, bucket.num_bytes)
    if not rule.in_chunks:
        return BucketExchange(bucket=bucket, seconds=pipelined(link, worker, draws.num_ranks))
    adding = draws.num_ranks * bucket.num_bytes * draws.network.reduce_seconds_per_byte / draws.rate
    back: Floats = np.maximum(0.0, link - adding) / 2
    there = pipelined(link - back, worker, draws.num_ranks)
    lag: Floats | float = 0.0
    if draws.scenario.serving and draws.num_ranks > 1:
        lag = there * drawn(draws.scenario.serving.lag, draws.lag)
    return BucketExchange(bucket=bucket, seconds=there, back_seconds=back, lag_seconds=lag)


def pipelined(link: Floats, worker: Floats, num_workers: int) -> Floats:
    """Seconds of all workers' messages, of which a server's processor takes `worker` for one worker's."""
    processor = num_workers * worker
    return np.asarray(np.maximum(link, processor) + np.minimum(link, processor) / num_workers)


def worker_seconds(draws: Draws, num_bytes: int) -> Floats:
    """(R, 1) what the fullest server's processor takes for a bucket of one worker, there and back."""
    scenario = draws.scenario
    rule, serving = scenario.rule, scenario.serving
    if serving is None:
        return np.zeros_like(draws.rate)
    share = 1.0 if rule.in_chunks else 1 / draws.exchange("parameter_servers").num_servers
    messages = share if rule.whole_tensors else 1.0
    return serving.seconds(messages, share * num_bytes, software=draws.software, threads=draws.threads)


def _fused_exchanges(draws: Draws, profile: Profile) -> list[BucketExchange]:
    """Horovod's: what is fused depends on how long the exchange before takes, in the middle of the replicates."""
    rule, coordination = draws.scenario.rule, draws.scenario.coordination
    bits = 2 * _seconds_of(draws, "recursive_doubling", HOROVOD_BITS_BYTES)(HOROVOD_BITS_BYTES)
    latency = draws.network.latency_seconds * draws.latency
    whole = sum(gradient.num_bytes for gradient in profile.gradients) * rule.bytes_per_element // 4
    known: dict[Algorithm, Callable[[int], Floats]] = {}

    def seconds(bucket: Bucket) -> Floats:
        algorithm = rule.algorithm(bucket.num_bytes)
        if algorithm not in known:
            known[algorithm] = _seconds_of(draws, algorithm, whole)
        agreeing = bits
        if coordination:
            of_rank = coordination.seconds(latency, bucket.num_tensors, software=draws.software)
            agreeing = (draws.num_ranks - 1) * of_rank
        own: Floats = agreeing + known[algorithm](bucket.num_bytes)
        return own

    buckets = rule.buckets(profile, seconds_of=lambda bucket: float(np.median(seconds(bucket))))
    return [BucketExchange(bucket=bucket, seconds=seconds(bucket)) for bucket in buckets]


def _seconds_of(draws: Draws, algorithm: Algorithm, largest: int) -> Callable[[int], Floats]:
    """Bytes -> seconds (R, 1) of an exchange in each replicate, with the jitter of one of `largest` bytes."""
    network = draws.network

    def line(placement: Placement, routing: Routing) -> tuple[float, float]:
        own = cost(network, draws.exchange(algorithm, placement, routing))
        return own.seconds, own.seconds_per_byte

    fixed, slope = (np.full_like(draws.rate, value) for value in line("packed", "adaptive"))
    if network.groups is not None:
        minimal, scattered = line("packed", "minimal"), line("scattered", "adaptive")
        fixed, slope = (
            np.where(draws.scattered, far, (1 - draws.minimal) * wide + draws.minimal * direct)
            for wide, direct, far in zip((fixed, slope), minimal, scattered, strict=True)
        )
    jitter = mean_jitter(network, draws.exchange(algorithm), num_bytes=largest, rng=draws.stream("messages"))
    within, more = network.within_node or (0.0, 0.0), draws.in_training - 1

    def seconds(num_bytes: int) -> Floats:
        longer = more * (within[0] + num_bytes * within[1])
        return fixed * draws.latency + jitter + num_bytes * slope / draws.rate + longer

    return seconds


def asynchronous(draws: Draws, profile: Profile, factors: Floats) -> Floats:
    """A worker alone with the servers, and what their busiest link or processor needs for one worker's gradients."""
    network = draws.network
    num_bytes = sum(bucket.num_bytes for bucket in draws.scenario.rule.buckets(profile))
    alone = replace(draws.exchange("parameter_servers"), num_nodes=1, ranks_per_node=1)
    own = cost(network, alone).of(num_bytes)
    latency = 2 * network.latency_seconds
    of_server = num_bytes / alone.num_servers
    busy = max(of_server / network.node_bytes_per_second, of_server * network.reduce_seconds_per_byte)
    worker = _busiest(draws, profile)
    return asynchronous_seconds(
        profile,
        own_exchange=latency * draws.latency + max(0.0, own - latency) / draws.rate + worker,
        server_seconds=np.maximum(busy / draws.rate, worker),
        factors=factors,
        num_ranks=draws.num_ranks,
    )


def _busiest(draws: Draws, profile: Profile) -> Floats:
    """(R, 1) what the busiest server's processor takes for all of one worker's gradients."""
    by_server: dict[int, Floats] = {}
    for bucket in draws.scenario.rule.buckets(profile, num_servers=draws.scenario.servers(draws.num_ranks)):
        taken = by_server.get(bucket.server, np.zeros_like(draws.rate))
        by_server[bucket.server] = taken + worker_seconds(draws, bucket.num_bytes)
    return np.asarray(np.maximum.reduce(list(by_server.values())))
