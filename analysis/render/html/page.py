"""The content of the page: its head, and a section for each finding that has something to say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from dlscale.analysis.finding import Found, or_else
from dlscale.analysis.findings import predicted_points, scaling, waterfall
from dlscale.analysis.findings.failures import study_warnings
from dlscale.analysis.findings.verdict import summary
from dlscale.analysis.measured import Measured
from dlscale.analysis.plots import Block, Loss, Part, Plot
from dlscale.analysis.records import start_time
from dlscale.analysis.render.html.content import Page, Section, Segment, Strip
from dlscale.analysis.render.theme import Look, looks_for
from dlscale.analysis.text import EVIDENCE, efficiency_text, listed, plural, workload_title

NAMED_NODES = 4


def page_of(study: Measured, found: Sequence[Found]) -> Page:
    """The page of a study: its findings, in their order.

    The same records give the same page: nothing in it depends on the time.
    """
    sections = tuple(sections_of(found))
    losses = or_else([], lambda: waterfall.losses_of(waterfall.FINDING.of(study)))
    return Page(
        title=page_title(study),
        facts=or_else((), lambda: heading_facts(study)),
        evidence=or_else("", lambda: evidence_note(study)),
        summary=or_else((), lambda: summary(study)),
        strips=strips(losses),
        warnings=or_else((), lambda: study_warnings(study)),
        sections=sections,
        looks=looks(block for section in sections for block in section.blocks),
        origin=study.provenance.short_line(),
    )


def sections_of(found: Iterable[Found]) -> Iterator[Section]:
    """A section per finding, with those that are shown under it; none where nothing is to be said."""
    found = list(found)
    for one in found:
        if one.finding.under:
            continue
        members = [one, *(other for other in found if other.finding.under == one.finding.name)]
        blocks = tuple(block for member in members for block in member.blocks)
        if blocks:
            finding = one.finding
            yield Section(
                name=finding.name,
                title=finding.title,
                lead=finding.lead,
                blocks=blocks,
                answers=finding.answers or bool(one.error),
            )


def looks(blocks: Iterable[Block]) -> dict[str, Look]:
    """A look for each name of a curve, the same as in the figures."""
    series = [one for block in blocks if isinstance(block, Plot) for one in block.series]
    return looks_for({one.look: one.tags.backend for one in series})


def page_title(study: Measured) -> str:
    """`How HEP-CNN and CosmoGAN scale on local`."""
    families = study.families
    workloads = sorted({workload_title(family.workload) for family in families})
    systems = sorted({family.system for family in families} - {"unknown"})
    if not workloads:
        return "Nothing measured yet"
    where = f" on {listed(systems)}" if systems else ""
    return f"How {listed(workloads)} scale{'s' * (len(workloads) == 1)}{where}"


def heading_facts(study: Measured) -> tuple[tuple[str, str], ...]:
    """The known facts of the page's heading, as (name, value)."""
    rows, records = scaling.FINDING.of(study), study.records
    families = study.families
    ranks = sorted({row.cell.num_ranks for row in rows})
    nodes = sorted({rank.node for record in records for rank in record.ranks})
    numbers = sum(row.num_launches for row in rows)
    planned = sum(row.num_planned for row in rows)
    facts = {
        "Study": study.name or ", ".join(study.provenance.studies),
        "When": _span([record.started_at for record in records]),
        "Scaling": listed(sorted({family.scaling_mode for family in families})),
        "Frameworks": listed(sorted({family.framework for family in families})),
        "Ranks": ", ".join(map(str, ranks)),
        "Nodes": _nodes(nodes),
        "Plan": study.plan,
        "Measurements": _succeeded(numbers, planned),
    }
    return tuple((name, value) for name, value in facts.items() if value)


def _succeeded(numbers: int, planned: int) -> str:
    if not planned:
        return ""
    return f"all {planned} succeeded" if numbers == planned else f"{numbers} of {planned} succeeded"


