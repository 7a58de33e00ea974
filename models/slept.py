"""Computation that is replaced by sleep: a few cores then stand for many nodes, while gradients keep their real sizes.

A step sleeps for the forward pass; in backpropagation it sleeps an equal share before each gradient, last layer first.
Gradients are constants of the local batch, so that ranks differ and exchanges can be checked; the loss is one, too, and
does not fall.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from dlscale.base.definitions import Frozen
from dlscale.base.quantities import parse_quantity

PassSeconds = Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)]
UNCHECKED = "loss and gradients are no network's: computation was replaced by sleep"


@dataclass(frozen=True, slots=True)
class SleptPass:
    """One objective's part of a step: seconds of its forward pass, then those before each of its gradients.

    `gradients` has (place of the parameter in the objective, seconds since the gradient before), in the order in which
    they become ready.
    """

    forward_seconds: float
    gradients: tuple[tuple[int, float], ...]


class Slept(Frozen):
    """Seconds of one step's forward pass and of its backpropagation, over all objectives."""

    forward_seconds: PassSeconds
    backward_seconds: PassSeconds

    @property
    def text(self) -> str:
        """For names of curves and tables."""
        forward, backward = 1e3 * self.forward_seconds, 1e3 * self.backward_seconds
        return f"sleep of {forward:g} + {backward:g} ms for computation"

    def passes(self, objectives: Sequence[Sequence[str]]) -> list[SleptPass]:
        """The sleeps of a step of objectives whose parameters have these names."""
        share = 1 / len(objectives)
        return [
            SleptPass(
                self.forward_seconds * share,
                tuple((place, self.backward_seconds * share / len(names)) for place in _last_first(names)),
            )
            for names in objectives
        ]


def _last_first(names: Sequence[str]) -> list[int]:
    return list(reversed(range(len(names))))


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

    def sleep(self, seconds: float, *, since: float | None = None) -> None:
        """Return that time after `since` (`time.perf_counter`; None: now), less what earlier calls took too long."""
        end = (time.perf_counter() if since is None else since) + seconds - self._late
        wanted = end - time.perf_counter()
        if wanted > 0:
            time.sleep(wanted)
        self._late = time.perf_counter() - end
