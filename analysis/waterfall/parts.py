"""Which parts a scaling loss can be cut into, from the controls that were measured.

A staircase of steps, in seconds; every part is the height of one stair, so that together they are the loss:

    ideal      1 rank of `none`, per sample, times the local batch of N ranks
      | batch effect            the local batch is smaller than the base case's (strong scaling only)
    alone      1 rank of `none` at the local batch of N ranks
      | co-running              N ranks share memory, caches and power, and compute more slowly
      | input stall             N ranks wait longer for their samples than 1 rank does
    mean       N ranks of `none`: the average rank's step
      | late ranks              every step has a latest rank, and all others wait for it
    latest     N ranks of `none`: mean over steps of the latest rank's
      | exposed communication   all the rest
    measured   N ranks over the backend

Late ranks and the input stall both happen in `none` on N ranks, where nobody waits for anybody. They are told apart
by a line at the average rank's step, and no millisecond is on both sides:

    rank 0  |---- computes ----|~ input ~|                         below the line: what the average rank does,
    rank 1  |------- computes -------|~~~~~ input ~~~~~|           computing (co-running) and fetching (input stall);
    rank 2  |---- computes ----|~~ input ~~|                       beyond it: late ranks, whatever made them late
                                          mean        latest

Below the line the two are told apart by training on resident tensors, which fetches nothing. The base case reads data,
too, and what it waits for input is a part of the ideal step already. So only the growth is lost by scaling:

    input stall  = (mean - resident) of N ranks  -  (ideal - resident) of 1 rank, at the same local batch
    co-running   = resident of N ranks  -  resident of 1 rank, at the same local batch

`analysis.stall` has the whole of it, as a share of a step. A stair whose control was not measured is not guessed:
its part and the next one stand as one, with both names.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Literal

BATCH, CO_RUNNING, INPUT = "batch effect", "co-running", "input stall"
LATE, EXPOSED = "late ranks", "exposed communication"
NAMES = (BATCH, CO_RUNNING, INPUT, LATE, EXPOSED)  # in the order of the staircase

# "..._resident" is the same on tensors in memory; "resident" that of N ranks. Seconds per step.
Level = Literal[
    "ideal", "ideal_resident", "alone", "alone_resident", "resident", "mean", "latest", "measured"
]
Terms = dict[Level, int]  # a sum of levels, each with its factor


@dataclass(frozen=True, slots=True, kw_only=True)
class Stair:
    """A part of the loss, or several that the controls do not tell apart, as a sum of measured levels."""

    names: tuple[str, ...]
    terms: Terms

    @property
    def name(self) -> str:
        """`co-running`, or `batch effect, co-running and input stall`."""
        return " and ".join(filter(None, (", ".join(self.names[:-1]), self.names[-1])))


def staircase(known: Set[Level], *, strong: bool, reads: bool, together: bool) -> tuple[Stair, ...]:
    """The parts that the known levels allow, from ideal to measured; ideal, mean and measured are always known.

    `strong` scaling changes the local batch; a study that does not read data has no input stall; ranks that do not
    step `together` do not wait for each other. The terms add up to measured - ideal.
    """
    landings: list[tuple[str, Terms | None]] = []
    if strong:
        landings.append((BATCH, _after_batch(known, reads=reads)))
    if reads:
        # With a control of the batch but none of its input, it is not known in which of two stairs that lies.
        apart = _input_known(known) and (not strong or "alone" not in known or _resident_known(known))
        resident: Terms | None = {"ideal": 1, "ideal_resident": -1, "resident": 1} if apart else None
        landings += [(CO_RUNNING, resident), (INPUT, {"mean": 1})]
    else:
        landings.append((CO_RUNNING, {"mean": 1}))
    landings.append((LATE, {"latest": 1} if together and "latest" in known else None))
    landings.append((EXPOSED, {"measured": 1}))
    return _between(landings)


def _after_batch(known: Set[Level], *, reads: bool) -> Terms | None:
    if "alone" not in known:
        return None
    if reads and _resident_known(known) and _input_known(known):
        return {"ideal": 1, "ideal_resident": -1, "alone_resident": 1}
    return {"alone": 1}


def _input_known(known: Set[Level]) -> bool:
    return {"ideal_resident", "resident"} <= known


def _resident_known(known: Set[Level]) -> bool:
    return "alone_resident" in known


def _between(landings: list[tuple[str, Terms | None]]) -> tuple[Stair, ...]:
    """A stair from each known landing to the next known one."""
    stairs: list[Stair] = []
    names: list[str] = []
    below: Terms = {"ideal": 1}
    for name, landing in landings:
        names.append(name)
        if landing is not None:
            stairs.append(Stair(names=tuple(names), terms=difference(landing, below)))
            names, below = [], landing
    return tuple(stairs)


def difference(over: Terms, under: Terms) -> Terms:
    """One sum of levels minus another."""
    factors = {level: over.get(level, 0) - under.get(level, 0) for level in (*over, *under)}
    return {level: factor for level, factor in factors.items() if factor}
