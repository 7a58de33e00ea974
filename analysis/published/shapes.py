"""What publications say of the shape of a curve, compared with cells of ours, which have no number to be held against.

Three checks of a claim (`claims.Claim`) are of a shape: where the efficiency falls below a level (`scaling_ends`), that
a quantity stays within bounds (`quantity`), and that one curve lies above another (`ratio`), with pairs of our cells
that ran in the same study.

    agrees      the interval of ours lies within what is claimed; without an interval, our value does
    disagrees   it lies wholly outside
    open        neither, or our cells do not go as far as the claim: more launches or more nodes are needed

Single numbers at a place are compared by `compare`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dlscale.analysis.measured import Measured
from dlscale.analysis.published.catalogue import Figure, Own, Published
from dlscale.analysis.published.claim_verdicts import (
    CANNOT_TELL,
    end_of,
    published_ends,
    verdict_of,
    worst_of,
)
from dlscale.analysis.published.claims import Claim, Publication, statement_of, x_of
from dlscale.analysis.published.compare import COMPARED, NO_NUMBER, OPEN, Check, ShapeComparison
from dlscale.analysis.published.ours import OwnPoint, own_points, ratio_of
from dlscale.analysis.published.predictions import Band
from dlscale.analysis.statistics import Interval

SHAPES = ("quantity", "ratio", "scaling_ends")
Curve = Sequence[tuple[OwnPoint, Interval]]  # ascending, of one backend and study


def with_shapes(
    checks: Sequence[Check],
    published: Published,
    publications: Sequence[Publication],
    *,
    studies: Sequence[Measured] = (),
    stand_in: str | None = None,
) -> list[Check]:
    """The checks with what is claimed of the shapes of their figures' curves."""
    claims: dict[str, list[tuple[Publication, Claim]]] = {}
    for publication in publications:
        for claim in publication.claims:
            if claim.check in SHAPES and not _is_number(claim, published):
                claims.setdefault(claim.figure, []).append((publication, claim))
    found = []
    for check in checks:
        of_figure = claims.get(check.figure.id, [])
        shapes = [shape for _, claim in of_figure for shape in _of_reference(published, claim)]
        if (own := check.figure.own) and [claim for _, claim in of_figure if not claim.reference]:
            shapes += [
                shape
                for publication, claim in of_figure
                for study in studies
                for shape in _of_study(published, publication, claim, study, stand_in)
            ]
            absent = f"no record of ours on {stand_in or own.system} that tells the shape of its curves"
            reasons = [reason for reason in check.reasons if reason != NO_NUMBER]
            check = replace(check, reasons=(*reasons, *([] if shapes else [absent])))
        found.append(replace(check, shapes=tuple(shapes)))
    return found


def _is_number(claim: Claim, published: Published) -> bool:
    """Whether its statement is a number at a place, which is compared as such."""
    said = statement_of(claim, published)
    return (
        said is not None
        and said.ends != (None, None)
        and said.x_low is not None
        and said.x_low == said.x_high
    )


def _of_reference(published: Published, claim: Claim) -> Iterator[ShapeComparison]:
    """A ratio of two series that were measured here for the figure; their intervals are independent."""
    wanted = claim.reference
    rows = published.reference_pair(wanted, claim.sizes[1]) if wanted else []
    if wanted and rows:
        (low, y, high), (its_low, its_y, its_high) = (
            [row.y if end is None else end for end in (row.low, row.y, row.high)] for row in rows
        )
        yield _compared(
            published,
            claim,
            [Band(low=low / its_high, median=y / its_y, high=high / its_low)],
            up_to=rows[0].x,
            name=" over ".join(wanted.series),
            evidence=rows[0].evidence,
            system=rows[0].system,
            study=f"reference/series/{wanted.file}.json",
        )


def _of_study(
    published: Published, publication: Publication, claim: Claim, study: Measured, stand_in: str | None
) -> Iterator[ShapeComparison]:
    figure = published.figure(claim.figure)
    for name, curve in _curves(publication, claim, figure, study, stand_in):
        bands, reached = _ours(publication, claim, figure, curve)
        last = curve[-1][0]
        if bands:
            yield _compared(
                published,
                claim,
                bands,
                reached=reached,
                up_to=last.x,
                name=name,
                evidence=str(last.row.evidence),
                system=last.row.family.system,
                study=last.study,
            )


