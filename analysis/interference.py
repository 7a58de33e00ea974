"""Interference: CPU time that other programs took on the cores of a study's launches.

The ranks read it with every window (`benchmarks/rank/other_programs.py`). A study with more than a few disturbed
launches claims nothing: chance did not choose which backend was hit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dlscale.benchmarks.records.record import Record

BUSY_WINDOW = 0.15  # of CPU time; in a shorter window a tick of the kernel's clock is a few percent
MOST_DISTURBED = 0.1  # of the launches of a study that claims something


@dataclass(frozen=True, slots=True, kw_only=True)
class Interference:
    """The launches whose foreign CPU time is known, their steady windows, and those in which it was high."""

    num_launches: int
    num_disturbed: int
    num_windows: int
    num_busy: int
    share: float  # of CPU time in the busy windows, to other programs; 0 without any

    @property
    def busy(self) -> bool:
        """Whether the study may claim nothing."""
        return self.num_disturbed > MOST_DISTURBED * self.num_launches

    @property
    def text(self) -> str:
        """What happened, in a sentence; empty if nothing did."""
        if not self.num_disturbed:
            return ""
        disturbed = (
            f"{self.num_disturbed} of {self.num_launches} launches were disturbed by other programs, which took "
            f"{100 * self.share:.0f} % of the CPU time in {self.num_busy} of {self.num_windows} windows"
        )
        if not self.busy:
            return f"{disturbed}."
        return (
            f"The machine was busy: other programs took {100 * self.share:.0f} % of the CPU time in {self.num_busy} of "
            f"{self.num_windows} windows, so nothing is claimed."
        )


def interference(records: Iterable[Record]) -> Interference | None:
    """Over good launches of trainings; None where nothing is known, as in records from before it was read."""
    records = [record for record in records if record.foreign_cpu is not None]
    if not records:
        return None
    shares = [
        (max(window.seconds), window.foreign_cpu)
        for record in records
        for window in record.windows
        if window.phase == "steady" and window.foreign_cpu is not None
    ]
    busy = [(seconds, share) for seconds, share in shares if share > BUSY_WINDOW]
    taken = sum(seconds * share for seconds, share in busy)
    return Interference(
        num_launches=len(records),
        num_disturbed=sum(record.disturbed for record in records),
        num_windows=len(shares),
        num_busy=len(busy),
        share=taken / sum(seconds for seconds, _ in busy) if busy else 0.0,
    )


def why_unclaimable(found: Interference | None) -> str:
    """Why a study claims nothing; empty if nothing forbids it."""
    return "the machine was busy" if found and found.busy else ""
