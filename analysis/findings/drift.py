"""Drift: whether a job's nodes were as fast at its end as at its beginning, by the canaries at both ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dlscale.analysis.declare import Sentence
from dlscale.analysis.finding import Finding
from dlscale.analysis.launches import CellLaunches

TOLERANCE = 0.05  # of the throughput; a single pair of launches cannot resolve less


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """A job's canary at its end over that at its beginning, as throughputs; None if one of them has no result."""

    study: str
    job: int
    ratio: float | None

    @property
    def steady(self) -> bool | None:
        """True within 5 %; None if it is not known."""
        return None if self.ratio is None else abs(self.ratio - 1) <= TOLERANCE

    @property
    def text(self) -> str:
        if self.ratio is None:
            return f"job {self.job}: no canary at both ends, so nobody knows whether its nodes changed while it ran"
        percent = f"{100 * abs(self.ratio - 1):.1f} % {'faster' if self.ratio >= 1 else 'slower'}"
        verdict = (
            "steady"
            if self.steady
            else "drift: what ran at its beginning and at its end differs by more than 5 %"
        )
        return f"job {self.job}: the canary at its end was {percent} than at its beginning: {verdict}"


def drifts(measured: Iterable[CellLaunches]) -> Iterator[Drift]:
    """The drift of each job that had a canary; blocks 2 j and 2 j + 1 are job j's, and the latest good one counts."""
    speeds: dict[tuple[str, int], dict[int, float | None]] = {}
    canaries = [launches for launches in measured if launches.cell.control == "canary"]
    for case in (case for launches in canaries for case in launches.cases):
        study, block = case.block
        job, end = divmod(block, 2)
        by_end = speeds.setdefault((study, job), {})
        by_end[end] = 1 / case.world if case.good else by_end.get(end)
    for (study, job), ends in sorted(speeds.items()):
        first, last = ends.get(0), ends.get(1)
        yield Drift(study=study, job=job, ratio=last / first if first and last else None)


FINDING = Finding(
    name="drift",
    title="Drift of the nodes while jobs ran",
    compute=lambda study: tuple(drifts(study.cells)),
    sentences=lambda found: (
        Sentence(text=f"{drift.text[0].upper()}{drift.text[1:]}.", strong=drift.steady is False)
        for drift in found
    ),
    under="failures",
)
FINDINGS = (FINDING,)
