"""Only what was measured while the CPUs of the ranks were near each other, or far apart.

A virtual machine may move its CPUs while a run lasts: from a common cache to none and back, which changes everything
between caches three- to fivefold. How long a flag takes from one rank to another and back is in the records, before
and after every size, so what was measured at one distance can be told from the rest afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from dlscale.benchmarks.collectives.record import Campaign, Launch
from dlscale.models.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTrip:
    """Limits, in nanoseconds; both included."""

    least: float
    most: float

    def holds(self, *nanoseconds: float) -> bool:
        """All of them lie within."""
        return all(self.least <= one <= self.most for one in nanoseconds)


def only(campaign: Campaign, launches: Sequence[Launch], wanted: RoundTrip) -> list[Launch]:
    """The measured launches with the sizes before and after which a flag took as long as `wanted`.

    Launches that do not note it (those of torch) are left out, and so are ranks that share CPUs; other launches, such
    as those beside IMB-MPI1, stay as they are. Raises UsageError if nothing is left.
    """
    measured = [
        launch
        for launch in launches
        if launch.purpose == "measured" and launch.num_ranks <= len(campaign.cpus)
    ]
    kept = [one for one in (_only(campaign, launch, wanted) for launch in measured) if one.samples]
    if not kept:
        trips = sorted(time for launch in measured for time in launch.round_trip_nanoseconds)
        took = f"; it took {trips[0]} to {trips[-1]}" if trips else ""
        raise UsageError(
            f"--round-trip: nothing was measured while a flag took {wanted.least:g} to {wanted.most:g} ns{took}"
        )
    return kept + [launch for launch in launches if launch.purpose != "measured"]


def _only(campaign: Campaign, launch: Launch, wanted: RoundTrip) -> Launch:
    """Its cells were measured mode by mode, size by size, with a round trip before the first and after each."""
    trips = launch.round_trip_nanoseconds
    cells = [(mode, size) for mode in campaign.modes for size in campaign.sizes]
    # Stopped early, a launch has fewer of them than cells.
    around = zip(cells, pairwise(trips), strict=False)
    good = {cell: pair for cell, pair in around if wanted.holds(*pair)}
    return launch.model_copy(
        update={
            "samples": [one for one in launch.samples if (one.mode, one.message_bytes) in good],
            "failures": [one for one in launch.failures if (one.mode, one.message_bytes) in good],
            "round_trip_nanoseconds": [time for pair in good.values() for time in pair],
        }
    )
