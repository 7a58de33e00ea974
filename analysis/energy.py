"""Joules per sample, where every node's counters could be read (M34).

    joules per sample = joules of all machines over the windows after the warm-up / samples of these windows

The joules are of all that a counter counts on a node, whoever used it, and of the moments between windows, too. Nodes
that share a machine share its counters, which count once. A launch of which one machine gave nothing has no number: the
sum of the others would be too small.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dlscale.analysis.frame import num_samples, options_text, steady_windows, why_unusable
from dlscale.analysis.statistics import Interval, median_interval
from dlscale.analysis.waterfall.times import latest_good
from dlscale.benchmarks.record import Cell, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Of one launch, over all machines."""

    joules: float
    watts: float
    samples: int
    sources: tuple[str, ...]

    @property
    def joules_per_sample(self) -> float:
        """Over the windows after the warm-up."""
        return self.joules / self.samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """Of a training's launches of one kind of evidence that gave numbers. `reason` says why there are none."""

    system: str
    cell: Cell
    evidence: str
    joules_per_sample: Interval | None
    watts: float | None
    sources: tuple[str, ...]  # that every machine had in every launch
    num_launches: int  # whose energy is known
    reason: str


def reading(record: Record) -> Reading | str:
    """What the counters of all machines said, or why there is no number, in a few words."""
    if why_unusable(record) is not None:
        return "the launch gave no number"
    samples = sum(num_samples(window, record.case.cell) for window in steady_windows(record))
    machines = {rank.rank: rank.boot_id for rank in (*record.ranks, *record.servers)}
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for one in record.energy:
        if one.source and one.joules is not None and one.seconds and one.rank in machines:
            known = found.setdefault(one.source, {})
            # Of nodes that share a machine the one that looked longest.
            known[machines[one.rank]] = max(
                known.get(machines[one.rank], (0.0, 0.0)), (one.seconds, one.joules)
            )
    whole = {
        source: list(known.values())
        for source, known in found.items()
        if known.keys() == set(machines.values())
    }
    sources = ["pm_counters"] if "pm_counters" in whole else [one for one in ("rapl", "nvml") if one in whole]
    if not sources:
        return _why_nothing(record)
    parts = [part for source in sources for part in whole[source]]
    return Reading(
        joules=sum(joules for _, joules in parts),
        watts=sum(joules / seconds for seconds, joules in parts),
        samples=samples,
        sources=tuple(sources),
    )


def energies(records: Iterable[Record]) -> list[Energy]:
    """One per training and kind of evidence, ordered by system, framework, backend and ranks."""
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in latest_good(records):
        if record.case.cell.control == "train":
            groups.setdefault((record.system, record.case.cell.id, record.evidence), []).append(record)
    return sorted(map(_energy, groups.values()), key=_order)


def _energy(records: Sequence[Record]) -> Energy:
    first = records[0]
    told = [reading(record) for record in records]
    known = [one for one in told if isinstance(one, Reading)]
    # Launches that count different things are not averaged: the one that most of them count stays.
    kinds = [one.sources for one in known]
    sources = max(sorted(set(kinds)), key=kinds.count, default=())
    own = [one for one in known if one.sources == sources]
    watts = median_interval([one.watts for one in own]).center if own else None
    reasons = [one for one in told if isinstance(one, str)]
    return Energy(
        system=first.system,
        cell=first.case.cell,
        evidence=first.evidence,
        joules_per_sample=median_interval([one.joules_per_sample for one in own]) if own else None,
        watts=watts,
        sources=sources,
        num_launches=len(own),
        reason="" if own else reasons[0],
    )


def _why_nothing(record: Record) -> str:
    reasons = dict.fromkeys(
        f"{one.source}: {one.reason}" if one.source else f"{one.node}: {one.reason}"
        for one in record.energy
        if one.reason
    )
    return "; ".join(reasons) or "nobody read a counter"


def _order(one: Energy) -> tuple[object, ...]:
    cell = one.cell
    return (
        *(one.system, cell.workload, cell.preset, cell.framework, cell.scaling_mode),
        *(cell.backend != "none", cell.backend, options_text(cell), cell.num_ranks, cell.id, one.evidence),
    )
