"""How gradients travel over a collective: options of every backend that trains over one."""

from __future__ import annotations

from dataclasses import dataclass

from dlscale.models.errors import UsageError

AUTOMATIC = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What a user may set about the exchange of gradients.

    `teams`: communication threads, each with a communicator of its own, among which the buckets go round; 0
    exchanges in line with backpropagation, -1 takes one thread where a core is to spare and none elsewhere.
    `pipelined`: each step applies the gradients of the step before, whose exchange has the whole step's time.
    `pipelined_until_step`: the cool-down begins, so that this step (the first is 0) and those after it are
    synchronous again; 0 means never. `check_every`: compare the weights of all ranks after every so many
    steps; 0 means once, at the start.
    """

    teams: int = AUTOMATIC
    pipelined: bool = False
    pipelined_until_step: int = 0
    check_every: int = 0

    def __post_init__(self) -> None:
        for name, least in (("teams", AUTOMATIC), ("pipelined_until_step", 0), ("check_every", 0)):
            if getattr(self, name) < least:
                raise UsageError(f"option {name} is {getattr(self, name)}; give {least} or more")
        if self.pipelined_until_step and not self.pipelined:
            raise UsageError(
                f"pipelined_until_step={self.pipelined_until_step} ends a pipelined exchange, but pipelined "
                "was not asked for; give both or neither"
            )

    @property
    def delay(self) -> int:
        """Steps from a gradient's own step to the one that applies it, while pipelined."""
        return 1 if self.pipelined else 0

    def is_late(self, step: int) -> bool:
        """Whether `step` (the first is 0) applies the gradients of the step before; the first has none to apply."""
        return self.pipelined and (self.pipelined_until_step == 0 or step < self.pipelined_until_step)

    def drains(self, step: int) -> bool:
        """Whether the cool-down begins: what the step before left over is to be applied before `step` computes."""
        return step > 0 and self.is_late(step - 1) and not self.is_late(step)

    def settings(self) -> dict[str, str | int | float | bool]:
        """For the record, what decides which gradients are applied when."""
        return {"pipelined": self.pipelined, "pipelined_until_step": self.pipelined_until_step}
