"""The gate of ranks that share samples: together they do what one device does with whole samples.

Outputs and the mean gradient over all ranks, over the carrier that the training has, are compared with those of a
replica that has whole samples, from the same weights, in float64, where nothing but a fault is left. The tolerance is
derived in docs/measurements/audits.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dlscale.benchmarks.rank.deviation import EXACT, deviation, largest_difference
from dlscale.benchmarks.records.record import Gate
from dlscale.models.weights import WEIGHT
from dlscale.models.workload import Replica, ReplicaFactory, Shard, Weights

NUM_SAMPLES = 2  # of a replica at most: one device has them whole, and in float64
FACTORS = (1.0, 0.875)  # of the weights in each round: halos of the round before would show; exact
SHIFT = 3.0  # added to batch norm's shifts, so that few values lie next to the jump of ReLU, where rounding moves them
TOLERANCE = 1e-5


def split_gate(factory: ReplicaFactory, *, control: Any, shard: Shard, seed: int) -> Gate:
    """Outputs and gradients of NUM_SAMPLES in float64, which are added up over rounds of other weights; collective."""
    shared = factory(shard=shard, seed=seed, gate=True)
    top = shard.neighbours is not None and shard.neighbours.index == 0
    whole = factory(shard=replace(shard, neighbours=None), seed=seed, gate=True) if top else None
    first = [
        weight + np.float32(SHIFT) if "norm" in name and name.endswith("bias") else weight
        for weight, name in zip(shared.weights(), shared.names(), strict=True)
    ]
    output = 0.0
    totals = [[np.zeros(weight.shape) for weight in first] for _ in range(2)]  # of parts, of whole samples
    for factor in FACTORS:
        weights = [weight * weight.dtype.type(factor) for weight in first]
        own = _outputs(shared, weights, totals[0])
        if whole:
            expected = _outputs(whole, weights, totals[1])
            output = max(output, *map(largest_difference, own, expected))
    for total, count in zip(totals, (control.Get_size(), shard.count), strict=True):
        for added in total:
            control.Allreduce(None, added)
            added /= count
    output = max(control.allgather(output))
    # Some gradients are zero but for rounding (a bias before batch norm): they are measured by the largest.
    named = ({f"{WEIGHT}.{place}": array for place, array in enumerate(total)} for total in totals)
    gradient, _ = deviation({}, *named, bounds=EXACT)
    detail = (
        f"outputs ({output:.2g} of the largest) and mean gradient ({gradient:.2g} of a tensor's length) of "
        f"{int(control.Get_size()) // shard.count} ranks with parts of samples, in float64, against whole samples"
    )
    return Gate.at_most(TOLERANCE, max(output, gradient), name="split", detail=detail)


def _outputs(replica: Replica, weights: Weights, total: Weights) -> Weights:
    """Outputs with these weights; gradients are added to `total`."""
    replica.load(weights)
    outputs = replica.outputs()
    for added, gradient in zip(total, replica.gradients(), strict=True):
        added += gradient
    return outputs
