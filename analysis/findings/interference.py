"""Other programs on the machine: CPU time that they took on the cores of a study's launches.

The ranks read it with every window (`benchmarks/rank/other_programs.py`). A study with more than a few disturbed
launches claims nothing: chance did not choose which backend was hit.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from dlscale.analysis.declare import Sentence
from dlscale.analysis.finding import Finding
from dlscale.analysis.measured import Measured
from dlscale.benchmarks.records.record import DISTURBED, Record

MOST_DISTURBED = 0.1  # of the launches of a study that claims something


@dataclass(frozen=True, slots=True, kw_only=True)
class Interference:
    """The launches whose foreign CPU time is known, and those that it disturbed."""

    num_launches: int
    num_disturbed: int
    share: float  # of the disturbed launches' CPU time, to other programs; 0 without any

    @property
    def busy(self) -> bool:
        return self.num_disturbed > MOST_DISTURBED * self.num_launches

    @property
    def text(self) -> str:
        """What happened, in a sentence; empty if nothing did."""
        if not self.num_disturbed:
            return ""
        share, launches = f"{100 * self.share:.0f} %", f"{self.num_disturbed} of {self.num_launches} launches"
        if self.busy:
            taken = f"other programs took {share} of the CPU time of {launches}"
            return f"The machine was busy: {taken}, so nothing is claimed."
        return f"Other programs took {share} of the CPU time of {launches}."


def interference(records: Iterable[Record]) -> Interference | None:
    """Over good launches of trainings; None where nothing is known, as in records from before it was read."""
    shares = [record.foreign_cpu for record in records if record.foreign_cpu is not None]
    if not shares:
        return None
    disturbed = [share for share in shares if share > DISTURBED]
    return Interference(
        num_launches=len(shares),
        num_disturbed=len(disturbed),
        share=statistics.fmean(disturbed) if disturbed else 0.0,
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
