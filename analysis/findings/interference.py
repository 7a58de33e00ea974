"""Other programs on the machine: CPU time that they took on the cores of a study's launches.

The ranks read it with every window (`benchmarks/rank/other_programs.py`). A study with more than a few disturbed
launches claims nothing: chance did not choose which backend was hit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

import numpy as np

from dlscale.analysis.declare import Sentence
from dlscale.analysis.finding import Finding
from dlscale.analysis.measured import Measured
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
    windows = [record.columns.where(record.columns.steady) for record in records]
    shares = np.concatenate(
        [np.full(len(one), np.nan) if one.foreign_cpu is None else one.foreign_cpu for one in windows]
    )
    seconds = np.concatenate([one.world for one in windows])
    with np.errstate(invalid="ignore"):
        busy = shares > BUSY_WINDOW
    num_busy = int(busy.sum())
    taken = float((seconds[busy] * shares[busy]).sum() / seconds[busy].sum()) if num_busy else 0.0
    return Interference(
        num_launches=len(records),
        num_disturbed=sum(record.disturbed for record in records),
        num_windows=int((~np.isnan(shares)).sum()),
        num_busy=num_busy,
        share=taken,
    )


def is_busy(study: Measured) -> bool:
    """Whether other programs disturbed too many launches for any claim."""
    return any(found.busy for found in FINDING.of(study))


def why_unclaimable(study: Measured) -> str:
    """Why a study claims nothing; empty if nothing forbids it."""
    return "the machine was busy" if is_busy(study) else ""


def _found(study: Measured) -> tuple[Interference, ...]:
    trained = (launches for launches in study.launches if launches.cell.control == "train")
    found = interference(record for launches in trained for record in launches.records)
    return (found,) if found else ()


def _sentences(found: Iterable[Interference]) -> list[Sentence]:
    return [Sentence(text=one.text, strong=one.busy) for one in found if one.text]


FINDING: Finding[Interference] = Finding(
    name="interference",
    title="Other programs on the machine",
    compute=_found,
    sentences=_sentences,
    screen=lambda study: _sentences(FINDING.of(study)),
    data=lambda found: {"interference": asdict(found[0]) | {"busy": found[0].busy} if found else None},
    under="failures",
)
FINDINGS = (FINDING,)
