"""Published figures in their own layout: their public data, what is predicted of them, and our series.

The small print says which data are public, what is only stated in words, and which of our series are drawn.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dlscale.analysis.figures.write import save_figure
from dlscale.analysis.measured import Measured
from dlscale.analysis.plots import Figure as Declared
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.published.catalogue import Figure, Published
from dlscale.analysis.published.claim_verdicts import VERDICTS, ClaimVerdict
from dlscale.analysis.published.output import band_text, claim_text, range_text
from dlscale.analysis.published.panels import (
    NOT_PUBLISHED,
    PUBLISHED,
    SIMULATED,
    Content,
    content_of,
    plot_of,
)
from dlscale.analysis.published.predictions import PredictedCurve
from dlscale.analysis.published.values import HALF_WIDTH, Statement
from dlscale.base.files import all_or_nothing

COLUMNS = (
    *("figure", "panel", "evidence", "series", "system", "x", "x_unit", "quantity", "y", "low", "high"),
    *("y_unit", "kind", "source", "note"),
)


def write_figures(
    published: Published,
    folder: Path,
    *,
    names: Collection[str] = (),
    studies: Sequence[Measured] = (),
    predicted: Sequence[PredictedCurve] = (),
    claims: Sequence[ClaimVerdict] = (),
    stand_in: str | None = None,
    alone: bool = True,
) -> list[Path]:
    """Draw published figures (by default all with a layout) into `folder` and return the paths of the files.

    Files are `<id>.png`, `.pdf`, `.svg` and the `.csv` behind them. `studies` are our own; their cells are drawn if
    they match the catalogue. `claims` are verdicts on what is predicted. `stand_in` is a system of ours that replaces
    the publication's. Without `alone`, only figures with cells of ours or a predicted curve are drawn. Raises
    UsageError for an unknown figure, and where one file cannot be written; those of an earlier call then stay, all of
    them.
    """
    figures = [published.figure(name) for name in names or published.figures]
    written: list[Path] = []
    with all_or_nothing(folder) as place:
        for figure in figures:
            contents = content_of(published, figure, studies, stand_in=stand_in, predicted=predicted)
            known = any(each.ours or each.predicted or each.reference for each in contents)
            if not contents or not (alone or known):
                continue
            where = provenance(published, figure, contents, studies)
            own = [row for row in claims if row.claim and row.figure.id == figure.id]
            written += save_figure(
                declared(published, figure, contents, where, own), place / figure.id, where
            )
    return [folder / path.name for path in written]


def provenance(
    published: Published, figure: Figure, contents: Sequence[Content], studies: Sequence[Measured]
) -> Provenance:
    """The origin of the figure; the hash covers the publication's entry, values, statements, and our records."""
    names = {point.study for content in contents for point in content.ours}
    used = [study.provenance for study in studies if ", ".join(study.provenance.studies) in names]
    content = [
        figure.model_dump(mode="json"),
        [row.model_dump(mode="json") for row in published.values_of(figure.id)],
        [row.model_dump(mode="json") for row in published.statements_of(figure.id)],
        *([row.model_dump(mode="json") for row in each.reference] for each in contents if each.reference),
        sorted(origin.data_hash for origin in used),
        # What is assumed is words, no data.
        *(_rounded(asdict(curve) | {"assumed": ()}) for content in contents for curve in content.predicted),
    ]
    return Provenance(
        studies=(PUBLISHED, *sorted({study for origin in used for study in origin.studies})),
        systems=tuple(sorted({system for origin in used for system in origin.systems})) or (PUBLISHED,),
        commits=tuple(sorted({commit for origin in used for commit in origin.commits})) or ("none",),
        commands=tuple(sorted({command for origin in used for command in origin.commands})),
        data_hash=hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest(),
    )


def _rounded(value: Any) -> Any:
    """With floats to 9 digits: the last ones of what is computed depend on the CPU's vector instructions."""
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(part) for part in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def declared(
    published: Published,
    figure: Figure,
    contents: Sequence[Content],
    where: Provenance,
    claims: Sequence[ClaimVerdict] = (),
) -> Declared:
    """The figure, a panel per plot, side by side; those of the same quantity share a scale. `claims` are its own.

    One of which nothing but words is public, and nothing was measured, is small and has the words as its subtitle.
    """
    shown = [content for content in contents if not _is_one_line(content, contents)]
    axes = {(content.panel.layout, content.panel.y_unit, content.panel.reference) for content in shown}
    in_words = only_words(contents)
    said = [one.statement for one in published.statements_of(figure.id) if not one.quantity]
    whose = "Published: " if any(content.reference for content in shown) else ""
    lines = verdict_lines(claims) if claims or not in_words else said
    return Declared(
        name=figure.id,
        title=figure.title,
        warning=_nature(contents),
        subtitle="\n".join((whose + figure.workload, *lines)),
        small_print=tuple(small_print(published, figure, contents, where, claims)),
        panels=tuple(plot_of(content, contents) for content in shown),
        rows=csv_rows(figure, contents, published.statements_of(figure.id)),
        wide=len(shown) > 1,
        small=in_words,
        num_rows=2 if len(shown) == 4 else 1,
        shared=len(axes) == 1,
    )


