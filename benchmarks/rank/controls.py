"""Controls that are no training and share its timed loop: loading data, communication, or exchanges of rows alone.

In the communication-only control a step averages buckets of the training's own sizes, and nobody computes. How much
of its communication a training overlaps with computation is known from the two together, and so is how fast a
backend is at the sizes that a network really has. Where ranks share samples, a step of control `halos` repeats what
a step of the training exchanged: nobody is late for it because of what he computes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dlscale.benchmarks.rank.case import ELEMENT_BYTES, CaseRun, bucket_bytes_of
from dlscale.benchmarks.rank.measure import Emit, Steppable, measure
from dlscale.benchmarks.rank.reference import num_wrong_samples
from dlscale.benchmarks.records.record import Gate
from dlscale.benchmarks.records.spool import MeasuredWindow
from dlscale.models.workload import NUM_DRAWN

if TYPE_CHECKING:
    from dlscale.collectives.backend import Collective
    from dlscale.collectives.neighbours import Call
    from dlscale.models.parallel import Neighbours
    from dlscale.models.workload import Replica, Shard

SHORTER_WINDOWS = 5  # an exchange and a fetch are shorter than a step: so are their windows
# Where a launch trains nothing; DistributedDataParallel cuts its buckets anew after the first.
STEPS_OF_A_TRAINING = 3
PERIOD = 251  # of values in a bucket: no power of two, so that no piece of an exchange equals its neighbour
FRACTION = 2**-10  # of each of them: exact in float32 for sums over many ranks, and lost in 16 bits
# Of what is added, of the sum, and of what error feedback adds, with room for the order of the sum; relative.
ROUNDING = 2**-20


def _measure_shortly(case: CaseRun, control: Steppable, emit: Emit) -> bool:
    """Time the least that the rules ask for: these vary less than a training."""
    rules = case.context.spec.rules
    rules = rules.model_copy(update={"min_window_seconds": rules.min_window_seconds / SHORTER_WINDOWS})
    return measure(control, case.context.control, rules, deadline=time.perf_counter(), emit=emit)


def measure_loader(case: CaseRun) -> list[Gate]:
    """Time fetching alone (`case.Measurement`)."""
    context = case.context
    loader, num_steps = LoaderOnly(case.factory(shard=context.shard, seed=context.seed)), 0

    def emit(window: MeasuredWindow) -> None:
        nonlocal num_steps
        num_steps += window.num_steps
        case.emit(window)

    steady = _measure_shortly(case, loader, emit)
    case.end(steady=steady, skipped_samples=loader.replica.num_skipped())
    return [loader.gate(context.world, num_steps, shard=context.shard)]


class LoaderOnly:
    """The loader-only control: a step fetches a batch and drops it."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica

    def step(self) -> None:
        self.replica.next_batch()

    def synchronize(self) -> None:
        """A fetched batch is there."""

    def gate(self, control: Any, num_steps: int, *, shard: Shard) -> Gate:
        """Whether each step drew a batch, and the last one has this rank's samples; collective over `control`."""
        if any(control.allgather(self.replica.num_skipped())):
            return Gate.unchecked(
                "loader", "not audited: samples were left out, and the next ones cannot be found"
            )
        num_drawn = int(self.replica.state()[NUM_DRAWN][0])
        wrong = abs(num_drawn - num_steps) + num_wrong_samples(self.replica, num_drawn - 1, shard=shard)
        detail = "batches that steps did not draw, and indices of the last one that are not this shard's"
        return Gate.at_most(0.0, float(max(control.allgather(wrong))), name="loader", detail=detail)


def measure_exchange(case: CaseRun) -> list[Gate]:
    """Time communication alone (`case.Measurement`)."""
    context = case.context
    sizes = context.bucket_bytes or _bucket_bytes_of_a_training(case)
    collective = context.backend.collective()
    try:
        exchange = ExchangeOnly(collective, sizes, context.control.barrier)

        def emit(window: MeasuredWindow) -> None:
            case.emit(window.model_copy(update={"bucket_seconds": exchange.take_seconds()}))

        steady, settings = _measure_shortly(case, exchange, emit), collective.settings()
        case.end(steady=steady, settings=settings, bucket_bytes=sizes)
        return [exchange.gate(context.world, compressed=context.backend.compressor is not None)]
    finally:
        collective.close()


def _bucket_bytes_of_a_training(case: CaseRun) -> list[int]:
    """Those of a trainer that takes some steps, where the launch trains nothing; collective."""
    with case.trainer() as (trainer, _):
        for _ in range(STEPS_OF_A_TRAINING):
            trainer.step()
        trainer.synchronize()
        return bucket_bytes_of(trainer)


