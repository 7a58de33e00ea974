"""The gates of ranks that share samples: together they do what one device does with whole samples.

Outputs and the mean gradient over all ranks, over the carrier that the training has, are compared with those of a
replica that has whole samples, from the same weights: in float64, where nothing but a fault is left, and in the
precision of the training. Tolerances are derived in docs/measurements/audits.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dlscale.benchmarks.rank.deviation import EXACT, deviation, nan_last
from dlscale.benchmarks.rank.replaying import smoothed
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
    pair = _Pair.of(factory, control=control, shard=shard, seed=seed)
    found = pair.compared(*pair.first_weights(SHRUNK))
    detail = (
        f"outputs ({found.output:.2g} of the largest) and mean gradient ({found.worst_tensor:.2g} of a tensor's "
        f"length) of {pair.num_sharing} ranks with parts of samples, in float64, against whole samples"
    )
    worst = max(found.output, found.worst_tensor, key=nan_last)
    return Gate.at_most(IN_FLOAT64, worst, name="split", detail=detail)


def split_precision_gate(
    factory: ReplicaFactory, *, control: Any, shard: Shard, seed: int, precision: str
) -> Gate:
    """In the precision of the training; collective."""
    pair = _Pair.of(factory, control=control, shard=shard, seed=seed)
    found, allowed = pair.compared(*pair.first_weights()), IN_PRECISION[precision]
    detail = (
        f"the same in {precision}: outputs ({found.output:.2g}, allowed {allowed[0]:g}) and mean gradient "
        f"({found.gradient:.2g}, allowed {allowed[1]:g}), of what is allowed"
    )
    worst = max(found.output / allowed[0], found.gradient / allowed[1], key=nan_last)
    return Gate.at_most(1.0, worst, name="split_precision", detail=detail)


@dataclass(frozen=True, slots=True)
class Differences:
    """Between ranks with parts of samples and one device, the worst of all ranks; infinite where not finite."""

    output: float  # of the largest of each
    gradient: float  # of its length
    worst_tensor: float  # of the length of each tensor of the gradient


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """This rank's replica with its rows of samples and, on the top rank, one with whole samples."""

    shared: Any
    whole: Any
    control: Any
    num_replicas: int

    @classmethod
    def of(cls, factory: ReplicaFactory, *, control: Any, shard: Shard, seed: int) -> _Pair:
        top = shard.neighbours is not None and shard.neighbours.index == 0
        return cls(
            shared=factory(shard=shard, seed=seed, gate=True),
            whole=factory(shard=replace(shard, neighbours=None), seed=seed, gate=True) if top else None,
            control=control,
            num_replicas=shard.count,
        )

    @property
    def num_sharing(self) -> int:
        return int(self.control.Get_size()) // self.num_replicas

    def first_weights(self, *factors: float) -> list[Weights]:
        """Those that both begin with, and those times each of the factors."""
        weights = smoothed(self.shared.weights(), self.shared.names())
        return [weights, *([weight * weight.dtype.type(factor) for weight in weights] for factor in factors)]

    def compared(self, *rounds: Weights) -> Differences:
        """With these weights, one after the other; gradients are added up before they travel. Collective."""
        output, own, expected = 0.0, _zeros(rounds[0]), _zeros(rounds[0])
        for weights in rounds:
            self.shared.load(weights)
            outputs = self.shared.outputs()
            _add(own, self.shared.gradients())
            if self.whole:
                self.whole.load(weights)
                output = max(output, *map(_relative, outputs, self.whole.outputs()), key=nan_last)
                _add(expected, self.whole.gradients())
        found = self._mean(own, self.control.Get_size())
        wanted = self._mean(expected, self.num_replicas)
        errors = [a - b for a, b in zip(found, wanted, strict=True)]
        return Differences(
            output=max(self.control.allgather(output), key=nan_last),
            gradient=_ratio(_length(errors), _length(wanted)),
            worst_tensor=_worst_tensor(found, wanted),
        )

    def _mean(self, totals: Weights, count: int) -> Weights:
        """The sum over ranks, divided, in place."""
        for total in totals:
            self.control.Allreduce(None, total)
            total /= count
        return totals


def _zeros(weights: Weights) -> Weights:
    """Room for their gradients in float64."""
    return [np.zeros(weight.shape) for weight in weights]


def _add(totals: Weights, gradients: Weights) -> None:
    for total, gradient in zip(totals, gradients, strict=True):
        total += gradient


def _relative(found: Any, expected: Any) -> float:
    if found.shape != expected.shape:
        return math.inf
    return _ratio(float(np.max(np.abs(found - expected))), float(np.max(np.abs(expected))))


def _worst_tensor(found: Weights, expected: Weights) -> float:
    """Some are zero but for rounding (a bias before batch norm): they are measured by the largest (`deviation`)."""
    changes = ({f"{WEIGHT}.{place}": array for place, array in enumerate(of)} for of in (found, expected))
    return deviation({}, *changes, bounds=EXACT).share


def _length(arrays: Sequence[Any]) -> float:
    return math.sqrt(math.fsum(float(np.sum(np.square(array))) for array in arrays))


def _ratio(part: float, whole: float) -> float:
    if not (math.isfinite(part) and math.isfinite(whole)):
        return math.inf
    return part / whole if whole else math.inf if part else 0.0
