"""Gradients in fewer bytes: the user's options, a collective whose averages are compressed, and a trainer over it.

compressors.py  halves.py   the compressors, and what they ask of a collective
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlscale.base.errors import UsageError
from dlscale.collectives.backend import OWN, Trainer, WrappedTrainer
from dlscale.collectives.buffers import check_buffer
from dlscale.collectives.compression.compressors import (
    BucketState,
    Compressor,
    Message,
    Qsgd,
    Threshold,
    TopK,
)
from dlscale.collectives.compression.halves import Halves
from dlscale.collectives.option_kinds import CheckedOptions, at_least, one_of, option
from dlscale.models.workload import State, Weights

COMPRESSORS = ("none", "fp16", "bf16", "topk", "threshold", "qsgd")
# Which options belong to one compressor only; with others they say nothing, so that a sweep can have all of them.
OWNERS = {"topk_share": "topk", "threshold": "threshold", "qsgd_levels": "qsgd"}
WIRE_BYTES = "wire_bytes"  # the setting with the bytes that this rank sends in a step, mean over its steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Compression(CheckedOptions):
    """How gradients are compressed on their way between ranks; off by default (docs/comparing.md).

    `compression`: the compressor. `error_feedback`: what a message leaves out is added to the next step's gradients.
    `topk_share`: the share of a bucket's elements that topk sends. `threshold`: the magnitude above which an element is
    sent, as which; it depends on the gradients, so there is no default. `qsgd_levels`: the levels on either side of 0;
    QSGD feeds no error back.
    """

    compression: str = one_of(COMPRESSORS, "none")
    error_feedback: bool = True
    topk_share: float = option(0.01, lambda share: 0 < share <= 1, "give more than 0 and at most 1")
    threshold: float = 0.0
    qsgd_levels: int = at_least(1, 7, most=Qsgd.MOST_LEVELS)

    def check_together(self) -> None:
        """Returns if the threshold is one. Raises UsageError."""
        if self.compression == "threshold" and not 0 < self.threshold < math.inf:
            raise UsageError(
                f"option threshold is {self.threshold:g}; give more than 0, the magnitude above which gradients are "
                "sent, such as 0.001"
            )

    def settings(self) -> dict[str, str | int | float | bool]:
        """For the record: the compressor and its own parameters."""
        own = {name: getattr(self, name) for name, owner in OWNERS.items() if owner == self.compression}
        feedback = self.error_feedback and self.compression != "qsgd"
        return {"compression": self.compression, "error_feedback": feedback, **own}

    def check(self, *, pipelined: bool, teams: int, framework: str) -> None:
        """Returns if a training of that kind can be compressed. Raises UsageError."""
        problem = ""
        if pipelined:
            problem = "pipelined=true: a compressed exchange is applied in its own step"
        elif framework == "tensorflow" and teams > 0:
            problem = (
                f"teams={teams}: in TensorFlow compressed gradients travel after the last of them, without "
                "threads"
            )
        if problem and self.compression != "none":
            raise UsageError(f"compression={self.compression} and {problem}; leave one of them out")

    def compressor(self) -> Compressor | None:
        """What these options name; None where gradients are not compressed."""
        feedback = self.error_feedback
        match self.compression:
            case "fp16" | "bf16":
                return Halves(self.compression, error_feedback=feedback)
            case "topk":
                return TopK(self.topk_share, error_feedback=feedback)
            case "threshold":
                return Threshold(self.threshold, error_feedback=feedback)
            case "qsgd":
                return Qsgd(self.qsgd_levels)
        return None


class CompressedCollective:
    """Another collective's operations; an average of float32 is that of a bucket (`Collective`).

    A bucket is known by its place in memory, which must hold the same gradients every time. One rank alone has
    nothing to send, and compresses nothing. `num_bytes` counts what this rank has sent, as the best algorithm for long
    messages does: (P - 1) m for messages of m bytes that all ranks get from all, 2 (P - 1) / P m for a sum of m bytes.
    """

    def __init__(self, carrier: Any, compressor: Compressor) -> None:
        """`carrier` is a `Collective` and a `Carrier`."""
        self._carrier, self._compressor = carrier, compressor
        self._states: dict[tuple[int, int], BucketState] = {}
        self.rank, self.size = carrier.rank, carrier.size
        self.num_bytes = 0.0
        self.empty, self.broadcast, self.barrier = carrier.empty, carrier.broadcast, carrier.barrier
        self.settings, self.close = carrier.settings, carrier.close

    def allreduce(self, buffer: NDArray[Any], op: str = "sum") -> None:
        """Average a bucket, or what the other collective does. Raises UsageError for averages of other floats."""
        if op != "average" or self.size == 1:
            self._carrier.allreduce(buffer, op)
            return
        if buffer.dtype != np.float32:
            raise UsageError(
                f"compression takes float32 gradients, and these are {buffer.dtype}; compute in float32, or leave "
                "the option compression out"
            )
        check_buffer(buffer)
        flat = buffer.reshape(-1)
        self._compressor.average(flat, self.state_of(flat), self)

    def allgather_bytes(self, message: Message) -> Sequence[Message]:
        """The carrier's, counted (`Carrier`)."""
        self.num_bytes += (self.size - 1) * message.nbytes
        messages: Sequence[Message] = self._carrier.allgather_bytes(message)
        return messages

    def average_halves(self, values: NDArray[Any]) -> None:
        """The carrier's, counted (`Carrier`)."""
        self.num_bytes += 2 * (self.size - 1) / self.size * values.nbytes
        self._carrier.average_halves(values)

    def state_of(self, bucket: NDArray[Any]) -> BucketState:
        """What this rank keeps of a bucket; empty before the first average."""
        return self._states.setdefault((bucket.ctypes.data, bucket.size), {})


