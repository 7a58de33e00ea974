"""The gates of ranks that share samples: together they do what one device does with whole samples.

Outputs and the mean gradient over all ranks, over the carrier that the training has, are compared with those of a
replica that has whole samples, from the same weights: in float64, where nothing but a fault is left, and in the
precision of the training. Tolerances are derived in docs/measurements/audits.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dlscale.benchmarks.rank.deviation import EXACT, deviation, nan_last
from dlscale.benchmarks.rank.spec import LaunchSpec
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.record import Gate
from dlscale.models.weights import WEIGHT
from dlscale.models.workload import ReplicaFactory, Shard, Weights

NUM_SAMPLES = 2  # of a replica at most: one device has them whole, and in float64
SHRUNK = 0.875  # what weights of the second round are of those of the first: exact
IN_FLOAT64 = 1e-5
# Of the largest output, and of the gradient's length, which has jumps: where rounding moves a value across that of
# ReLU.
IN_PRECISION = {"fp32": (1e-4, 3e-2), "tf32": (5e-3, 1e-1), "bf16": (5e-2, 2e-1)}


def split_gates(spec: LaunchSpec, cell: Cell, *, control: Any, shard: Shard) -> list[Gate]:
    """Those of a launch; collective."""
    asked: dict[str, Any] = {"local_batch": min(cell.local_batch, NUM_SAMPLES)}
    exact = spec.factory(cell.model_copy(update=asked | {"precision": "fp64", "compiled": False}))
    own = spec.factory(cell.model_copy(update=asked))
    where = {"control": control, "shard": shard, "seed": spec.seed}
    return [split_gate(exact, **where), split_precision_gate(own, precision=cell.precision, **where)]


def split_gate(factory: ReplicaFactory, *, control: Any, shard: Shard, seed: int) -> Gate:
    """In float64; collective. In a second round weights are others: halos of the one before would show."""
    output, mean, wanted = _compared(factory, (1.0, SHRUNK), control=control, shard=shard, seed=seed)
    # Some gradients are zero but for rounding (a bias before batch norm): they are measured by the largest.
    named = ({f"{WEIGHT}.{place}": array for place, array in enumerate(of)} for of in (mean, wanted))
    worst_tensor = deviation({}, *named, bounds=EXACT).share
    detail = (
        f"outputs ({output:.2g} of the largest) and mean gradient ({worst_tensor:.2g} of a tensor's "
        f"length) of {_num_sharing(control, shard)} ranks with parts of samples, in float64, against whole samples"
    )
    worst = max(output, worst_tensor, key=nan_last)
    return Gate.at_most(IN_FLOAT64, worst, name="split", detail=detail)


def split_precision_gate(
    factory: ReplicaFactory, *, control: Any, shard: Shard, seed: int, precision: str
) -> Gate:
    """In the precision of the training; collective."""
    output, mean, wanted = _compared(factory, (1.0,), control=control, shard=shard, seed=seed)
    gradient = _ratio(_length([a - b for a, b in zip(mean, wanted, strict=True)]), _length(wanted))
    allowed = IN_PRECISION[precision]
    detail = (
        f"the same in {precision}: outputs ({output:.2g}, allowed {allowed[0]:g}) and mean gradient "
        f"({gradient:.2g}, allowed {allowed[1]:g}), of what is allowed"
    )
    worst = max(output / allowed[0], gradient / allowed[1], key=nan_last)
    return Gate.at_most(1.0, worst, name="split_precision", detail=detail)


def _num_sharing(control: Any, shard: Shard) -> int:
    return int(control.Get_size()) // shard.count


def _compared(
    factory: ReplicaFactory, factors: tuple[float, ...], *, control: Any, shard: Shard, seed: int
) -> tuple[float, Weights, Weights]:
    """Outputs' worst difference, of the largest; mean gradients of ranks with rows; and of those with whole samples.

    With first weights times each of the factors, one after the other, over which gradients are added up. The worst of
    all ranks; infinite where not finite. Collective.
    """
    shared = factory(shard=shard, seed=seed, gate=True)
    top = shard.neighbours is not None and shard.neighbours.index == 0
    whole = factory(shard=replace(shard, neighbours=None), seed=seed, gate=True) if top else None
    first = smoothed(shared.weights(), shared.names())
    output = 0.0
    own, expected = ([np.zeros(weight.shape) for weight in first] for _ in range(2))
    for factor in factors:
        weights = [weight * weight.dtype.type(factor) for weight in first]
        shared.load(weights)
        outputs = shared.outputs()
        _add(own, shared.gradients())
        if whole:
            whole.load(weights)
            output = max(output, *map(_relative, outputs, whole.outputs()), key=nan_last)
            _add(expected, whole.gradients())
    for totals, count in ((own, control.Get_size()), (expected, shard.count)):
        for total in totals:
            control.Allreduce(None, total)
            total /= count
    return max(control.allgather(output), key=nan_last), own, expected


SHIFT = 3.0  # added to batch norm's shifts


def smoothed(weights: Weights, names: Sequence[str]) -> Weights:
    """The same weights, with the shifts of batch norm raised, so that few values lie next to the jump of ReLU.

    With first weights as they are, rounding moves some values of a deep network across it, and the gradients of the
    same network computed twice, in another order, differ by percents, from each other and from float64.
    """
    return [
        weight + np.float32(SHIFT) if "norm" in name and name.endswith("bias") else weight
        for weight, name in zip(weights, names, strict=True)
    ]


def _add(totals: Weights, gradients: Weights) -> None:
    for total, gradient in zip(totals, gradients, strict=True):
        total += gradient


def _relative(output: Any, expected: Any) -> float:
    if output.shape != expected.shape:
        return math.inf
    return _ratio(float(np.max(np.abs(output - expected))), float(np.max(np.abs(expected))))


def _length(arrays: Weights) -> float:
    return math.sqrt(math.fsum(float(np.sum(np.square(array))) for array in arrays))


def _ratio(part: float, whole: float) -> float:
    if not (math.isfinite(part) and math.isfinite(whole)):
        return math.inf
    return part / whole if whole else math.inf if part else 0.0
