"""The control of ranks that share samples: a step exchanges what a step of the training did, and nobody computes.

Each rank repeats its calls of the launch's training, in order and with as many bytes. Nobody is late for an exchange
because of what he computes: what it takes by itself is told from waiting in a training.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.benchmarks.rank.case import CaseRun
from dlscale.benchmarks.rank.controls import shortened_rules
from dlscale.benchmarks.rank.measure import measure
from dlscale.benchmarks.records.record import Gate
from dlscale.benchmarks.records.spool import CaseResult
from dlscale.collectives.neighbours import Call, CarriedNeighbours
from dlscale.models.parallel import Neighbours

PERIOD = 251  # of the bytes that are sent: no power of two, so that no rows equal those beside them
STEPS_UNTIL_CALLS = 2  # of a trainer, where the launch trains nothing


def measure_halos(case: CaseRun) -> list[Gate]:
    """Time exchanges of rows alone: the least that the rules ask for, as they vary less (`case.Measurement`)."""
    context = case.context
    if context.halos is None:
        raise ValueError(f"control {case.cell.control} of ranks with whole samples")
    neighbours = context.halos.neighbours
    calls = context.halos.step_calls or _calls_of_a_training(case, neighbours)
    first = context.world.Get_rank() - neighbours.index
    replica = context.world.allgather(calls)[first : first + neighbours.split]
    halos = HalosOnly(neighbours, replica)
    steady = measure(
        halos, context.control, shortened_rules(context.rules), deadline=time.perf_counter(), emit=case.emit
    )
    case.write(CaseResult(steady=steady, settings={}, halos=context.halos.take()))
    with context.aside():
        return [halos.gate(context.world)]


def _calls_of_a_training(case: CaseRun, neighbours: CarriedNeighbours) -> list[Call]:
    """Those of a step; collective."""
    trainer = case.context.distribute(case.factory)
    try:
        before = 0
        for _ in range(STEPS_UNTIL_CALLS):
            before = neighbours.num_calls
            trainer.step()
            trainer.synchronize()
        return neighbours.last_calls()[before - neighbours.num_calls :]
    finally:
        trainer.close()


class HalosOnly:
    """One call after the other (`measure.Steppable`)."""

    def __init__(self, neighbours: Neighbours, calls: Sequence[Sequence[Call]]) -> None:
        """`calls` are those of all ranks of the replica, which are as many and of the same operations."""
        self._neighbours, self._split = neighbours, neighbours.split
        self._arrays: list[list[NDArray[Any]]] = []  # of each call: what is written, what must be there then
        self._sums: list[NDArray[Any]] = []
        self._steps = [self._repeated(place, ranks) for place, ranks in enumerate(zip(*calls, strict=True))]

    def step(self) -> None:
        """One exchange, sum or gather per call of the training."""
        for call in self._steps:
            call()

    def synchronize(self) -> None:
        """Nothing outlasts a step."""

    def gate(self, control: Any) -> Gate:
        """Whether a step leaves what the others gave; collective over the mpi4py communicator `control`."""
        for written, *_ in self._arrays:
            written[...] = 0
        for values in self._sums:
            values[...] = self._neighbours.index + 1
        self.step()
        own = sum(int(np.sum(written != wanted)) for written, wanted in self._arrays)
        own += sum(int(np.sum(values != self._split * (self._split + 1) / 2)) for values in self._sums)
        detail = "elements of one step's rows, sums and maps that are not what the other ranks gave"
        return Gate.at_most(0.0, float(max(control.allgather(own))), name="halos", detail=detail)

    def _repeated(self, place: int, calls: Sequence[Call]) -> Callable[[], None]:
        """The call with arrays of its own; `calls` are those of all ranks."""
        neighbours, index = self._neighbours, self._neighbours.index
        operations = {call.operation for call in calls}
        if len(operations) > 1:
            raise ValueError(f"call {place} is {' and '.join(sorted(operations))} on ranks of one replica")
        (operation,) = operations
        if operation == "exchange":
            above = calls[index - 1] if index else None
            below = calls[index + 1] if index + 1 < self._split else None
            up, down = (self._sent(place, index, num_bytes) for num_bytes in calls[index].num_bytes)
            from_up = self._received(place, index - 1, above.num_bytes[1] if above else 0)
            from_down = self._received(place, index + 1, below.num_bytes[0] if below else 0)
            return lambda: neighbours.exchange(up, down, from_up, from_down)
        if operation == "sum":
            (num_bytes,) = calls[index].num_bytes
            values = np.zeros(num_bytes // 8 or 1) if num_bytes % 8 == 0 else np.zeros(num_bytes // 4, "f4")
            self._sums.append(values)
            return lambda: neighbours.sum(values)
        counts = [call.num_bytes[0] for call in calls]
        mine = _pattern(place, index, counts[index])
        whole = np.zeros(sum(counts), np.uint8)
        wanted = np.concatenate([_pattern(place, rank, count) for rank, count in enumerate(counts)])
        self._arrays.append([whole, wanted])
        return lambda: neighbours.gather(mine, whole, counts)

    def _sent(self, place: int, rank: int, num_bytes: int) -> NDArray[np.uint8] | None:
        return _pattern(place, rank, num_bytes) if num_bytes else None

    def _received(self, place: int, rank: int, num_bytes: int) -> NDArray[np.uint8] | None:
        if not num_bytes:
            return None
        array = np.zeros(num_bytes, np.uint8)
        self._arrays.append([array, _pattern(place, rank, num_bytes)])
        return array


def _pattern(place: int, rank: int, count: int) -> NDArray[np.uint8]:
    """Bytes of one rank for one call."""
    return np.resize((np.arange(PERIOD) + 7 * place + 31 * rank).astype(np.uint8), count)
