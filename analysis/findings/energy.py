"""Energy: joules per sample, where every node's counters could be read.

    joules per sample = joules of all machines over the windows after the warm-up / samples of these windows

The joules are of all that a counter counts on a node, whoever used it, and of the moments between windows, too.
Nodes that share a machine share its counters, which count once. A launch of which one machine gave nothing has no
number: the sum of the others would be too small.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from rich.console import RenderableType
from rich.markup import escape

from dlscale.analysis.records import latest_good, num_samples, options_text, steady_windows, why_unusable
from dlscale.analysis.render.text import Grid, backend_name, interval_columns, rate
from dlscale.analysis.statistics import Interval, median_interval
from dlscale.benchmarks.records.record import Cell, Record


def to_energy_row(one: Energy) -> dict[str, Any]:
    """Joules per sample of all nodes; `sources` say what was counted, `reason` why nothing is known."""
    cell = one.cell
    return {
        "system": one.system,
        "workload": cell.workload,
        "preset": cell.preset,
        "framework": cell.framework,
        "backend": cell.backend,
        "backend_options": options_text(cell),
        "scaling_mode": cell.scaling_mode,
        "num_ranks": cell.num_ranks,
        "num_servers": cell.num_servers,
        "num_nodes": cell.num_nodes,
        "evidence": one.evidence,
        **interval_columns("joules_per_sample", one.joules_per_sample),
        "watts": one.watts,
        "sources": ", ".join(one.sources) or None,
        "num_launches": one.num_launches,
        "reason": one.reason or None,
    }


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
    return sorted(map(_energy, groups.values()), key=_energy_order)


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


def _energy_order(one: Energy) -> tuple[object, ...]:
    cell = one.cell
    return (
        *(one.system, cell.workload, cell.preset, cell.framework, cell.scaling_mode),
        *(cell.backend != "none", cell.backend, options_text(cell), cell.num_ranks, cell.id, one.evidence),
    )


ENERGY_WORDS = {"rapl": "processors and memory", "pm_counters": "whole nodes", "nvml": "GPUs"}
ENERGY_COLUMNS = ("framework", "backend", "ranks", "J/sample", "power\n[W]", "counted", "n")
ENERGY_LEGEND = (
    "Joules of all nodes over the windows after the warm-up, per sample; the median over launches and, from 6 on, its "
    "interval. Power is the median over launches of joules over seconds, of all nodes. Counted is what the nodes' own "
    "counters count, whoever used it: processors and memory by RAPL, whole nodes by Cray's pm_counters, GPUs by NVML."
)


def render_energy(found: Sequence[Energy]) -> Iterator[RenderableType]:
    """A table where any launch's energy is known; else one line that says why not; nothing without launches."""
    known = [one for one in found if one.joules_per_sample]
    if not known:
        if found:
            yield f"[dim]{escape(f'Energy per sample is not known ({found[0].reason}).')}[/dim]"
            yield ""
        return
    yield "[bold]Energy[/bold]"
    sections = [
        [energy_cells(one) for one in group]
        for _, group in groupby(known, key=lambda one: (one.cell.workload, one.cell.framework))
    ]
    yield Grid(ENERGY_COLUMNS, sections)
    yield f"[dim]{escape(ENERGY_LEGEND)}[/dim]"
    yield ""


def energy_cells(one: Energy) -> tuple[str, ...]:
    """Of a row."""
    return (
        f"{one.cell.workload} {one.cell.framework}",
        backend_name(one.cell),
        str(one.cell.num_ranks),
        rate(one.joules_per_sample),
        "-" if one.watts is None else f"{one.watts:.0f}",
        ", ".join(ENERGY_WORDS[source] for source in one.sources),
        str(one.num_launches),
    )
