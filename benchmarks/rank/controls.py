"""Controls that are no training and share its timed loop: communication only, and loading data only.

In the communication-only control a step averages buckets of the training's own sizes, and nobody computes. How much
of its communication a training overlaps with computation is known from the two together, and so is how fast a
backend is at the sizes that a network really has.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.benchmarks.rank.buckets import ELEMENT_BYTES, bucket_bytes_of
from dlscale.benchmarks.rank.case import CaseRun
from dlscale.benchmarks.rank.deviation import nan_last
from dlscale.benchmarks.rank.measure import measure
from dlscale.benchmarks.rank.replaying import unaudited
from dlscale.benchmarks.rank.sample_order import num_wrong_samples
from dlscale.benchmarks.records.record import Gate
from dlscale.benchmarks.records.spool import CaseResult, MeasuredWindow
from dlscale.benchmarks.study.rules import Rules
from dlscale.collectives.backend import Collective
from dlscale.models.weights import NUM_DRAWN
from dlscale.models.workload import Indices, Replica, Shard


def measure_loader(case: CaseRun) -> list[Gate]:
    """Time fetching alone (`case.Measurement`)."""
    context = case.context
    replica = case.factory(shard=context.shard, seed=context.seed)
    loader, num_steps = LoaderOnly(replica), 0

    def emit(window: MeasuredWindow) -> None:
        nonlocal num_steps
        num_steps += window.num_steps
        case.emit(window)

    steady = measure(
        loader, context.control, shortened_rules(context.rules), deadline=time.perf_counter(), emit=emit
    )
    case.write_observed()
    case.write(CaseResult(steady=steady, settings={}, skipped=replica.num_skipped()))
    gate = loader.gate(
        context.world, num_steps, shard=context.shard, reread=lambda indices: _read_anew(case, indices)
    )
    return [gate]


def measure_exchange(case: CaseRun) -> list[Gate]:
    """Time communication alone: the least that the rules ask for, as it varies less (`case.Measurement`)."""
    context, backend = case.context, case.context.backend
    sizes = context.bucket_bytes or _bucket_bytes_of_a_training(case)
    collective = backend.collective()
    try:
        exchange = ExchangeOnly(collective, sizes, context.control.barrier)
        steady = measure(
            exchange,
            context.control,
            shortened_rules(context.rules),
            deadline=time.perf_counter(),
            emit=lambda window: case.emit(
                window.model_copy(update={"bucket_seconds": exchange.take_seconds()})
            ),
        )
        case.write(
            CaseResult(
                steady=steady,
                settings=collective.settings(),
                bucket_bytes=sizes,
            )
        )
        compressed = backend.compressor is not None
        return [
            exchange.gate(context.world, compressed=compressed),
            exchange.bytes_gate(ELEMENT_BYTES * case.cell.preset_facts.num_parameters),
        ]
    finally:
        collective.close()


def _bucket_bytes_of_a_training(case: CaseRun) -> list[int]:
    """Those of a trainer that takes some steps, where the launch trains nothing; collective."""
    trainer = case.context.distribute(case.factory)
    try:
        for _ in range(STEPS_UNTIL_BUCKETS):
            trainer.step()
        trainer.synchronize()
        return bucket_bytes_of(trainer)
    finally:
        trainer.close()


class LoaderOnly:
    """The loader-only control: a step fetches a batch and drops it."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._batch: tuple[Any, ...] = ()

    def step(self) -> None:
        self._batch = self._replica.next_batch()

    def synchronize(self) -> None:
        """A fetched batch is there."""

    def gate(
        self,
        control: Any,
        num_steps: int,
        *,
        shard: Shard,
        reread: Callable[[Indices], Sequence[NDArray[Any]]],
    ) -> Gate:
        """Whether each step drew a batch, and the last one has this rank's samples; collective over `control`.

        `reread` reads samples anew; nothing where that gives something else each time.
        """
        if any(control.allgather(self._replica.num_skipped())):
            return unaudited("loader", "samples were left out, and the next ones cannot be found")
        num_drawn = int(self._replica.state()[NUM_DRAWN][0])
        wrong = abs(num_drawn - num_steps)
        wrong += num_wrong_samples(self._replica, num_drawn - 1, shard=shard)
        if (indices := self._replica.last_samples()) is not None:
            pairs = zip(self._batch, reread(indices), strict=False)
            wrong += sum(not _is_same_content(found, wanted) for found, wanted in pairs)
        worst = max(control.allgather(wrong))
        detail = (
            "batches that steps did not draw, and samples of the last one that are not those of this shard"
        )
        return Gate.at_most(0.0, float(worst), name="loader", detail=detail)


