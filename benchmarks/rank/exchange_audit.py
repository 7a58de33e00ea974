"""Audit of a timed trainer's exchange: what its steps hand over against what the trainer says of its buckets.

Calls and bytes are counted where the backend hands buckets to what carries them, by no code of the trainer. The wire is
seen in the numbers: gradients that were rounded on their way do not give what a replay without rounding gives.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from typing import Any

from dlscale.benchmarks.records.cell import Setting
from dlscale.benchmarks.records.record import Gate
from dlscale.collectives.backend import BUCKET_SIZES, GATHER_SIZES, Backend, Trainer
from dlscale.collectives.training.counting import Moved
from dlscale.models.weights import WEIGHT

ELEMENT_BYTES = 4  # gradients are float32


def bucket_bytes_of(trainer: Trainer) -> list[int]:
    """Bytes of each exchange of a trainer's step, in order."""
    held = trainer.held(slots=False)
    weights = [array for name, array in held.items() if name.startswith(f"{WEIGHT}.")]
    return bucket_sizes(trainer.settings(), sum(weight.size for weight in weights) * ELEMENT_BYTES)


def bucket_sizes(settings: Mapping[str, Setting], gradient_bytes: int) -> list[int]:
    """Bytes of each exchange of a training's step, in order, by the settings of the training's trainer.

    A bucket that passes through a staging buffer is exchanged in pieces of its size. Where gradients are fused as they
    come, as Horovod does, the sizes are those of gradients that are all there. A trainer without such
    settings exchanges all at once. Raises ValueError for a setting that is no list of sizes.
    """
    sizes = [gradient_bytes]
    if BUCKET_SIZES in settings:
        sizes = [int(size) for size in str(settings[BUCKET_SIZES]).split(",")]
    limit = int(settings.get("staging_bytes", 0) or settings.get("fusion_threshold_bytes", 0))
    return [piece for size in sizes for piece in _pieces_of_buckets(size, limit or size)]


def gather_sizes(settings: Mapping[str, Setting]) -> list[int]:
    """Bytes of each gather of sharded weights in a training's step, in order; none without shards."""
    sizes = str(settings.get(GATHER_SIZES, ""))
    return [int(size) for size in sizes.split(",") if size]


def _pieces_of_buckets(size: int, limit: int) -> list[int]:
    whole, rest = divmod(size, limit)
    return [limit] * whole + ([rest] if rest else [])


class ExchangeAudit:
    """Counts the exchanges of some steps of a trainer. `count` is of this rank, `gate` collective."""

    def __init__(self, backend: Backend, trainer: Trainer, *, control: Any) -> None:
        self._backend, self._trainer, self._control = backend, trainer, control
        self._before: Moved | None = None
        self._wrong: float | None = None
        self._num_steps = 0

    def begin(self) -> None:
        """Steps follow; nothing is under way."""
        self._trainer.synchronize()
        self._before = self._backend.moved()

    def end(self, num_steps: int) -> None:
        if self._before is None or self._control.Get_size() == 1:
            return
        self._trainer.synchronize()
        after = self._backend.moved()
        settings = self._trainer.settings()
        sizes = [*bucket_bytes_of(self._trainer), *gather_sizes(settings)]
        wrong = math.inf if after is None else _difference(self._before, after, sizes, settings, num_steps)
        self._wrong = max(self._wrong or 0.0, wrong)
        self._num_steps += num_steps

    def gate(self) -> Gate:
        """The worst of all ranks."""
        found = self._control.allgather(self._wrong)
        if None in found:
            return Gate.unchecked(
                "audit_exchange", "not audited: what carries the gradients does not count, or 1 rank"
            )
        detail = f"exchanges, bytes and threads of {self._num_steps} steps that are not those of the trainer's settings"
        return Gate.at_most(0.0, max(found), name="audit_exchange", detail=detail)


def _difference(
    before: Moved, after: Moved, sizes: list[int], settings: Mapping[str, Setting], num_steps: int
) -> float:
    """Calls, and bytes and threads where they are known, beyond those that the settings say, or missing."""
    num_buckets = len(sizes) - len(gather_sizes(settings))
    wrong = abs(after.num_calls - before.num_calls - num_steps * len(sizes))
    if after.num_bytes is not None and before.num_bytes is not None:
        wrong += abs(after.num_bytes - before.num_bytes - num_steps * sum(sizes))
    if (
        after.threads is not None and settings.get("exchange") != "operation"
    ):  # TensorFlow's threads are its own
        is_overlapped = threading.get_ident() not in after.threads
        wrong += is_overlapped != bool(settings.get("overlap"))
        teams = int(settings.get("teams", 0))
        wrong += teams > 0 and len(after.threads) != min(teams, num_buckets)
    return float(wrong)