class ExchangeOnly:
    """Averages one bucket after the other, each when the one before is done (`measure.Steppable`).

    Before each its ranks write it anew, as backpropagation does, and meet: what they find in their caches, and when
    they come, is as in a training. Neither is on the bucket's clock. Values are others in each step.
    """

    def __init__(self, collective: Collective, sizes: list[int], meet: Callable[[], None]) -> None:
        """`meet` returns when all ranks have called it."""
        self._collective, self._meet = collective, meet
        self._buckets = [collective.empty(-(-size // ELEMENT_BYTES)) for size in sizes]
        count = max(bucket.size for bucket in self._buckets) + PERIOD
        self._values = np.resize(np.arange(PERIOD, dtype=np.float32) + np.float32(FRACTION), count)
        self._gradients = self._values + collective.rank
        self._first = 0  # which of them the buckets began with in the last step
        self._seconds = [0.0] * len(sizes)

    def step(self) -> None:
        self._first = (self._first + 1) % PERIOD
        for index, bucket in enumerate(self._buckets):
            bucket[:] = self._gradients[self._first : self._first + bucket.size]
            self._meet()
            begin = time.perf_counter()
            self._collective.allreduce(bucket, "average")
            self._seconds[index] += time.perf_counter() - begin

    def synchronize(self) -> None:
        """Nothing outlasts a step."""

    def take_seconds(self) -> list[float]:
        """Seconds of each bucket, over all steps since the last call."""
        taken, self._seconds = self._seconds, [0.0] * len(self._seconds)
        return taken

    def gate(self, control: Any, *, compressed: bool = False) -> Gate:
        """Whether the last step left the means in the buckets, and so do two more; collective over `control`.

        Where values are compressed it is no mean, and another gate looks.
        """
        if compressed:
            why = "not checked: compressed buckets are no means; the gradient gate replays the compression"
            return Gate.unchecked("exchange", why)
        worst = self._error()
        for _ in range(2):  # a collective may send in every second call only
            self.step()
            worst = max(worst, self._error())
        detail = "means of the ranks' buckets, of each value plus 1"
        return Gate.at_most(ROUNDING, max(control.allgather(worst)), name="exchange", detail=detail)

    def _error(self) -> float:
        """The worst of a bucket, of each mean plus 1."""
        worst = 0.0
        for bucket in self._buckets:
            means = self._values[self._first : self._first + bucket.size] + (self._collective.size - 1) / 2
            error = float(np.max(np.abs(bucket - means) / (1 + means), initial=0.0))
            worst = max(worst, error if math.isfinite(error) else math.inf)
        return worst


def measure_halos(case: CaseRun) -> list[Gate]:
    """Time exchanges of rows alone (`case.Measurement`). The split's gates have looked at what arrives."""
    neighbours, world = case.context.carried, case.context.world
    if neighbours is None:
        raise ValueError(f"control {case.cell.control} of ranks with whole samples")
    with case.trainer() as (trainer, _):
        before = neighbours.num_calls
        trainer.step()
        trainer.synchronize()
        calls = neighbours.last_calls()[before - neighbours.num_calls :]
    first = world.Get_rank() - neighbours.index
    halos = HalosOnly(neighbours, world.allgather(calls)[first : first + neighbours.split])
    case.end(steady=_measure_shortly(case, halos, case.emit))
    return []


class HalosOnly:
    """One exchange or sum after the other, as in a step of the training (`measure.Steppable`)."""

    def __init__(self, neighbours: Neighbours, calls: Sequence[Sequence[Call]]) -> None:
        """`calls` are those of all ranks of the replica, which are as many and of the same operations."""
        self._neighbours = neighbours
        self._steps = [self._repeated(place, ranks) for place, ranks in enumerate(zip(*calls, strict=True))]

    def step(self) -> None:
        for call in self._steps:
            call()

    def synchronize(self) -> None:
        """Nothing outlasts a step."""

    def _repeated(self, place: int, calls: Sequence[Call]) -> Callable[[], None]:
        """The call with arrays of its own; `calls` are those of all ranks."""
        neighbours, index = self._neighbours, self._neighbours.index
        operations = {call.operation for call in calls}
        if len(operations) > 1:
            raise ValueError(f"call {place} is {' and '.join(sorted(operations))} on ranks of one replica")
        own = calls[index].num_bytes
        if operations == {"exchange"}:
            above = calls[index - 1].num_bytes[1] if index else 0
            below = calls[index + 1].num_bytes[0] if index + 1 < len(calls) else 0
            rows = [np.zeros(count, np.uint8) for count in (*own, above, below)]
            return lambda: neighbours.exchange(*rows)
        values = np.zeros(own[0] // 8 or 1) if own[0] % 8 == 0 else np.zeros(own[0] // 4, "f4")
        return lambda: neighbours.sum(values)
