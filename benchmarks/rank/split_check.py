"""Whether ranks that share samples do what one device does: the gates of `split.py` between threads of one process.

And whether they do the same in two frameworks, from the same weights, as `parity.py` asks of whole samples.

python -m dlscale.benchmarks.rank.split_check REQUEST     prints `SplitCheck` objects, a line each
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pydantic import PositiveInt

from dlscale.base.definitions import Frozen
from dlscale.base.strings import Name, Text
from dlscale.benchmarks.rank.deviation import nan_last
from dlscale.benchmarks.rank.parity import TOLERANCES, gradient_difference, output_difference
from dlscale.benchmarks.rank.replaying import smoothed
from dlscale.benchmarks.rank.split import IN_FLOAT64, NUM_SAMPLES, split_gate, split_precision_gate
from dlscale.benchmarks.records.record import Gate
from dlscale.collectives.neighbours.gathering import GatheringNeighbours, in_threads
from dlscale.models import load_workload
from dlscale.models.frameworks import framework_module
from dlscale.models.workload import Execution, Input, Preset, ReplicaFactory, Shard, Weights, Workload

SEED = 1
SPLITS = (2, 3)  # 3 ranks have uneven rows of most samples


class SplitRequest(Frozen):
    """What to check; a preset that is named by no one is the smallest."""

    workload: Text
    frameworks: list[Text]
    preset: Name
    precision: Name


class SplitCheck(Frozen):
    """What was found of a workload on `split` ranks, in a framework versus one device or in one versus another.

    Nothing where its samples have too few blocks.
    """

    workload: Text
    framework: Text
    preset: Text
    precision: Text
    split: PositiveInt
    checks: list[Gate]

    @property
    def passed(self) -> bool:
        return all(gate.passed for gate in self.checks)


def preset_to_split(workload: Workload, name: str, split: int) -> Preset | None:
    """The preset, with as many more rows as so many ranks need; None where its samples have too few blocks."""
    preset = workload.preset(name)
    if not preset.block_rows:
        return None
    if preset.largest_split >= split:
        return preset
    return workload.preset(name, height=split * preset.block_rows) if workload.at_height else None


def check_split(workload: Workload, framework: str, *, preset: str, precision: str, split: int) -> SplitCheck:
    """The gates of one workload in a framework. Raises UsageError if it is not installed."""
    taken = preset_to_split(workload, preset, split)
    return SplitCheck(
        workload=workload.name,
        framework=framework,
        preset=preset,
        precision=precision,
        split=split,
        checks=_gates(workload, framework, taken, precision=precision, split=split) if taken else [],
    )


def check_frameworks(
    workload: Workload, frameworks: Sequence[str], *, preset: str, precision: str, split: int
) -> SplitCheck:
    """One framework versus another, both on `split` ranks. Raises UsageError if one is not installed."""
    taken = preset_to_split(workload, preset, split)
    checks: list[Gate] = []
    if taken:
        factories = {
            (of, how): _factory(workload, of, taken, how) for of in frameworks for how in ("fp64", precision)
        }
        first = factories[frameworks[0], precision](shard=Shard(), seed=SEED, gate=True)
        weights = smoothed(first.weights(), first.names())
        for how, allowed, name in (
            ("fp64", {"outputs": IN_FLOAT64, "gradient": IN_FLOAT64}, "frameworks"),
            (precision, TOLERANCES[precision], "frameworks_precision"),
        ):
            one, other = (_numbers(factories[of, how], weights, split) for of in frameworks)
            outputs = max(map(output_difference, one[0], other[0]), key=nan_last)
            gradient = gradient_difference(one[1], other[1])
            worst = max(outputs / allowed["outputs"], gradient / allowed["gradient"], key=nan_last)
            detail = (
                f"outputs ({outputs:.2g}, allowed {allowed['outputs']:g}) and mean gradient ({gradient:.2g}, allowed "
                f"{allowed['gradient']:g}) of {split} ranks in {' and '.join(frameworks)}, in {how}, of what is allowed"
            )
            checks.append(Gate.at_most(1.0, worst, name=name, detail=detail))
    return SplitCheck(
        workload=workload.name,
        framework=" versus ".join(frameworks),
        preset=preset,
        precision=precision,
        split=split,
        checks=checks,
    )


def _numbers(factory: ReplicaFactory, weights: Weights, split: int) -> tuple[Weights, Weights]:
    """(outputs, mean gradient) of so many ranks with these weights."""

    def on_rank(neighbours: GatheringNeighbours) -> tuple[Weights, Weights]:
        replica = factory(shard=Shard(neighbours=neighbours), seed=SEED, gate=True)
        replica.load(weights)
        outputs = replica.outputs()
        gradients = [np.asarray(own, np.float64, order="C") for own in replica.gradients()]
        for gradient in gradients:
            neighbours.sum(gradient)
            gradient /= split
        return outputs, gradients

    return in_threads(split, on_rank)[0]


def _factory(workload: Workload, framework: str, taken: Preset, precision: str) -> ReplicaFactory:
    rows = taken.input_shape[1]
    return workload.factory(
        framework=framework,
        preset=taken.name,
        local_batch=NUM_SAMPLES,
        source=Input(),
        height=None if rows == workload.preset(taken.name).input_shape[1] else rows,
        execution=Execution(precision=precision),
    )


def _gates(workload: Workload, framework: str, taken: Preset, *, precision: str, split: int) -> list[Gate]:
    exact, own = (_factory(workload, framework, taken, how) for how in ("fp64", precision))

    def on_rank(neighbours: GatheringNeighbours) -> list[Gate]:
        where: dict[str, Any] = {
            "control": _Control(neighbours),
            "shard": Shard(neighbours=neighbours),
            "seed": SEED,
        }
        return [split_gate(exact, **where), split_precision_gate(own, precision=precision, **where)]

    return in_threads(split, on_rank)[0]


class _Control:
    """What gates ask of a communicator of the ranks, between threads."""

    def __init__(self, neighbours: GatheringNeighbours) -> None:
        self._neighbours = neighbours
        self.allgather = neighbours.allgather

    def Get_size(self) -> int:  # noqa: N802
        return self._neighbours.split

    def Allreduce(self, sendbuf: None, recvbuf: Any) -> None:  # noqa: ARG002, N802
        self._neighbours.sum(recvbuf)


def main(emit: Callable[[str], object] = sys.stdout.write) -> None:
    """Do what the command line's JSON asks for."""
    request = SplitRequest.model_validate(json.loads(sys.argv[1]))
    workload = load_workload(request.workload)
    for framework in request.frameworks:
        # A rank that waits for another holds an operation of TensorFlow's, of which `slept` runs three at a time.
        framework_module(framework).prepare(1, slept=True)
    for framework in request.frameworks:
        for split in SPLITS:
            found = check_split(
                workload, framework, preset=request.preset, precision=request.precision, split=split
            )
            emit(found.model_dump_json() + "\n")
            sys.stdout.flush()
    if len(request.frameworks) > 1:
        found = check_frameworks(
            workload, request.frameworks, preset=request.preset, precision=request.precision, split=SPLITS[0]
        )
        emit(found.model_dump_json() + "\n")


if __name__ == "__main__":
    main()