def evidence_note(study: Measured) -> str:
    """A note on the kinds of evidence in the table."""
    shown = {row.evidence for row in scaling.FINDING.of(study)}
    shown |= {point.evidence for point in predicted_points.FINDING.of(study)}
    kinds = [kind for kind in EVIDENCE if kind in shown]
    return "; ".join(EVIDENCE[kind] for kind in kinds)


def _span(started: Sequence[str]) -> str:
    """`22 Nov 2026, 02:10 to 03:40 UTC`."""
    moments = sorted(map(start_time, started))
    if not moments:
        return ""
    first, last = moments[0], moments[-1]
    if first.date() == last.date():
        return f"{_day(first)}, {first:%H:%M} to {last:%H:%M} UTC"
    return f"{_day(first)}, {first:%H:%M} to {_day(last)}, {last:%H:%M} UTC"


def _day(moment: datetime) -> str:
    months = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
    return f"{moment.day} {months[moment.month - 1]} {moment.year}"  # independent of the locale


def _nodes(nodes: Sequence[str]) -> str:
    if not nodes:
        return ""
    more = f", {len(nodes) - NAMED_NODES} more" if len(nodes) > NAMED_NODES else ""
    return f"{len(nodes)} ({', '.join(nodes[:NAMED_NODES])}{more})"


MOST = 5  # strips at the top; all losses are drawn further down
MOST_NAMED = 2  # causes of a strip's loss that no launches separate


def strips(losses: Iterable[Loss]) -> tuple[Strip, ...]:
    """A strip per backend of a single training, or for the best backend of each training; highest efficiency first."""
    ordered = sorted(waterfall.losses_on_most_ranks(losses), key=lambda loss: -loss.kept.center)
    names = {loss.title: f"{workload_title(loss.tags.workload)}, {loss.tags.framework}" for loss in ordered}
    if len(names) == 1:
        return tuple(_strip(loss) for loss in ordered[:MOST])
    best = [next(loss for loss in ordered if loss.title == title) for title in names]
    clear = len(set(names.values())) == len(names)
    return tuple(_strip(loss, names[loss.title] if clear else loss.title) for loss in best[:MOST])


def _strip(loss: Loss, training: str = "") -> Strip:
    where = f"{loss.name}, {plural(loss.num_ranks, 'rank')}"
    return Strip(
        name=f"{training}: {where}" if training else where,
        kept=f"{efficiency_text(loss.kept)} of ideal",
        cause=_cause(loss),
        certain=len(loss.largest) == 1 and loss.separated,
        segments=tuple(_segments(loss)),
        tags=loss.tags,
    )


def _cause(loss: Loss) -> str:
    largest = [part for part in loss.parts if part.label in loss.largest]
    if len(largest) == 1:
        return _says(largest[0]) + ("" if loss.separated else ", not separable from the rest")
    if len(largest) > MOST_NAMED:
        return "no single cause stands out"
    if largest:
        return f"{' or '.join(part.label for part in largest)}: not separable"
    low = loss.kept.complement().low
    return "no single cause is significant" if low is not None and low > 0 else "no significant loss"


def _segments(loss: Loss) -> Iterator[Segment]:
    """The segments of a strip. A gain (a negative part) has no width; the losses are scaled to the total loss."""
    left = min(1.0, max(0.0, loss.kept.center))
    yield Segment(begin=0.0, width=_percent(left), says=f"{efficiency_text(loss.kept)} of the ideal speed")
    costs: Sequence[Part] = [part for part in loss.parts if part.share.center > 0]
    scale = (1 - left) / (sum(part.share.center for part in costs) or 1.0)
    for part in costs:
        width = part.share.center * scale
        yield Segment(
            begin=_percent(left), width=_percent(width), says=_says(part), largest=part.label in loss.largest
        )
        left += width


def _says(part: Part) -> str:
    return f"{part.label}: {part.share_text}"


def _percent(value: float) -> float:
    return round(100 * value, 3)