def _read_anew(case: CaseRun, indices: Indices) -> Sequence[NDArray[Any]]:
    """What the input has at those places; nothing where each reading draws at random, as crops."""
    facts = case.facts or case.cell.facts
    preset, data = case.cell.preset_facts, facts.data()
    readings = [data.open_samples(case.source, preset, seed=(seed, 0)).read(indices) for seed in range(2)]
    same = all(map(np.array_equal, *readings))
    if not same:
        return ()
    neighbours = case.context.shard.neighbours
    return list(map(preset.rows(neighbours).cut, readings[0])) if neighbours else list(readings[0])


def _is_same_content(found: Any, wanted: NDArray[Any]) -> bool:
    """Whether a framework's tensor, in whatever order of axes, has the values of an array."""
    values = np.asarray(found.cpu() if hasattr(found, "cpu") else found, np.float64)
    exact = wanted.astype(np.float64)
    same_sums = all(
        math.isclose(np.sum(one), np.sum(other), rel_tol=SAME_SUM, abs_tol=SAME_SUM)
        for one, other in ((values, exact), (values**2, exact**2))
    )
    return values.size == exact.size and same_sums


STEPS_UNTIL_BUCKETS = 3  # DistributedDataParallel cuts its buckets anew after the first
# An exchange and a fetch are shorter than a step: so are their windows.
SHORTER_WINDOWS = 5
PERIOD = (
    251  # of the values in a bucket: no power of two, so that no piece of an exchange equals its neighbour
)
FRACTION = 2**-10  # of each of them: exact in float32 for sums over many ranks, and lost in 16 bits
# Of what is added, of the sum, and of what error feedback adds, with room for the order of the sum; relative.
ROUNDING = 2**-20
SAME_SUM = 1e-6  # of the same values in another order; relative


def shortened_rules(rules: Rules) -> Rules:
    """The rules of the short controls (`record.SHORT_CONTROLS`)."""
    return rules.model_copy(update={"min_window_seconds": rules.min_window_seconds / SHORTER_WINDOWS})


class ExchangeOnly:
    """Averages one bucket after the other, each when the one before is done (`measure.Steppable`).

    Before each its ranks write it anew, as backpropagation does, and meet: what they find in their caches, and when
    they come, is as in a training. Neither is on the bucket's clock.
    """

    def __init__(self, collective: Collective, sizes: list[int], meet: Callable[[], None]) -> None:
        """`meet` returns when all ranks have called it."""
        self._collective, self._meet = collective, meet
        self._buckets = [collective.empty(-(-size // ELEMENT_BYTES)) for size in sizes]
        self._gradients = _values(max(bucket.size for bucket in self._buckets)) + collective.rank
        self._seconds = [0.0] * len(sizes)

    def step(self) -> None:
        for index, bucket in enumerate(self._buckets):
            bucket[:] = self._gradients[: bucket.size]
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
        """Whether the last step left the means in the buckets; collective over the mpi4py communicator `control`.

        Where values are compressed it is no mean, and another gate looks.
        """
        if compressed:
            why = "not checked: compressed buckets are no means; the gradient gate replays the compression"
            return Gate.unchecked("exchange", why)
        expected = [_values(bucket.size) + (self._collective.size - 1) / 2 for bucket in self._buckets]
        pairs = zip(self._buckets, expected, strict=True)
        own = max(
            (float(np.max(_relative(bucket, mean), initial=0.0)) for bucket, mean in pairs), key=nan_last
        )
        worst = max(control.allgather(own), key=nan_last)
        detail = "means of the ranks' buckets, of each value plus 1"
        return Gate.at_most(ROUNDING, worst, name="exchange", detail=detail)

    def bytes_gate(self, gradient_bytes: int) -> Gate:
        """Whether a step averages as many bytes as a training's, which are `gradient_bytes`."""
        averaged = sum(bucket.nbytes for bucket in self._buckets)
        detail = f"bytes between the {averaged} of the buckets and the {gradient_bytes} of all gradients"
        return Gate.at_most(0.0, float(abs(averaged - gradient_bytes)), name="exchange_bytes", detail=detail)


def _values(count: int) -> NDArray[np.float32]:
    return np.resize(np.arange(PERIOD, dtype=np.float32) + np.float32(FRACTION), count)


def _relative(bucket: NDArray[Any], mean: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(np.abs(bucket - mean) / (1 + mean))