def only_words(contents: Sequence[Content]) -> bool:
    """Whether no value of the figure is public, and none was measured."""
    return not any(content.marks or content.ours or content.reference for content in contents)


def _is_one_line(content: Content, among: Sequence[Content]) -> bool:
    """Whether only predicted rates are known, which lie on each other, and efficiencies beside them do not."""
    layouts = {each.panel.layout for each in among}
    alone = len(content.predicted) > 1 and not (content.marks or content.ours)
    return content.panel.layout == "throughput" and alone and "efficiency" in layouts


def _nature(contents: Sequence[Content]) -> str:
    """What a reader takes for published curves, and is not."""
    if all(content.in_full or content.empty or content.reference for content in contents):
        return ""
    if any(content.predicted for content in contents):
        return f"Simulated by dlscale; {NOT_PUBLISHED}"
    return NOT_PUBLISHED


def verdict_lines(claims: Sequence[ClaimVerdict]) -> Iterator[str]:
    """What is claimed, with the verdict in front: `Prediction disagrees: scaling ends at 8 or 16 nodes`.

    Of several numbers of one series or checks of one statement it is how many have each verdict.
    """
    by_words: dict[str, list[ClaimVerdict]] = {}
    for row in claims:
        values = row.claim and row.claim.check == "values"
        by_words.setdefault(f"efficiency of {row.words}" if values else row.words, []).append(row)
    for words, rows in by_words.items():
        counts = Counter(row.verdict for row in rows)
        found = [
            verdict if counts[verdict] == len(rows) else f"{verdict} {counts[verdict]} of {len(rows)}"
            for verdict in VERDICTS
            if counts[verdict]
        ]
        yield f"Prediction {', '.join(found)}: {words}"


def small_print(
    published: Published,
    figure: Figure,
    contents: Sequence[Content],
    where: Provenance,
    claims: Sequence[ClaimVerdict] = (),
) -> Iterator[str]:
    """Paragraphs of small print: sources, statements, and the origin of our data."""
    yield f"Public: {figure.public} {figure.publication}."
    checked = [row for row in claims if row.claim and row.claim.statement]
    for row in checked:
        values = f"published {range_text(row)}, predicted {band_text(row.predicted)}"
        yield f"{row.verdict.capitalize()}: {claim_text(row)}: {values}."
    known = {row.words for row in checked}
    if only_words(contents) and not claims:  # they are the subtitle
        known |= {one.statement for one in published.statements_of(figure.id) if not one.quantity}
    rest = [one for one in published.statements_of(figure.id) if one.statement not in known]
    if rest:
        yield f"Said: {'. '.join(map(_sentence, rest))}."
    if not all(content.in_full or content.reference for content in contents):
        yield "Axis limits without published values are ours."
    yield from _of_values(published, figure, contents)
    yield from _of_predictions(figure, contents)
    yield from _of_reference(published, contents)
    yield f"{_of_ours(figure, contents, where)} Data {where.data_hash[:12]}."


def _sentence(statement: Statement) -> str:
    mark = "" if statement.kind == "text" else f" ({statement.kind})"
    about = "About: " if statement.about and "about" not in statement.statement.lower() else ""
    return f"{about}{statement.statement}{mark}"


def _of_values(published: Published, figure: Figure, contents: Sequence[Content]) -> Iterator[str]:
    """Sentences about values that the panels do not show, and about derived or shifted ones."""
    marks = [mark for content in contents for mark in content.marks]
    if unplaced := [mark.value for mark in marks if mark.value and mark.x is None and figure.named_points]:
        words = [f"{row.series} {row.printed} {row.y_unit} on a {row.system}" for row in unplaced]
        yield f"Not on the axes, for the number of devices is not given: {', '.join(words)}."
    for content in contents:
        if content.marks and all(mark.value and mark.value.kind == "derived" for mark in content.marks):
            yield f"{content.panel.y_label.capitalize()}: derived from the published values."
    if any(content.panel.aside for content in contents):
        yield "Points at the same place are offset."
    drawn, rows = {mark.value for mark in marks}, published.values_of(figure.id)
    rest = [row for row in rows if row not in drawn and not row.quantity.endswith(HALF_WIDTH)]
    if rest:
        quantities = dict.fromkeys(row.quantity.replace("_", " ") for row in rest)
        yield f"Published besides, in results/published/{figure.id}.csv: {', '.join(quantities)}."
    if any(mark.half_width for mark in marks):
        note = next(row.note for row in rows if row.quantity.endswith(HALF_WIDTH))
        yield f"Bars: {note.split('; ')[-1]}."


