"""The user's options of compression, and the compressor that they name."""

from __future__ import annotations

from dataclasses import dataclass, fields

from dlscale.base.errors import UsageError
from dlscale.collectives.compression.compressor import Compressor, Gathered
from dlscale.collectives.compression.halves import Halves
from dlscale.collectives.compression.topk import TopK
from dlscale.collectives.training.communication import Training

COMPRESSORS = ("none", "fp16", "bf16", "topk")
# Which options belong to one compressor only.
OWNERS = {"topk_share": "topk"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compression:
    """How gradients are compressed on their way between ranks; off by default (docs/compression.md).

    `compression`: the compressor. `error_feedback`: what a message leaves out is added to the next step's gradients.
    `topk_share`: the share of a bucket's elements that topk sends.
    """

    compression: str = "none"
    error_feedback: bool = True
    topk_share: float = 0.01

    def __post_init__(self) -> None:
        if self.compression not in COMPRESSORS:
            raise UsageError(
                f"option compression is {self.compression!r}; choose one of: {', '.join(COMPRESSORS)}"
            )
        defaults = {field.name: field.default for field in fields(self)}
        for name, owner in OWNERS.items():
            if getattr(self, name) != defaults[name] and self.compression != owner:
                raise UsageError(
                    f"option {name} is of compression={owner}, but compression is {self.compression}; give both or "
                    "neither"
                )
        if not 0 < self.topk_share <= 1:
            raise UsageError(f"option topk_share is {self.topk_share:g}; give more than 0, and at most 1")

    def settings(self) -> dict[str, str | int | float | bool]:
        """For the record: the compressor and its own parameters."""
        own = {name: getattr(self, name) for name, owner in OWNERS.items() if owner == self.compression}
        return {"compression": self.compression, "error_feedback": self.error_feedback, **own}

    def check(self, training: Training, *, framework: str) -> None:
        """Returns if a training of that kind can be compressed. Raises UsageError."""
        if self.compression == "none":
            return
        if training.pipelined:
            raise UsageError(
                f"compression={self.compression} and pipelined=true: a compressed exchange is applied in its own step; "
                "leave one of them out"
            )
        if framework == "tensorflow" and training.teams > 0:
            raise UsageError(
                f"compression={self.compression} and teams={training.teams}: in TensorFlow compressed gradients travel "
                "after the last of them, without threads; leave teams out"
            )

    def compressor(self) -> Compressor | None:
        """What these options name; None where gradients are not compressed."""
        if self.compression in ("fp16", "bf16"):
            return Halves(self.compression, error_feedback=self.error_feedback)
        if self.compression == "topk":
            return Gathered(TopK(self.topk_share), error_feedback=self.error_feedback)
        return None
