"""A step's timeline: computing, a bucket's exchange as soon as it is ready and the one before is done, the update.

    computes   |-- forward --|------ backward ------|            |- update -|
    bucket 0                      ready |== exchange ==|
    bucket 1                              ready ........|=== exchange ===|

The slowest rank decides when a bucket is ready, as every rank's gradients are needed. Buckets to different servers do
not wait for each other, and where the new weights come back bucket by bucket, they do so while later ones still go.
Without overlap all exchanges follow backpropagation. Where an objective's are awaited, the next one begins that much
later. Delayed by a step, they have the whole of the next one: the longer of the two is what it takes.
Where ranks share samples, they exchange rows while they compute, and copy gradients into buckets where that was
measured; all that follows is that much later.
What is overlapped takes from the cores that compute: a step is longer by `beside`, as far as exchanges are overlapped.
Asynchronous servers make nobody wait for others: their links, or a worker's own round trip, limit the rate.

All arrays are (R, K): R replicates of K steps each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.predict.backend_rules import Bucket, ExchangeRule
from dlscale.analysis.predict.profile import ComputedStep

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketExchange:
    """A bucket with the seconds (R, 1) that its exchange takes in each replicate.

    `back_seconds` are those of its way back, where that may overlap with the next bucket's way there, and begins by
    `lag_seconds` later than links alone would have it, but not after the last bucket is there.
    """

    bucket: Bucket
    seconds: Floats
    back_seconds: Floats | None = None
    lag_seconds: Floats | float = 0.0


def step_seconds(
    computed: ComputedStep,
    rule: ExchangeRule,
    exchanges: Sequence[BucketExchange],
    factors: Floats,
    rng: np.random.Generator,
    *,
    halted: Callable[[float], Floats | float] = lambda _: 0.0,
    beside: Floats | float = 0.0,
) -> Floats:
    """(R, K) seconds of synchronous steps whose slowest rank computes `factors` times as long as planned.

    Before a moment of the undisturbed step it copies gradients for `halted` seconds. Wholly
    overlapped, its exchanges would make it compute `beside` seconds longer.
    """
    if not exchanges or rule.overlap == "none" or not np.any(beside):
        return _step_seconds(computed, rule, exchanges, factors, rng, halted=halted)
    alone = _step_seconds(computed, rule, (), factors, rng, halted=halted)
    seconds = _step_seconds(computed, rule, exchanges, factors, rng, halted=halted)
    in_all: Floats = np.sum([exchange.seconds for exchange in exchanges], axis=0)
    overlapped = 1 - np.clip((seconds - alone) / np.maximum(in_all, 1e-300), 0.0, 1.0)
    return np.asarray(seconds + beside * overlapped, dtype=np.float64)


def _step_seconds(
    computed: ComputedStep,
    rule: ExchangeRule,
    exchanges: Sequence[BucketExchange],
    factors: Floats,
    rng: np.random.Generator,
    *,
    halted: Callable[[float], Floats | float],
) -> Floats:
    """As `step_seconds`, where nothing is taken from the cores that compute."""
    backward: Floats = computed.backward_seconds * factors + halted(computed.backward_seconds)
    update: Floats = computed.update_seconds * factors
    if not exchanges:
        return backward + update
    in_all: Floats = np.sum([exchange.seconds for exchange in exchanges], axis=0)
    if rule.overlap == "next_step":
        return np.maximum(backward + update, in_all)
    if rule.overlap == "none":
        return backward + in_all + update
    begin = np.zeros_like(factors)
    end = sent = ready = begin
    late: Floats | float = 0.0
    server = objective = 0
    arrivals = []
    for exchange in exchanges:  # server after server, or objective after objective
        if exchange.bucket.server != server:
            server, sent = exchange.bucket.server, begin
        if exchange.bucket.objective != objective and rule.objectives == "awaited":
            objective, late = exchange.bucket.objective, late + np.maximum(0.0, end - ready)
        ready = exchange.bucket.ready_seconds * factors + (halted(exchange.bucket.ready_seconds) + late)
        if rule.cycle_seconds:  # a cycle begins any time between now and its length from now
            ready = ready + rule.cycle_seconds * rng.random(factors.shape)
        sent = np.maximum(sent, ready) + exchange.seconds
        end = np.maximum(end, sent)
        arrivals.append(sent)
    if any(exchange.back_seconds is not None for exchange in exchanges):
        end = np.maximum(end, _returned(exchanges, arrivals))
    return np.maximum(backward + late, end) + update


def _returned(exchanges: Sequence[BucketExchange], arrivals: Sequence[Floats]) -> Floats:
    """When the last new weights are back, of buckets that servers have at `arrivals`."""
    end: Floats = np.zeros_like(arrivals[0])
    pairs = zip(exchanges, arrivals, strict=True)
    for _, own in groupby(pairs, key=lambda pair: pair[0].bucket.server):
        of_server = list(own)
        last, returned = of_server[-1][1], np.zeros_like(end)
        for exchange, sent in of_server:
            if exchange.back_seconds is not None:
                added = np.minimum(sent + exchange.lag_seconds, last)
                returned = np.maximum(returned, added) + exchange.back_seconds
        end = np.maximum(end, returned)
    return end


def asynchronous_seconds(
    computed: ComputedStep, *, own_exchange: Floats, server_seconds: Floats, factors: Floats, num_ranks: int
) -> Floats:
    """(R, K) seconds in which as many local batches are applied as there are ranks.

    `own_exchange` is a worker's push and pull while nobody else sends, `server_seconds` what the busiest link of a
    server needs for one worker's push, both (R, 1); `factors` are those of any one rank.
    """
    alone = (computed.backward_seconds + computed.update_seconds) * factors + own_exchange
    return np.maximum(alone, num_ranks * server_seconds)
