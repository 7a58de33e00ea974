"""The user's options of compression, and the compressor that they name."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from dlscale.base.errors import UsageError
from dlscale.collectives.compression.compressor import Codec, Compressor, Gathered
from dlscale.collectives.compression.halves import Halves
from dlscale.collectives.compression.qsgd import MOST_LEVELS, Qsgd
from dlscale.collectives.compression.threshold import Threshold
from dlscale.collectives.compression.topk import TopK
from dlscale.collectives.option_kinds import CheckedOptions, at_least, one_of, option
from dlscale.collectives.training.communication import Training

COMPRESSORS = ("none", "fp16", "bf16", "topk", "threshold", "qsgd")
# Which options belong to one compressor only; with others they say nothing, so that a sweep can have all of them.
OWNERS = {"topk_share": "topk", "threshold": "threshold", "qsgd_levels": "qsgd"}


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
    qsgd_levels: int = at_least(1, 7, most=MOST_LEVELS)

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
        codecs: dict[str, Callable[[], Codec]] = {
            "topk": lambda: TopK(self.topk_share),
            "threshold": lambda: Threshold(self.threshold),
            "qsgd": lambda: Qsgd(self.qsgd_levels),
        }
        if make := codecs.get(self.compression):
            return Gathered(make(), error_feedback=self.error_feedback)
        return None
