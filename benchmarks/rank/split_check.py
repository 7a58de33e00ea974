"""Whether ranks that share samples do what one device does: the gates of `split.py` between threads of one process.

python -m dlscale.benchmarks.rank.split_check REQUEST     prints `SplitCheck` objects, a line each
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from pydantic import PositiveInt

from dlscale.base.definitions import Frozen
from dlscale.base.strings import Name, Text
from dlscale.benchmarks.rank.split import NUM_SAMPLES, split_gate, split_precision_gate
from dlscale.benchmarks.records.record import Gate
from dlscale.collectives.neighbours.gathering import GatheringNeighbours, in_threads
from dlscale.models import load_workload
from dlscale.models.frameworks import framework_module
from dlscale.models.workload import Execution, Input, Preset, ReplicaFactory, Shard, Workload

SEED = 1
SPLITS = (2, 3)  # 3 ranks have uneven rows of most samples


class SplitRequest(Frozen):
    """What to check; a preset that is named by no one is the smallest."""

    workload: Text
    frameworks: list[Text]
    preset: Name
    precision: Name


class SplitCheck(Frozen):
    """What was found of a workload in a framework on `split` ranks; nothing where its samples have too few blocks."""

    workload: Text
    framework: Text
    preset: Text
    precision: Text
    split: PositiveInt
    checks: list[Gate]

    @property
    def passed(self) -> bool:
        """All of them."""
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


def _gates(workload: Workload, framework: str, taken: Preset, *, precision: str, split: int) -> list[Gate]:
    def factory(precision: str) -> ReplicaFactory:
        rows = taken.input_shape[1]
        return workload.factory(
            framework=framework,
            preset=taken.name,
            local_batch=NUM_SAMPLES,
            source=Input(),
            height=None if rows == workload.preset(taken.name).input_shape[1] else rows,
            execution=Execution(precision=precision),
        )

    exact, own = factory("fp64"), factory(precision)

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


if __name__ == "__main__":
    main()
