"""Computation that is replaced by sleep: a few cores then stand for many nodes, while gradients keep their real sizes.

A step sleeps for the forward pass; in backpropagation it sleeps an equal share before each gradient, last layer first.
Gradients are constants of the local batch, so that ranks differ and exchanges can be checked; the loss is one, too, and
does not fall.
"""

from __future__ import annotations

import time
from typing import Annotated

from pydantic import Field

from dlscale.base.definitions import Frozen
from dlscale.base.quantities import parse_quantity

PassSeconds = Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)]
UNCHECKED = "loss and gradients are no network's: computation was replaced by sleep"


class Slept(Frozen):
    """Seconds of one step's forward pass and of its backpropagation, over all objectives."""

    forward_seconds: PassSeconds
    backward_seconds: PassSeconds

    @property
    def text(self) -> str:
        """For names of curves and tables."""
        forward, backward = 1e3 * self.forward_seconds, 1e3 * self.backward_seconds
        return f"sleep of {forward:g} + {backward:g} ms for computation"


def read_slept(text: str) -> Slept | None:
    """The replacement that `sleep:20ms,40ms` asks for (forward, backward); None for `real`. Raises ValueError."""
    if text == "real":
        return None
    kind, _, times = text.partition(":")
    forward, comma, backward = times.partition(",")
    if kind != "sleep" or not comma:
        raise ValueError(
            f"{text!r} is not a computation; write real, or sleep:20ms,40ms for forward and backward"
        )
    return Slept(
        forward_seconds=parse_quantity(forward, "seconds"),
        backward_seconds=parse_quantity(backward, "seconds"),
    )


class Sleeper:
    """Sleeps that add up: what one takes too long the next ones take less."""

    def __init__(self) -> None:
        self._late = 0.0

    def sleep(self, seconds: float) -> None:
        """Return after that time, less what earlier calls took too long."""
        begin = time.perf_counter()
        wanted = seconds - self._late
        if wanted > 0:
            time.sleep(wanted)
        self._late = time.perf_counter() - begin - wanted
