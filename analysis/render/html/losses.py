"""Causes of lost speed on the page: waterfalls, stragglers, bounds.

Heat maps show ranks by windows without communication, and mark the stragglers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dlscale.analysis.declare import Guide, HeatMap, Loss, Part, Sentence, Tags, tags_of
from dlscale.analysis.efficiency import ScalingRow, ScalingTable
from dlscale.analysis.families import Family
from dlscale.analysis.findings import stragglers as late_words
from dlscale.analysis.findings.rank_times import RankTimes
from dlscale.analysis.findings.stragglers import Stragglers
from dlscale.analysis.findings.waterfall import Waterfall
from dlscale.analysis.findings.waterfall_table import waterfall_headline
from dlscale.analysis.text import backend_name, plural, training_title, workload_title

LIMIT_KINDS = ("wire", "memory", "loader")


@dataclass(frozen=True, slots=True, kw_only=True)
class Causes:
    """Causes of lost speed. `unknown` names losses that have no parts; `bounds` are upper limits of efficiency."""

    losses: tuple[Loss, ...] = ()
    unknown: tuple[Sentence, ...] = ()
    heat_maps: tuple[HeatMap, ...] = ()
    late: tuple[Sentence, ...] = ()
    bounds: Mapping[Family, Sequence[Guide]] = field(default_factory=dict)
    bound_notes: Mapping[Family, str] = field(default_factory=dict)


def causes_of(table: ScalingTable) -> Causes:
    """All causes of lost speed that the table contains."""
    bounded = {family: [row for row in table.of(family) if row.limits] for family in table.families}
    bounded = {family: rows for family, rows in bounded.items() if rows}
    return Causes(
        losses=tuple(_loss(fall) for fall in table.waterfalls if fall.parts),
        unknown=tuple(_unknown(table.waterfalls)),
        heat_maps=tuple(heat_maps(table.heats, table.lateness)),
        late=tuple(_late(table.lateness)),
        bounds={family: tuple(_guides(rows)) for family, rows in bounded.items()},
        bound_notes={family: _not_known(rows) for family, rows in bounded.items()},
    )


def _loss(fall: Waterfall) -> Loss:
    if fall.efficiency is None:
        raise ValueError(f"{fall.cell.id} has parts, but no efficiency")
    return Loss(
        name=backend_name(fall.cell),
        title=training_title(fall.family),
        tags=tags_of(fall.cell),
        num_ranks=fall.cell.num_ranks,
        evidence=fall.evidence,
        kept=fall.efficiency,
        parts=tuple(
            Part(label=part.name, share=part.loss, milliseconds=part.seconds.times(1000))
            for part in fall.parts
        ),
        largest=fall.largest_names,
        separated=fall.separated,
        sentence=_sentence(fall),
        notes=tuple(f"{note[0].upper()}{note[1:]}." for note in fall.notes),
    )


def _sentence(fall: Waterfall) -> str:
    """The headline of the terminal, with the workload's title and the framework."""
    cell = fall.cell
    return f"{workload_title(cell.workload)} ({cell.framework}){waterfall_headline(fall).removeprefix(cell.workload)}"


def _unknown(falls: Iterable[Waterfall]) -> Iterator[Sentence]:
    for fall in falls:
        if not fall.parts:
            yield Sentence(text=_sentence(fall), tags=tags_of(fall.cell))


def _late(delays: Iterable[Stragglers]) -> Iterator[Sentence]:
    """Sentences about the stragglers of each family on its most ranks."""
    last: dict[tuple[Family, str], Stragglers] = {}
    for stragglers in delays:
        last[stragglers.family, stragglers.evidence] = stragglers  # ordered by ranks
    for stragglers in last.values():
        strong = any(suspect.verdict != "not known" for suspect in stragglers.suspects)
        name = f"{workload_title(stragglers.family.workload)} ({stragglers.family.framework})"
        tags = Tags(workload=stragglers.family.workload, framework=stragglers.family.framework)
        for sentence in late_words.straggler_sentences(stragglers):
            yield Sentence(text=f"{name}, {sentence}", strong=strong, tags=tags)