def _compared(
    published: Published,
    claim: Claim,
    bands: Sequence[Band],
    *,
    reached: bool = True,
    up_to: float,
    **origin: str,
) -> ShapeComparison:
    low, high = published_ends(claim, published)
    ours = worst_of(bands, low, high, tolerance=0.0)
    verdict = verdict_of(ours, low, high, tolerance=0.0)
    return ShapeComparison(
        words=claim.statement,
        compared=claim.compared,
        reading=claim.reading,
        low=low,
        high=high,
        ours=(ours.low, ours.median, ours.high),
        up_to=up_to,
        verdict=verdict if reached and verdict != CANNOT_TELL else OPEN,
        **origin,
    )


def _curves(
    publication: Publication, claim: Claim, figure: Figure, study: Measured, stand_in: str | None
) -> Iterator[tuple[str, Curve]]:
    """Name and points of each curve of ours that the claim is about; of a ratio, of each pair of curves."""
    if claim.reference:
        return
    quantity = {"ratio": "throughput", "scaling_ends": "efficiency"}.get(claim.check, claim.quantity)
    sides = []
    for wanted in _wanted(publication, claim, figure):
        if [name for name in wanted.missing if not (name == "system" and stand_in)]:
            return
        by_name: dict[tuple[object, ...], list[OwnPoint]] = {}
        for point in own_points(figure, wanted, quantity, [study], stand_in=stand_in):
            if point.row.evidence in COMPARED:
                by_name.setdefault((point.name, point.row.evidence, point.row.family), []).append(point)
        sides.append({key: sorted(points, key=lambda point: point.x) for key, points in by_name.items()})
    if claim.check != "ratio":
        for side in sides:
            for (name, *_), points in side.items():
                yield str(name), [(point, point.value) for point in points]
        return
    for (name, *kind), above in sides[0].items():
        for (other, *its_kind), below in sides[1].items():
            pairs = [(one, two) for one in above for two in below if one.x == two.x and name != other]
            ratios = [(one, ratio_of(study, one.row, two.row)) for one, two in pairs if kind == its_kind]
            if curve := [(point, ratio) for point, ratio in ratios if ratio]:
                yield f"{name} over {other}", curve


def _wanted(publication: Publication, claim: Claim, figure: Figure) -> list[Own]:
    """What our cells of each curve must be."""
    if claim.ours:
        return [figure.comparable("").narrowed(Own(backend=backend)) for backend in claim.ours]
    curves = map(publication.curve, claim.curves)
    return [
        figure.comparable(curve.figures.get(figure.id, "")).narrowed(Own(backend=curve.backend))
        for curve in curves
    ]


def _ours(publication: Publication, claim: Claim, figure: Figure, curve: Curve) -> tuple[list[Band], bool]:
    """What our curve has of what is claimed, at each of its sizes, and whether it goes as far."""
    bands = [
        (
            point.x,
            Band(
                low=value.center if value.low is None else value.low,
                median=value.center,
                high=value.center if value.high is None else value.high,
            ),
        )
        for point, value in curve
    ]
    if claim.check == "scaling_ends":
        if len(bands) < 2:
            return [], False
        end = end_of(bands, claim.threshold or (1.0, 1.0))
        # The largest power of two that a curve keeps lies below half of the next size at which it does not.
        fallen = next((x for x, _ in bands if x > end.high), float("inf"))
        return [replace(end, high=max(end.high, fallen / 2))], True
    first, last = (
        x_of(figure, publication.curve(claim.curves[0]), size) if claim.curves else size
        for size in claim.sizes
    )
    inside = [(x, band) for x, band in bands if figure.base_x < x <= last]
    if first == last:
        inside = inside[-1:]
    return [band for x, band in inside if x >= first or first == last], bool(inside) and inside[-1][0] == last
