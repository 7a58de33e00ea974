"""Why speed is lost, as the page shows it: waterfalls, late ranks, bounds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from dlscale.analysis.bounds import Limits, limits
from dlscale.analysis.family import Family
from dlscale.analysis.late import words as late_words
from dlscale.analysis.late.matrix import Heat, heats
from dlscale.analysis.late.suspects import Lateness, lateness
from dlscale.analysis.page.model import Text
from dlscale.analysis.page.plot_model import Guide, HeatMap, Loss, Part, Tags
from dlscale.analysis.page.series import tags_of
from dlscale.analysis.page.words import plural, training_title, workload_title
from dlscale.analysis.waterfall.waterfall import Waterfall, waterfalls
from dlscale.analysis.waterfall.words import headline
from dlscale.analysis.words import backend_name
from dlscale.benchmarks.record import Record

MAX_COLUMNS = 120  # of a heat map
MAX_RANKS = 128  # of a heat map; the slowest of more
LIMIT_KINDS = ("wire", "memory", "loader")


@dataclass(frozen=True, slots=True, kw_only=True)
class Causes:
    """`unknown` says where the loss cannot be cut into parts; `bounds` are lines above which no efficiency lies."""

    losses: tuple[Loss, ...] = ()
    unknown: tuple[Text, ...] = ()
    heat_maps: tuple[HeatMap, ...] = ()
    late: tuple[Text, ...] = ()
    bounds: Mapping[Family, Sequence[Guide]] = field(default_factory=dict)
    bound_notes: Mapping[Family, str] = field(default_factory=dict)


def causes_of(records: Iterable[Record]) -> Causes:
    """All that the records say about why speed is lost."""
    records = list(records)
    falls = waterfalls(records)
    delays = lateness(records)
    found = limits(records)
    return Causes(
        losses=tuple(_loss(one) for one in falls if one.parts),
        unknown=tuple(_unknown(falls)),
        heat_maps=tuple(_heat_maps(heats(records, max_columns=MAX_COLUMNS), delays)),
        late=tuple(_late(delays)),
        bounds={family: tuple(_guides(group)) for family, group in _by_family(found)},
        bound_notes={family: _not_known(group) for family, group in _by_family(found)},
    )


def _loss(one: Waterfall) -> Loss:
    if one.efficiency is None:
        raise ValueError(f"{one.cell.id} has parts, but no efficiency")
    certain = any(part.loss.low is not None and part.loss.low > 0 for part in one.parts)
    largest = (one.largest.name, *one.rivals) if one.largest and certain else ()
    return Loss(
        name=backend_name(one.cell),
        title=training_title(one.family),
        tags=tags_of(one.cell),
        num_ranks=one.cell.num_ranks,
        evidence=one.evidence,
        kept=one.efficiency,
        parts=tuple(
            Part(label=part.name, share=part.loss, milliseconds=part.seconds.times(1000))
            for part in one.parts
        ),
        largest=largest,
        sentence=_sentence(one),
        notes=tuple(f"{note[0].upper()}{note[1:]}." for note in one.notes),
    )


def _sentence(one: Waterfall) -> str:
    """As in the terminal, with the workload's title and the framework."""
    cell = one.cell
    return f"{workload_title(cell.workload)} ({cell.framework}){headline(one).removeprefix(cell.workload)}"


def _unknown(falls: Iterable[Waterfall]) -> Iterator[Text]:
    for one in falls:
        if not one.parts:
            yield Text(text=_sentence(one), tags=tags_of(one.cell))


