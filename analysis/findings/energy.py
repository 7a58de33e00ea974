"""Energy: joules per sample, for launches with readable energy counters on every node.

    joules per sample = joules of all machines over the windows after the warm-up / samples of these windows

The joules include all that a counter measures on a node, whoever used it, and the time between windows. Nodes that
share a machine share its counters, which are counted once. A launch with a machine without a reading has no number: the
sum over the others would be too small.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dlscale.analysis.declare import Column, Sentence, TableOf, shown_number, tags_of
from dlscale.analysis.families import Family
from dlscale.analysis.finding import PLACE_COLUMNS, Finding
from dlscale.analysis.launches import CellLaunches, good_launches
from dlscale.analysis.records import (
    algorithm_text,
    attributes,
    num_samples,
    options_text,
    settings_text,
    why_unusable,
)
from dlscale.analysis.statistics import Interval, median_interval
from dlscale.analysis.text import interval_columns, listed, plural
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The energy of one launch, over all machines."""

    joules: float
    watts: float
    samples: int
    sources: tuple[str, ...]

    @property
    def joules_per_sample(self) -> float:
        """Joules per sample over the windows after the warm-up."""
        return self.joules / self.samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """The energy of a training's good launches of one kind of evidence. `reason` says why there is none."""

    cell: Cell
    family: Family
    evidence: str
    joules_per_sample: Interval | None
    watts: float | None
    sources: tuple[str, ...]  # that every machine had in every launch
    parts: str  # of a node that were counted; alternatives if nodes differ
    num_launches: int  # whose energy is known
    reason: str


def to_energy_row(energy: Energy) -> dict[str, Any]:
    """The row of a training: joules per sample of all nodes, the counters in `sources`, or the `reason` for none."""
    cell = energy.cell
    return {
        "system": energy.family.system,
        **attributes(cell, "workload preset framework backend algorithm"),
        "backend_options": options_text(cell),
        "algorithm_options": algorithm_text(cell),
        **attributes(cell, "shard split scaling_mode num_ranks num_servers num_nodes"),
        "evidence": energy.evidence,
        **interval_columns("joules_per_sample", energy.joules_per_sample),
        **attributes(energy, "watts parts num_launches"),
        "sources": ", ".join(energy.sources) or None,
        "reason": energy.reason or None,
    }


def reading(record: Record) -> Reading | str:
    """The sum of all machines' counters, or in a few words why there is no number."""
    if not record.energy:
        return _why_nothing(record)
    if why_unusable(record) is not None:
        return "the launch gave no number"
    machines = {rank.rank: rank.boot_id for rank in (*record.ranks, *record.servers)}
    by_source: defaultdict[str, dict[str, tuple[float, float]]] = defaultdict(dict)
    for entry in record.energy:
        if entry.source and entry.joules is not None and entry.seconds and entry.rank in machines:
            known, machine = by_source[entry.source], machines[entry.rank]
            # If nodes share a machine, the longest reading counts.
            known[machine] = max(known.get(machine, (0.0, 0.0)), (entry.seconds, entry.joules))
    everywhere = set(machines.values())
    whole = {source: known.values() for source, known in by_source.items() if known.keys() == everywhere}
    kinds = ("pm_counters",) if "pm_counters" in whole else ("rapl", "nvml", "amdsmi")
    sources = [source for source in kinds if source in whole]
    if not sources:
        return _why_nothing(record)
    parts = [part for source in sources for part in whole[source]]
    return Reading(
        joules=sum(joules for _, joules in parts),
        watts=sum(joules / seconds for seconds, joules in parts),
        samples=int(num_samples(record.counted, record.case.cell).sum()),
        sources=tuple(sources),
    )


def energies(measured: Iterable[CellLaunches]) -> list[Energy]:
    """One per training and kind of evidence, ordered by system, framework, backend and ranks."""
    return sorted(map(_energy, good_launches(measured, controls={"train"})), key=_energy_order)


def _energy(launches: CellLaunches) -> Energy:
    records = launches.records
    readings = [reading(record) for record in records]
    known = [value for value in readings if isinstance(value, Reading)]
    # Launches with different counters are not averaged: the most common set of counters is kept.
    kinds = [launch.sources for launch in known]
    sources = max(sorted(set(kinds)), key=kinds.count, default=())
    own = [launch for launch in known if launch.sources == sources]
    watts = median_interval([launch.watts for launch in own]).center if own else None
    reasons = [value for value in readings if isinstance(value, str)]
    return Energy(
        cell=launches.cell,
        family=launches.family,
        evidence=launches.evidence,
        joules_per_sample=median_interval([launch.joules_per_sample for launch in own]) if own else None,
        watts=watts,
        sources=sources,
        parts="; ".join(filter(None, (_parts(records, source) for source in sources))),
        num_launches=len(own),
        reason="" if own else reasons[0],
    )


def _why_nothing(record: Record) -> str:
    reasons = dict.fromkeys(
        f"{entry.source}: {entry.reason}" if entry.source else f"{entry.node}: {entry.reason}"
        for entry in record.energy
        if entry.reason
    )
    return "; ".join(reasons) or "nobody read a counter"


def _parts(records: Iterable[Record], source: str) -> str:
    """The parts of a node that a source counts; alternatives if nodes differ."""
    known = {
        entry.parts
        for record in records
        for entry in record.energy
        if entry.source == source and entry.joules is not None and entry.parts
    }
    return " | ".join(sorted(known))


def _energy_order(energy: Energy) -> tuple[object, ...]:
    cell = energy.cell
    training = (energy.family.system, cell.workload, cell.preset, cell.framework, cell.scaling_mode)
    backend = (cell.backend != "none", cell.method, settings_text(cell.options))
    return *training, *backend, cell.num_ranks, cell.id, energy.evidence


ENERGY_WORDS = {
    "rapl": "processors and memory",
    "pm_counters": "whole nodes",
    "nvml": "GPUs",
    "amdsmi": "GPUs",
}
LEGEND = (
    "Joules of all nodes over the windows after the warm-up, per sample; the median over launches and, from 6 on, its "
    "interval. Power is the median over launches of joules over seconds, of all nodes. Counted is what the nodes' own "
    "counters count, whoever used it: processors and memory by RAPL, whole nodes by Cray's pm_counters, GPUs by NVML "
    "or amdsmi."
)
ENERGY = TableOf[Energy](
    name="energy",
    caption="Energy per sample",
    columns=(
        *PLACE_COLUMNS,
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


def unknown_energy(trainings: Sequence[Energy]) -> str:
    """A sentence on why energy is not known, and for how many trainings; empty if it is known for all."""
    reasons = [energy.reason for energy in trainings if not energy.joules_per_sample]
    if not reasons:
        return ""
    some = f" of {plural(len(reasons), 'cell')} of {len(trainings)}"
    whose = "" if len(reasons) == len(trainings) else some
    return f"Energy per sample{whose} is not known: {listed(list(dict.fromkeys(reasons)))}."


def _sentences(found: Sequence[Energy]) -> Iterator[Sentence]:
    """Why energy is not known of some trainings; nothing where it is known of none."""
    if any(energy.joules_per_sample for energy in found) and (text := unknown_energy(found)):
        yield Sentence(text=text)


FINDING = Finding(
    name="energy",
    title="Energy",
    compute=lambda study: energies(study.launches),
    sentences=_sentences,
    more=lambda found: (ENERGY.of(energy for energy in found if energy.joules_per_sample),),
    data=lambda found: {"energy": [to_energy_row(energy) for energy in found]},
)
FINDINGS = (FINDING,)