def _guides(rows: Sequence[ScalingRow]) -> Iterator[Guide]:
    """A line per kind of bound, or one per backend if backends differ."""
    lines: dict[tuple[str, tuple[tuple[float, float], ...]], list[str]] = {}
    for name in dict.fromkeys(backend_name(row.cell) for row in rows):
        own = sorted(
            (row for row in rows if backend_name(row.cell) == name), key=lambda row: row.cell.num_ranks
        )
        for kind in LIMIT_KINDS:
            known = {
                float(row.cell.num_ranks): limit.efficiency
                for row in own
                for limit in row.limits
                if limit.kind == kind and limit.efficiency is not None
            }
            if known:
                lines.setdefault((kind, tuple(known.items())), []).append(name)
    kinds = [kind for kind, _ in lines]
    for (kind, points), names in lines.items():
        whose = f" ({', '.join(names)})" if kinds.count(kind) > 1 else ""
        yield Guide(label=f"{kind} bound{whose}", points=points, bound=True)


def _not_known(rows: Sequence[ScalingRow]) -> str:
    """Why some kinds of bound are missing, with the reasons given on the most ranks; empty if none is."""
    most = max(rows, key=lambda row: row.cell.num_ranks)
    known = {limit.kind for row in rows for limit in row.limits if limit.efficiency is not None}
    reasons = [f"{limit.kind} ({limit.words})" for limit in most.limits if limit.kind not in known]
    return f"No bound by {', '.join(reasons)}." if reasons else ""


MAX_COLUMNS = 120  # of a heat map; beyond that, neighbouring windows of a launch are merged
MAX_RANKS = 128  # of a heat map; beyond that, only the slowest ranks


def heat_maps(heats: Iterable[RankTimes], delays: Iterable[Stragglers]) -> Iterator[HeatMap]:
    """The heat map of backend `none` on each family's most ranks, where no rank waits for another."""
    last: dict[tuple[Family, str], RankTimes] = {}
    for heat in heats:
        if heat.cell.backend == "none":
            last[heat.family, heat.evidence] = heat  # ordered by ranks
    late = {
        (stragglers.family, stragglers.evidence, stragglers.num_ranks): stragglers for stragglers in delays
    }
    for index, ((family, evidence), heat) in enumerate(last.items()):
        known = late.get((family, evidence, heat.cell.num_ranks))
        yield _heat_map(f"heat-{index}", family, heat, known)


def _heat_map(name: str, family: Family, heat: RankTimes, known: Stragglers | None) -> HeatMap:
    ranks = _slowest(heat)
    values = _thinned(heat)
    hosts = heat.hosts or ("",) * len(heat.values)
    suspects = {
        rank
        for suspect in (known.suspects if known else ())
        if suspect.verdict == "late"
        for rank in range(len(hosts))
        if suspect.rank == rank or (suspect.rank is None and hosts[rank] in suspect.hosts)
    }
    rest = len(heat.values) - len(ranks)
    notes = [f"The {len(ranks)} slowest ranks; {rest} more are not shown."] if rest else []
    notes += ["Launches ran on different nodes; the names are those of the first one."] if heat.moved else []
    return HeatMap(
        name=name,
        title=f"{training_title(family)}: none on {plural(heat.cell.num_ranks, 'rank')}",
        says=f"Each rank relative to the median of all ranks, over {plural(heat.num_windows, 'window')}.",
        values=tuple(tuple(1 + value for value in values[rank].tolist()) for rank in ranks),
        hosts=tuple(hosts[rank] for rank in ranks),
        ranks=tuple(ranks),
        late=tuple(rank for rank in ranks if rank in suspects),
        notes=tuple(notes),
        tags=Tags(workload=family.workload, framework=family.framework),
    )


def _slowest(heat: RankTimes) -> list[int]:
    order = np.argsort(-np.median(heat.values, axis=1), kind="stable")
    return sorted(order[:MAX_RANKS].tolist())


def _thinned(heat: RankTimes) -> NDArray[np.float64]:
    """[P][columns]: medians over neighbouring columns of a launch, so that they fit; unchanged if they do."""
    launches = np.split(heat.values, heat.first_columns[1:], axis=1)
    room = max(1, MAX_COLUMNS // len(launches))
    if heat.values.shape[1] <= MAX_COLUMNS or all(launch.shape[1] <= room for launch in launches):
        return heat.values
    parts = [
        np.median(part, axis=1)
        for launch in launches
        for part in np.array_split(launch, min(room, launch.shape[1]), axis=1)
    ]
    return np.stack(parts, axis=1)