def _heat_maps(found: Iterable[Heat], delays: Iterable[Lateness]) -> Iterator[HeatMap]:
    """Of each family that of `none` on the most ranks, where nobody waits for anybody."""
    last: dict[tuple[Family, str], Heat] = {}
    for heat in found:
        if heat.cell.backend == "none":
            last[heat.family, heat.evidence] = heat  # ordered by ranks
    late = {(one.family, one.evidence, one.num_ranks): one for one in delays}
    for index, ((family, evidence), heat) in enumerate(last.items()):
        ranks = _slowest(heat)
        hosts = heat.hosts or ("",) * len(heat.values)
        known = late.get((family, evidence, heat.cell.num_ranks))
        suspects = {
            rank
            for one in (known.suspects if known else ())
            if one.verdict == "late"
            for rank in range(len(hosts))
            if one.rank == rank or (one.rank is None and hosts[rank] in one.hosts)
        }
        rest = len(heat.values) - len(ranks)
        notes = [f"The {len(ranks)} slowest ranks; {rest} more are not shown."] if rest else []
        notes += (
            ["Launches ran on different nodes; the names are those of the first one."] if heat.moved else []
        )
        yield HeatMap(
            name=f"heat-{index}",
            title=f"{training_title(family)}: none on {plural(heat.cell.num_ranks, 'rank')}",
            says=f"Each rank against the median of all, over {plural(heat.num_windows, 'window')}.",
            values=tuple(tuple(1 + value for value in heat.values[rank].tolist()) for rank in ranks),
            hosts=tuple(hosts[rank] for rank in ranks),
            ranks=tuple(ranks),
            late=tuple(rank for rank in ranks if rank in suspects),
            notes=tuple(notes),
            tags=Tags(workload=family.workload, framework=family.framework),
        )


def _slowest(heat: Heat) -> list[int]:
    order = np.argsort(-np.median(heat.values, axis=1), kind="stable")
    return sorted(order[:MAX_RANKS].tolist())


def _late(delays: Iterable[Lateness]) -> Iterator[Text]:
    """Of each family what is known on its most ranks."""
    last: dict[tuple[Family, str], Lateness] = {}
    for one in delays:
        last[one.family, one.evidence] = one  # ordered by ranks
    for one in last.values():
        strong = any(suspect.verdict != "not known" for suspect in one.suspects)
        name = f"{workload_title(one.family.workload)} ({one.family.framework})"
        tags = Tags(workload=one.family.workload, framework=one.family.framework)
        for said in late_words.sentences(one):
            yield Text(text=f"{name}, {said}", strong=strong, tags=tags)


def _by_family(found: Iterable[Limits]) -> list[tuple[Family, list[Limits]]]:
    ordered = sorted(found, key=lambda one: one.family)
    return [(family, list(group)) for family, group in groupby(ordered, key=lambda one: one.family)]


def _guides(found: Sequence[Limits]) -> Iterator[Guide]:
    """A line per kind of bound; one per backend where backends differ."""
    lines: dict[tuple[str, tuple[tuple[float, float], ...]], list[str]] = {}
    for name in dict.fromkeys(backend_name(one.cell) for one in found):
        own = sorted(
            (one for one in found if backend_name(one.cell) == name), key=lambda one: one.cell.num_ranks
        )
        for kind in LIMIT_KINDS:
            known = {
                float(one.cell.num_ranks): limit.efficiency
                for one in own
                for limit in one.found
                if limit.kind == kind and limit.efficiency is not None
            }
            if known:
                lines.setdefault((kind, tuple(known.items())), []).append(name)
    kinds = [kind for kind, _ in lines]
    for (kind, points), names in lines.items():
        whose = f" ({', '.join(names)})" if kinds.count(kind) > 1 else ""
        yield Guide(label=f"{kind} bound{whose}", points=points, bound=True)


def _not_known(found: Sequence[Limits]) -> str:
    """Why some kinds of bound are not there, by what is said on the most ranks; empty if all are."""
    most = max(found, key=lambda one: one.cell.num_ranks)
    known = {limit.kind for one in found for limit in one.found if limit.efficiency is not None}
    reasons = [f"{limit.kind} ({limit.words})" for limit in most.found if limit.kind not in known]
    return f"No bound by {', '.join(reasons)}." if reasons else ""
