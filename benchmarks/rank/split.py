"""The gate of ranks that share samples: together they do what one device does with whole samples.

Outputs and the mean gradient over all ranks, through the carrier that the training has, against those of a replica
that has whole samples: the same network from the same weights. Two rounds, with other weights in the second: halos of
the step before would show. Their tolerances are derived in docs/measurements/audits.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dlscale.benchmarks.rank.deviation import EXACT, deviation, nan_last
from dlscale.benchmarks.rank.gates import RELATIVE_TOLERANCE
from dlscale.benchmarks.rank.replaying import smoothed
from dlscale.benchmarks.rank.spec import LaunchSpec
from dlscale.benchmarks.records.record import Cell, Gate
from dlscale.models.weights import WEIGHT
from dlscale.models.workload import SYNTHETIC, ReplicaFactory, Shard, Weights

# Where batch norm, and ReLU behind it, passes on what sums over ranks round otherwise.
WITH_BATCH_NORM = {"fp32": 1e-3, "tf32": 1e-2, "bf16": 1e-1}

SHRUNK = 0.875  # what the weights of the second round are of those of the first: exact


def split_tolerance(precision: str, *, batch_norm: bool) -> float:
    """Of the root mean square of each tensor of the gradient, and of the largest output."""
    return (WITH_BATCH_NORM if batch_norm else RELATIVE_TOLERANCE)[precision]


def gate_for(spec: LaunchSpec, cell: Cell, *, control: Any, shard: Shard) -> Gate:
    """That of a launch, at as many rows as one device may be asked for; collective.

    The preset's own, or, where those are too few blocks for so many ranks, a block for each: a cell with more rows has
    the same network.
    """
    facts = spec.facts(cell)
    preset = facts.preset(cell.preset)
    rows = max(preset.input_shape[1], cell.split * preset.block_rows)
    elsewhere: dict[str, Any] = {"height": None if rows == preset.input_shape[1] else rows}
    if elsewhere["height"] != cell.height:
        elsewhere["data"] = str(SYNTHETIC)
    return split_gate(
        spec.factory(cell.model_copy(update=elsewhere)),
        control=control,
        shard=shard,
        seed=spec.seed,
        tolerance=split_tolerance(cell.precision, batch_norm=facts.running_statistics),
        rows=rows,
    )


def split_gate(
    factory: ReplicaFactory, *, control: Any, shard: Shard, seed: int, tolerance: float, rows: int
) -> Gate:
    """Of samples of so many rows; collective."""
    whole = shard.neighbours is not None and shard.neighbours.index == 0
    shared = factory(shard=shard, seed=seed, gate=True)
    alone = factory(shard=replace(shard, neighbours=None), seed=seed, gate=True) if whole else None
    weights = smoothed(shared.weights(), shared.names())
    worst_output = worst_gradient = 0.0
    for _ in range(2):
        shared.load(weights)
        outputs, gradients = shared.outputs(), shared.gradients()
        expected: Weights = [np.zeros_like(gradient) for gradient in gradients]
        if alone:
            alone.load(weights)
            worst_output = max(worst_output, output_error(outputs, alone.outputs()), key=nan_last)
            expected = alone.gradients()
        found = _mean(gradients, control=control, count=control.Get_size())
        worst_gradient = max(
            worst_gradient,
            gradient_error(found, _mean(expected, control=control, count=shard.count)),
            key=nan_last,
        )
        weights = [weight * np.float32(SHRUNK) for weight in weights]
    worst_output = max(control.allgather(worst_output), key=nan_last)
    detail = (
        f"outputs ({worst_output:.2g} of the largest) and the mean gradient ({worst_gradient:.2g} of a tensor's) of "
        f"{rows} rows on {shard.neighbours.split if shard.neighbours else 1} ranks against one device's"
    )
    return Gate.at_most(
        tolerance, max(worst_output, worst_gradient, key=nan_last), name="split", detail=detail
    )


def output_error(found: Weights, expected: Weights) -> float:
    """The largest difference, of the largest of each output."""
    errors = [
        float(np.max(np.abs(own - other)) / np.max(np.abs(other))) if own.shape == other.shape else np.inf
        for own, other in zip(found, expected, strict=True)
    ]
    return max(errors, key=nan_last)


def gradient_error(found: Weights, expected: Weights) -> float:
    """The length of the difference of a tensor, of the tensor's; the worst one.

    Some are zero but for rounding (a bias before batch norm): they are measured by the largest, as `deviation` does.
    """
    as_changes = [{f"{WEIGHT}.{place}": array for place, array in enumerate(of)} for of in (found, expected)]
    return deviation({}, *as_changes, bounds=EXACT).share


def _mean(gradients: Weights, *, control: Any, count: int) -> Weights:
    """The sum over ranks in float64, divided."""
    totals = [np.asarray(gradient, np.float64, order="C") for gradient in gradients]
    for total in totals:
        control.Allreduce(None, total)
        total /= count
    return totals
