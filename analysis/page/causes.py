"""Why speed is lost, as the page shows it: waterfalls, late ranks, bounds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dlscale.analysis.family import Family
from dlscale.analysis.late import words as late_words
from dlscale.analysis.late.suspects import Lateness
from dlscale.analysis.page.heat_maps import heat_maps
from dlscale.analysis.page.model import Text
from dlscale.analysis.page.plot_model import Guide, HeatMap, Loss, Part, Tags
from dlscale.analysis.page.series import tags_of
from dlscale.analysis.page.words import training_title, workload_title
from dlscale.analysis.scaling import Row, ScalingTable
from dlscale.analysis.waterfall.waterfall import Waterfall
from dlscale.analysis.waterfall.words import headline
from dlscale.analysis.words import backend_name

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


def causes_of(table: ScalingTable) -> Causes:
    """All that the table says about why speed is lost."""
    bounded = {family: [row for row in table.of(family) if row.limits] for family in table.families}
    bounded = {family: rows for family, rows in bounded.items() if rows}
    return Causes(
        losses=tuple(_loss(one) for one in table.waterfalls if one.parts),
        unknown=tuple(_unknown(table.waterfalls)),
        heat_maps=tuple(heat_maps(table.heats, table.lateness)),
        late=tuple(_late(table.lateness)),
        bounds={family: tuple(_guides(rows)) for family, rows in bounded.items()},
        bound_notes={family: _not_known(rows) for family, rows in bounded.items()},
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


def _guides(found: Sequence[Row]) -> Iterator[Guide]:
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
                for limit in one.limits
                if limit.kind == kind and limit.efficiency is not None
            }
            if known:
                lines.setdefault((kind, tuple(known.items())), []).append(name)
    kinds = [kind for kind, _ in lines]
    for (kind, points), names in lines.items():
        whose = f" ({', '.join(names)})" if kinds.count(kind) > 1 else ""
        yield Guide(label=f"{kind} bound{whose}", points=points, bound=True)


def _not_known(found: Sequence[Row]) -> str:
    """Why some kinds of bound are not there, by what is said on the most ranks; empty if all are."""
    most = max(found, key=lambda one: one.cell.num_ranks)
    known = {limit.kind for one in found for limit in one.limits if limit.efficiency is not None}
    reasons = [f"{limit.kind} ({limit.words})" for limit in most.limits if limit.kind not in known]
    return f"No bound by {', '.join(reasons)}." if reasons else ""
