"""Computation that is replaced by sleep: a few cores then stand for many nodes, while gradients keep their real sizes.

In backpropagation a step sleeps an equal share before each gradient, last layer first, or until the moment at which a
profile has that gradient complete. The forward pass is shared out likewise, first layer first: a layer's part of it is
taken to be its part of backpropagation, of which no profile says more. Only what waits for single weights can tell.
Gradients are constants of the local batch, so that ranks differ and exchanges can be checked; the loss is one, too, and
does not fall.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from pydantic import Field, ValidationError

from dlscale.base.definitions import Frozen, first_problem, where_given
from dlscale.base.errors import UsageError
from dlscale.base.quantities import parse_quantity
from dlscale.base.strings import Text

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

    @property
    def seconds(self) -> float:
        """Of both passes."""
        return self.forward_seconds + sum(seconds for _, seconds in self.gradients)

    def forward(self) -> list[float]:
        """Seconds of the forward pass that each parameter is needed for, by place: in proportion to its gradient's."""
        backward = sum(seconds for _, seconds in self.gradients)
        return [
            self.forward_seconds * (seconds / backward if backward else 1 / len(self.gradients))
            for _, seconds in sorted(self.gradients)
        ]


class Slept(Frozen):
    """Seconds of one step's forward pass and of its backpropagation, over all objectives.

    By a profile, `forward_seconds` end with the first objective's forward pass, and `backward_seconds` with the last
    gradient; `ready` has when each is complete, by name, in seconds after the forward pass.
    """

    forward_seconds: PassSeconds
    backward_seconds: PassSeconds
    source: Text = where_given("")  # of the profile: study and cell, or publication
    digest: Text = where_given("")  # of the profile's numbers here
    ready: dict[Text, PassSeconds] = where_given({})  # empty: equal shares, last layer first

    @property
    def text(self) -> str:
        """For names of curves and tables."""
        forward, backward = 1e3 * self.forward_seconds, 1e3 * self.backward_seconds
        profile = f", profile {self.digest}" if self.digest else ""
        return f"sleep of {forward:g} + {backward:g} ms for computation{profile}"

    def passes(self, objectives: Sequence[Sequence[str]]) -> list[SleptPass]:
        """The sleeps of a step of objectives whose parameters have these names.

        Raises UsageError if they are not those of the profile.
        """
        if self.ready:
            return self._profiled(objectives)
        share = 1 / len(objectives)
        return [
            SleptPass(
                self.forward_seconds * share,
                tuple((place, self.backward_seconds * share / len(names)) for place in _last_first(names)),
            )
            for names in objectives
        ]

    def _profiled(self, objectives: Sequence[Sequence[str]]) -> list[SleptPass]:
        """Each gradient when the profile has it, but after those of the objectives before."""
        asked = [name for names in objectives for name in names]
        if differing := sorted(self.ready.keys() ^ set(asked)):
            whose = "the network" if differing[0] in asked else "the profile"
            raise UsageError(
                f"profile {self.digest} ({self.source}): only {whose} has the gradient {differing[0]}; measure the "
                "profile again, with this network"
            )
        now = 0.0
        passes: list[SleptPass] = []
        for names in objectives:
            gradients = []
            for place in sorted(_last_first(names), key=lambda place: self.ready[names[place]]):
                moment = max(now, self.ready[names[place]])
                gradients.append((place, moment - now))
                now = moment
            # A later objective's forward pass is in the time up to its first gradient.
            passes.append(SleptPass(0.0 if passes else self.forward_seconds, tuple(gradients)))
        return passes


def _last_first(names: Sequence[str]) -> list[int]:
    return list(reversed(range(len(names))))


def slept_key(
    *,
    workload: str,
    preset: str,
    framework: str,
    precision: str,
    local_batch: int,
) -> str:
    """What a study's profiles are told apart by: `hep_cnn tiny in torch, fp32, batch 8`."""
    return f"{workload} {preset} in {framework}, {precision}, batch {local_batch}"


class ByProfile(Frozen):
    """Sleep by a profile: of a study, or a stored one, of a system or without a name the only one."""

    name: Text

    @property
    def option(self) -> str:
        return f"compute=profile{':' * bool(self.name)}{self.name}"


def read_slept(text: str) -> Slept | None:
    """The replacement that `sleep:20ms,40ms` asks for (forward, backward); None for `real`. Raises ValueError."""
    if text == "real":
        return None
    kind, _, times = text.partition(":")
    forward, comma, backward = times.partition(",")
    if kind != "sleep" or not comma:
        raise ValueError(
            f"{text!r} is not a computation; write real, or sleep:20ms,40ms for forward and backward, or profile:STUDY"
        )
    seconds = [parse_quantity(time, "seconds") for time in (forward, backward)]
    try:
        return Slept(forward_seconds=seconds[0], backward_seconds=seconds[1])
    except ValidationError as error:
        raise ValueError(first_problem(error)) from None


class SleepOperations(NamedTuple):
    """What a graph sleeps with; moments and lengths are seconds of the wall clock."""

    sleep: Callable[..., Any]  # (begin, seconds, held) -> (end, held)
    arrival: Callable[..., Any]  # (awaited) -> the moment at which it is there


class Sleeper:
    """Sleeps that add up: what one takes too long the next ones take less, but never more than `most` seconds.

    Without that limit a rank that was stopped for a minute would not sleep for a minute, and its steps would seem fast.
    """

    def __init__(self, *, most: float) -> None:
        self._late, self._most = 0.0, most

    def sleep(self, seconds: float, *, since: float | None = None) -> None:
        """Return that time after `since` (`time.perf_counter`; None: now), less what earlier calls took too long."""
        end = (time.perf_counter() if since is None else since) + seconds - self._late
        wanted = end - time.perf_counter()
        if wanted > 0:
            time.sleep(wanted)
        self._late = min(time.perf_counter() - end, self._most)
