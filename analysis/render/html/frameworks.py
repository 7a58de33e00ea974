"""The page that answers which framework to use: the answer, its plots, and the tables behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from dlscale.analysis.curves import curves_of
from dlscale.analysis.declare import Block, Plot, Sentence, tags_of
from dlscale.analysis.findings.contrast_table import CONTRASTS, compared
from dlscale.analysis.findings.curve_plots import (
    rank_axis,
    rate_axis,
    samples_text,
    says,
    series_of,
    throughput_of,
    without_point,
)
from dlscale.analysis.findings.data_formats import FORMAT_USES, FormatUse, preparation_sentences
from dlscale.analysis.findings.framework_answers import Question
from dlscale.analysis.findings.framework_comparison import COSTS, SPEED, Program, alike_on_all_ranks
from dlscale.analysis.findings.solution_plots import learning_plots
from dlscale.analysis.provenance import Provenance
from dlscale.analysis.render.html.content import Page, Section
from dlscale.analysis.render.html.page import looks
from dlscale.analysis.text import EVIDENCE

MOST_SENTENCES = 3  # at the top of the page; the answers have all
SHOWN_WAYS = ("loss-steps", "loss-time", "quality-time")  # of trainings to a target


def page_of_frameworks(
    items: Sequence[Program],
    asked: Sequence[Question],
    uses: Sequence[FormatUse] = (),
    *,
    warnings: Sequence[str],
    origin: Provenance,
) -> Page:
    """The page of these programs and questions; `warnings` are sentences about their studies."""
    sentences = [sentence for question in asked for sentence in question.sentences]
    first = [
        plot for place, group in enumerate(alike_on_all_ranks(items)) for plot in program_plots(group, place)
    ]
    kinds = [kind for kind in EVIDENCE if any(item.evidence == kind for item in items)]
    answers: tuple[Block, ...] = tuple(
        Sentence(text=sentence, tags=tags_of(question.programs[0].cell))
        if not question.forbidden
        else Sentence(text=sentence, strong=True)
        for question in asked
        for sentence in question.sentences
    )
    tested = [pair for question in asked if question.tested for pair in compared(question.tested)]
    sections = (
        Section(name="throughput", title="Throughput", blocks=tuple(first)),
        Section(name="answers", title="Which framework to use here", blocks=answers),
        Section(
            name="comparisons", title="All comparisons", blocks=(CONTRASTS.of(tested),) if tested else ()
        ),
        Section(name="programs", title="Speed, and time to the target", blocks=(SPEED.of(items),)),
        Section(name="costs", title="What else it costs", blocks=(COSTS.of(items),)),
        Section(name="formats", title="Formats of data", blocks=tuple(_formats(uses))),
    )
    return Page(
        title="Which framework to use here",
        facts=tuple(_facts(items, origin)),
        evidence="; ".join(EVIDENCE[kind] for kind in kinds),
        summary=tuple(sentences[:MOST_SENTENCES]) or ("No training was measured in two programs.",),
        strips=(),
        warnings=tuple((sentence, "answers") for sentence in warnings),
        sections=tuple(section for section in sections if section.blocks),
        looks=looks(block for section in sections for block in section.blocks),
        origin=origin.short_line(),
    )


def _formats(uses: Sequence[FormatUse]) -> Iterator[Block]:
    if uses:
        prepared = list({use.preparation.name: use.preparation for use in uses}.values())
        yield from (Sentence(text=sentence) for sentence in preparation_sentences(prepared))
        yield FORMAT_USES.of(uses)


def _facts(items: Sequence[Program], origin: Provenance) -> Iterator[tuple[str, str]]:
    yield "studies", ", ".join(origin.studies)
    yield "system", ", ".join(origin.systems)
    commands = dict.fromkeys(item.script_command for item in items if item.script_command)
    yield "how a script is started", "; ".join(commands)


def program_plots(group: Sequence[Program], place: int) -> Iterator[Plot]:
    """Throughput of the programs of a training over ranks, and the way of their trainings to a target."""
    title = group[0].training_title
    points: Sequence[Any] = (
        group  # as rows of a scaling table are, they have cell, evidence, throughput and launches
    )
    curves = curves_of(group, throughput_of)
    shown = [item for curve in curves for item in curve.rows]
    if shown:
        yield Plot(
            name=f"throughput-{place}",
            title=title,
            says=says("Throughput", points, throughput_of, samples_text),
            x=rank_axis(shown),
            y=rate_axis(shown),
            series=series_of(curves, throughput_of, say=samples_text, unit="launch"),
            notes=without_point(points, curves),
            table=SPEED.name,
            tags=replace(tags_of(group[0].cell), framework=""),
        )
    trained = [item.solution for item in group if item.solution]
    if trained:
        for plot in learning_plots(trained, place):
            if plot.name.startswith(SHOWN_WAYS):
                way = plot.x.title.partition(" [")[0]
                yield replace(plot, title=f"{title}: {plot.y.title} against {way}", table=SPEED.name)