class CompressedTrainer(WrappedTrainer):
    """The steps of `trainer`, whose buckets travel over `collectives` (`Trainer`)."""

    def __init__(
        self,
        trainer: Trainer,
        collectives: Sequence[CompressedCollective],
        *,
        layout: Any,
        settings: Mapping[str, str | int | float | bool],
    ) -> None:
        """`layout` is the trainer that has the buckets; `settings` say how they are compressed.

        Its `buckets()` are those of a step, in order; its `flat(arrays)` copies arrays that are like weights into such.
        """
        super().__init__(trainer)
        self._collectives = tuple(collectives)
        self._layout, self._settings = layout, dict(settings)
        self._num_steps = 0

    def step(self) -> None:
        self._trainer.step()
        self._num_steps += 1

    def own_state(self) -> State:
        """Residuals, and all else that is kept of each bucket from step to step."""
        return {
            f"{OWN}bucket{place}.{name}": array
            for place, state in enumerate(self.bucket_states())
            for name, array in state.items()
        }

    def flat(self, arrays: Weights) -> list[NDArray[Any]]:
        """Arrays in the order and shapes of the weights, as buckets; not collective."""
        buckets: list[NDArray[Any]] = self._layout.flat(arrays)
        return buckets

    def bucket_states(self) -> list[BucketState]:
        """Copies of what this rank keeps of each bucket, in the order of `flat`; not during a step."""
        states = []
        for bucket in self._layout.buckets():
            # A bucket goes round the teams by its number, and only one of them knows of it.
            own = next((s for c in self._collectives if (s := c.state_of(bucket))), {})
            states.append({name: array.copy() for name, array in own.items()})
        return states

    def settings(self) -> dict[str, str | int | float | bool]:
        sent = sum(collective.num_bytes for collective in self._collectives)
        return {
            **self._trainer.settings(),
            **self._settings,
            WIRE_BYTES: round(sent / max(self._num_steps, 1)),
        }
