"""Energy: joules per sample, where every node's counters could be read.

    joules per sample = joules of all machines over the windows after the warm-up / samples of these windows

The joules are of all that a counter counts on a node, whoever used it, and of the moments between windows, too.
Nodes that share a machine share its counters, which count once. A launch of which one machine gave nothing has no
number: the sum of the others would be too small.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dlscale.analysis.families import family_of
from dlscale.analysis.records import latest_good, num_samples, options_text, steady_windows, why_unusable
from dlscale.analysis.render.tables import (
    Column,
    Table,
    TableOf,
    cell_name,
    shown_number,
    tags_of,
    training_columns,
)
from dlscale.analysis.render.text import interval_columns, listed, plural
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
        "parts": one.parts,
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
    parts: str  # of a node, that were counted; alternatives where nodes differ
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
        parts="; ".join(filter(None, (_parts(records, source) for source in sources))),
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


def _parts(records: Iterable[Record], source: str) -> str:
    """The parts of a node that a source counts; alternatives where nodes differ."""
    known = {
        reading.parts
        for record in records
        for reading in record.energy
        if reading.source == source and reading.joules is not None and reading.parts
    }
    return " | ".join(sorted(known))


def _energy_order(one: Energy) -> tuple[object, ...]:
    cell = one.cell
    return (
        *(one.system, cell.workload, cell.preset, cell.framework, cell.scaling_mode),
        *(cell.backend != "none", cell.backend, options_text(cell), cell.num_ranks, cell.id, one.evidence),
    )


ENERGY_WORDS = {"rapl": "processors and memory", "pm_counters": "whole nodes", "nvml": "GPUs"}
LEGEND = (
    "Joules of all nodes over the windows after the warm-up, per sample; the median over launches and, from 6 on, its "
    "interval. Power is the median over launches of joules over seconds, of all nodes. Counted is what the nodes' own "
    "counters count, whoever used it: processors and memory by RAPL, whole nodes by Cray's pm_counters, GPUs by NVML."
)
ENERGY = TableOf[Energy](
    name="energy",
    caption="Energy per sample",
    columns=(
        *training_columns(lambda energy: family_of(energy.cell, system=energy.system)),
        Column("backend", lambda energy: cell_name(energy.cell, energy.evidence), numeric=False),
        Column("ranks", lambda energy: energy.cell.num_ranks),
        Column("energy", lambda energy: energy.joules_per_sample, unit="J per sample"),
        Column("power", lambda energy: shown_number(energy.watts, "{:.0f}".format), unit="W"),
        Column(
            "counted", lambda energy: ", ".join(ENERGY_WORDS[name] for name in energy.sources), numeric=False
        ),
        Column("parts", lambda energy: energy.parts, unit="of a node", numeric=False, detail=True),
        Column("launches", lambda energy: energy.num_launches),
    ),
    data=to_energy_row,
    legend=LEGEND,
    tags=lambda energy: tags_of(energy.cell),
    group=lambda energy: (energy.cell.workload, energy.cell.framework),
)


def energy_table(found: Iterable[Energy]) -> Table:
    """One row per training whose energy is known."""
    return ENERGY.of(energy for energy in found if energy.joules_per_sample)


def unknown_energy(found: Sequence[Energy]) -> str:
    """Why energy is not known, and of how many trainings; empty where it is known of all."""
    reasons = [energy.reason for energy in found if not energy.joules_per_sample]
    if not reasons:
        return ""
    whose = "" if len(reasons) == len(found) else f" of {plural(len(reasons), 'cell')} of {len(found)}"
    return f"Energy per sample{whose} is not known: {listed(list(dict.fromkeys(reasons)))}."
