"""What workloads state that a step exchanges, against what their networks do exchange."""

from __future__ import annotations

from collections import Counter

import pytest

from dlscale.collectives.neighbours import CarriedNeighbours
from dlscale.collectives.neighbours.gathering import GatheringNeighbours, in_threads
from dlscale.models import NAMES, load_workload
from dlscale.models.parallel.exchanges import FLOAT32_BYTES, MAP_BYTES, Place, calls_of
from dlscale.models.workload import Execution, Input, Shard

BATCH, SPLIT = 2, 3
CASES = [
    ("hep_cnn", "tiny", None, "fp32"),
    ("hep_cnn", "paper", 48, "fp32"),
    ("cosmogan", "tiny", None, "bf16"),
    ("resnet50", "tiny", 96, "bf16"),
]


class Threads:
    """A carrier (`carried.Carrier`) between threads."""

    takes_tensors = False

    def __init__(self, neighbours: GatheringNeighbours) -> None:
        self._neighbours, self.index = neighbours, neighbours.index
        self.sum, self.gather = neighbours.sum, neighbours.gather

    def exchange(self, sends, receives):
        """Arrays by the rank that they go to or come from."""
        sent, received = dict(sends), dict(receives)
        up, down = self.index - 1, self.index + 1
        self._neighbours.exchange(sent.get(up), sent.get(down), received.get(up), received.get(down))


@pytest.mark.parametrize(("name", "preset", "height", "precision"), CASES)
def test_a_step_exchanges_what_its_workload_states(name, preset, height, precision):
    workload = load_workload(name)
    split = min(SPLIT, workload.largest_split(preset, height))
    # Threads of TensorFlow would wait for each other in its pool: tests/contract has it in processes.
    make = workload.factory(
        framework="torch",
        preset=preset,
        local_batch=BATCH,
        source=Input(),
        height=height,
        execution=Execution(precision=precision),
    )

    def counted(neighbours):
        carried = CarriedNeighbours(Threads(neighbours), split=split)
        make(shard=Shard(neighbours=carried), seed=1).gradients()
        return Counter(carried.last_calls())

    stated = workload.exchanges(workload.preset(preset, height=height))
    for index, found in enumerate(in_threads(split, counted)):
        place = Place(
            batch=BATCH,
            has_upper=index > 0,
            has_lower=index < split - 1,
            element_bytes=MAP_BYTES.get(precision, FLOAT32_BYTES),
        )
        assert found == Counter(
            call for way in ("forward", "backward") for call in calls_of(stated, way, place)
        )


def test_all_that_can_be_split_state_what_they_exchange():
    for workload in map(load_workload, NAMES):
        assert workload.splittable == (workload.exchanges is not None)
