"""Replays of compressed exchanges, and the gate that they are for.

A replica that no backend touches computes local gradients. They are laid out in the trainer's buckets, compressed by
the same rule, and what the ranks' messages say is averaged over the control plane. What travels, by which operation,
into which bucket and with which residual is the backend's doing, and is what is checked. The compressors themselves
are tested against references of their own (tests/collectives/compression).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dlscale.benchmarks.rank.gates import broadcast_gate
from dlscale.benchmarks.records.record import Gate
from dlscale.collectives.backend import Backend
from dlscale.collectives.compression.compressor import BucketState, Compressor
from dlscale.collectives.compression.halves import from_halves, to_halves
from dlscale.collectives.compression.trainer import CompressedTrainer
from dlscale.models.workload import ReplicaFactory, Shard, Weights

# Of the length of what a bucket's exchange must come to. Gradients that a repeated backward pass rounds in another way
# may let an element pass a compressor's limit that did not before: few do, and they are among the smallest that travel.
TOLERANCE = {"fp32": 1e-2, "tf32": 3e-2, "bf16": 1e-1}
NUM_STEPS = 2  # the second one has residuals


class Replay:
    """What a compressed exchange of `trainer` comes to, over the mpi4py communicator `control`; collective.

    `states` are what this rank keeps of each bucket at first; without them it is nothing.
    """

    def __init__(
        self,
        compressor: Compressor,
        trainer: CompressedTrainer,
        *,
        control: Any,
        states: Sequence[BucketState] = (),
    ) -> None:
        self._compressor, self._trainer = compressor, trainer
        self._plane = _ControlPlane(control)
        self._states = list(states)

    def means(self, gradients: Weights) -> list[NDArray[Any]]:
        """The buckets with the means of what ranks send for these gradients, in the order of the weights."""
        buckets = self._trainer.flat(gradients)
        if self._plane.size > 1:
            self._states = self._states or [{} for _ in buckets]
            for bucket, state in zip(buckets, self._states, strict=True):
                self._compressor.average(bucket, state, self._plane)
        return buckets

    def mean_gradients(self, gradients: Weights) -> Weights:
        """The same, as gradients."""
        sizes = [gradient.size for gradient in gradients]
        numbers = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
        shaped = [own.reshape(gradient.shape) for own, gradient in zip(numbers, gradients, strict=True)]
        flat = np.empty(sum(sizes), np.float32)
        for places, bucket in zip(self._trainer.flat(shaped), self.means(gradients), strict=True):
            flat[places] = bucket
        return [flat[places].copy() for places in shaped]


class _ControlPlane:
    """What compressors ask of a collective, by the control plane alone (`compression.compressor.Carrier`)."""

    def __init__(self, control: Any) -> None:
        self._control = control
        self.rank: int = control.Get_rank()
        self.size: int = control.Get_size()

    def allgather_bytes(self, message: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
        messages: list[NDArray[np.uint8]] = self._control.allgather(message)
        return messages

    def average_halves(self, values: NDArray[Any]) -> None:
        total = np.sum(self._control.allgather(from_halves(values)), axis=0, dtype=np.float64)
        values[:] = to_halves(np.asarray(total / self.size, np.float32), values.dtype)


def compressed_gate(
    backend: Backend, factory: ReplicaFactory, *, control: Any, shard: Shard, seed: int, precision: str
) -> list[Gate]:
    """Two steps of plain SGD with learning rate 1 change the weights by minus what a replay of the compression gives.

    Every rank starts from other weights, as in `gates.gradient_gate`. The second step begins with the residuals of the
    first. The deviation is that of the worst bucket: its length over that of the expected change.
    """
    compressor = backend.compressor
    if compressor is None:
        raise ValueError("the backend compresses nothing; ask gradient_gate")
    trainer = cast(
        CompressedTrainer, backend.distribute(factory, shard=shard, seed=seed + shard.index, gate=True)
    )
    try:
        before = trainer.weights()
        reference = factory(shard=shard, seed=seed, gate=True)
        gates = [broadcast_gate(before, reference, control=control)]
        replay = Replay(compressor, trainer, control=control)
        worst = 0.0
        for _ in range(NUM_STEPS):
            reference.load(before)
            expected = replay.means(reference.gradients())
            trainer.step()
            trainer.synchronize()
            after = trainer.weights()
            for old, new, change in zip(trainer.flat(before), trainer.flat(after), expected, strict=True):
                worst = max(worst, bucket_deviation(old, new, change))
            before = after
        settings = trainer.settings()
    finally:
        trainer.close()
    worst = max(control.allgather(worst))
    detail = (
        f"change of the weights in {NUM_STEPS} steps against a replay of compression {settings['compression']}, of the "
        "length of each bucket's expected change"
    )
    return [*gates, Gate.at_most(TOLERANCE[precision], worst, name="gradient", detail=detail)]


def bucket_deviation(old: NDArray[Any], new: NDArray[Any], change: NDArray[Any]) -> float:
    """The length of (old - new) - change over that of change; infinite where a number is not finite.

    What rounding the new weights to their last place may make of it is not counted.
    """
    wanted = change.astype(np.float64)
    error = old.astype(np.float64) - new - wanted
    rounding = np.where(wanted == 0, 0, np.spacing(np.maximum(np.abs(old), np.abs(new))).astype(np.float64))
    length, allowed = float(np.linalg.norm(wanted)), float(np.linalg.norm(rounding))
    deviation = float(np.linalg.norm(error)) - allowed
    if not (math.isfinite(deviation) and math.isfinite(length)):
        return math.inf
    if deviation <= 0:
        return 0.0
    return deviation / length if length else math.inf