def _of_predictions(figure: Figure, contents: Sequence[Content]) -> Iterator[str]:
    """Where the predicted curves are from, or what is missing for one."""
    curves = [curve for content in contents for curve in content.predicted]
    if curves:
        names = ", ".join(dict.fromkeys(curve.publication for curve in curves))
        yield (
            f"Simulated: claims/{names}.toml, from single-node facts and the network's description alone; "
            "nothing is fitted to this figure; bands: 5 to 95 % of replicates, with dotted lines."
        )
        if texts := dict.fromkeys(text for curve in curves for text in curve.assumed):
            yield f"Assumed, where nothing is public: {'; '.join(texts)}."
    elif figure.missing:
        yield f"Not predicted: {figure.missing}"


def _of_reference(published: Published, contents: Sequence[Content]) -> Iterator[str]:
    """What was measured here, and how."""
    for name in dict.fromkeys(content.panel.reference for content in contents):
        if name:
            series = published.references[name]
            runs = "; ".join(f"study {it.study} on {it.system}: {it.command}" for it in series.studies)
            yield f"Measured here, results/reference/series/{name}.json: {series.title}. {runs}."


def _of_ours(figure: Figure, contents: Sequence[Content], where: Provenance) -> str:
    if any(content.ours for content in contents):
        studies = ", ".join(where.studies[1:])
        commits = ", ".join(commit[:12] for commit in where.commits)
        systems = ", ".join(where.systems)
        return f"Ours: study {studies}; system {systems}; commit {commits}; bars as in docs/metrics.md."
    if figure.own is None:
        return "No study of ours is of what was published."
    return f"No study of yours fits yet. It needs: {figure.own.text}."


def csv_rows(
    figure: Figure, contents: Sequence[Content], statements: Sequence[Statement]
) -> list[dict[str, Any]]:
    """Rows with the content of each panel, in its unit, then the statements without a mark."""
    rows = [row for content in contents for row in _panel_rows(content)]
    drawn = {mark.statement for content in contents for mark in content.stated}
    rows += [
        _in_words(statement)
        | {"quantity": statement.quantity or "statement", "x_unit": statement.x_unit}
        | {"low": statement.low, "high": statement.high, "y_unit": statement.unit}
        for statement in statements
        if statement not in drawn
    ]
    return [dict.fromkeys(COLUMNS) | {"figure": figure.id, "x_unit": figure.x_unit} | row for row in rows]


def _panel_rows(content: Content) -> Iterator[dict[str, Any]]:
    panel, unit = content.panel, content.panel.unit
    common = {"panel": panel.title or panel.layout, "quantity": panel.layout, "y_unit": panel.y_unit}
    for mark in content.marks:
        value, half = mark.value, mark.half_width
        ends = {} if half is None else {"low": mark.y - half, "high": mark.y + half}
        texts = {name: getattr(value, name) for name in ("series", "system", "kind", "source", "note")}
        yield common | texts | ends | {"evidence": PUBLISHED, "x": mark.x, "y": mark.y}
    for stated in content.stated:
        y = stated.low if stated.low == stated.high else None
        yield common | _in_words(stated.statement) | {"y": y, "low": stated.low, "high": stated.high}
    for curve in content.predicted:
        source = {"source": f"claims/{curve.publication}.toml", "note": "median and 5 to 95 % of replicates"}
        for x, band in curve.points:
            numbers = {"x": x, "y": band.median / unit, "low": band.low / unit, "high": band.high / unit}
            yield common | numbers | source | {"evidence": SIMULATED, "series": curve.label}
    for measured in content.reference:
        limits = {name: measured.in_unit(getattr(measured, name), unit) for name in ("y", "low", "high")}
        texts = {name: getattr(measured, name) for name in ("evidence", "series", "system", "x", "x_unit")}
        source = {"source": f"reference/series/{panel.reference}.json"}
        yield common | texts | limits | source | {"note": f"{measured.method}, n = {measured.n}"}
    for point in content.ours:
        own, row = point.value, point.row
        known = {"y": own.center, "low": own.low, "high": own.high}
        numbers = {name: end / unit for name, end in known.items() if end is not None}
        origin = {"series": point.name, "system": row.family.system, "source": f"study {point.study}"}
        note = f"{own.method}, n = {own.n}"
        yield common | numbers | origin | {"evidence": row.evidence, "x": point.x, "note": note}


def _in_words(statement: Statement) -> dict[str, Any]:
    low, high = statement.x_low, statement.x_high
    return {
        "evidence": PUBLISHED,
        "series": statement.series,
        "quantity": statement.quantity,
        "x": low if low == high else f"{low:g} to {high:g}",
        "kind": statement.kind,
        "source": statement.source,
        "note": statement.statement,
    }
