"""The section's text and table from its curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dlscale.analysis.proposal import words
from dlscale.analysis.proposal.document import Block, Document, Heading, Items, Paragraph, Picture, Table
from dlscale.analysis.proposal.request import request
from dlscale.analysis.proposal.sizes import Curve, Size
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.rows import to_row
from dlscale.analysis.waterfall.rows import interval_columns
from dlscale.analysis.words import percent, rate

CAPTIONS = {
    "throughput": "Throughput over ranks; the line is ideal scaling of 1 rank without a communication layer.",
    "efficiency": "Scaling efficiency over ranks; the dashed line is the threshold.",
    "step-time": "Time per step and speed-up over ranks.",
}


def document(
    curves: Sequence[tuple[Curve, str, Sequence[str]]],
    where: Provenance,
    *,
    samples: int | None,
    runs: int,
) -> Document:
    """The section of (curve, its files' stem, names of its figures)."""
    blocks: list[Block] = [Heading(1, "Scalability"), Paragraph(_origin(where))]
    for curve, stem, figures in curves:
        blocks += _curve(curve, stem, figures, samples=samples, runs=runs)
    return tuple(blocks)


def _origin(where: Provenance) -> str:
    return (
        f"The numbers of this section come from the study {', '.join(where.studies)} of dlscale (commit "
        f"{', '.join(commit[:12] for commit in where.commits)}; SHA-256 of the data {where.data_hash[:12]}). Values in "
        "brackets are the limits of intervals."
    )


def _curve(
    curve: Curve, stem: str, figures: Sequence[str], *, samples: int | None, runs: int
) -> Iterator[Block]:
    yield Heading(2, words.title(curve))
    yield Paragraph(words.what_was_measured(curve))
    if said := words.standing(curve):
        yield Paragraph(said)
    yield Paragraph(words.result(curve))
    yield Paragraph(words.kept(curve))
    if samples is not None:
        yield Paragraph(words.asked(request(curve, samples=samples, runs=runs), curve))
    yield table(curve, stem)
    for name in figures:
        kind = "" if curve.evidence == "measured" else f" {curve.evidence.capitalize()}."
        caption = f"{CAPTIONS[name]} {words.title(curve)}.{kind}"
        yield Picture(label=f"fig:{stem}-{name}", caption=caption, stem=f"{stem}-{name}")
    if found := tuple(words.caveats(curve)):
        yield Heading(3, "What these numbers do not say")
        yield Items(found)


def table(curve: Curve, stem: str) -> Table:
    """A row per size."""
    base = f"relative to {words.BASES[curve.base]}" if curve.base else "without a base case"
    keeps = f"keeps {100 * curve.threshold:g} %"
    return Table(
        label=f"tab:{stem}",
        caption=(
            f"{words.title(curve)}. Speed-up and efficiency {base}; per doubling: factor on the throughput for each "
            f"doubling of the ranks since the row above, ideally 2; node-hours: of whole nodes; {keeps}: whether the "
            "efficiency does, by its interval; n: launches that gave a number, of those planned."
        ),
        columns=(
            *("ranks", "nodes", "samples/s", "speed-up", "per doubling", "efficiency [%]"),
            *("node-hours per million samples", keeps, "n"),
        ),
        words=(keeps,),
        rows=tuple(_cells(size) for size in curve.sizes),
    )


def _cells(size: Size) -> tuple[str, ...]:
    return (
        str(size.num_ranks),
        str(size.num_nodes),
        rate(size.row.throughput),
        *("-" if one is None else words.factor(one) for one in (size.speed_up, size.per_doubling)),
        "-" if size.efficiency is None else percent(size.efficiency, unit=""),
        rate(size.node_hours),
        size.verdict,
        f"{size.row.num_launches}/{size.row.num_planned}",
    )


def lines(curve: Curve) -> list[dict[str, Any]]:
    """The table's rows for programs, with the limits, methods and n of every number."""
    return [
        {
            **to_row(size.row),
            "notes": "; ".join(size.row.notes),
            "base_case": curve.base or None,
            **interval_columns("speed_up", size.speed_up),
            **interval_columns("speed_up_per_doubling", size.per_doubling),
            **interval_columns("efficiency", size.efficiency),
            **interval_columns("node_hours_per_million_samples", size.node_hours),
            "efficiency_threshold": curve.threshold,
            "keeps_threshold": size.verdict,
        }
        for size in curve.sizes
    ]
