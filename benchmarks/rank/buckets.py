"""Bytes of each exchange in a training's step, by the settings of its trainer."""

from __future__ import annotations

from collections.abc import Mapping

from dlscale.benchmarks.records.cell import Setting
from dlscale.collectives.backend import BUCKET_SIZES, Trainer
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


def _pieces_of_buckets(size: int, limit: int) -> list[int]:
    whole, rest = divmod(size, limit)
    return [limit] * whole + ([rest] if rest else [])
