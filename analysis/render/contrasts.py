"""The comparisons of `dlscale compare` on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from rich.console import RenderableType
from rich.markup import escape

from dlscale.analysis.findings.contrast_declaration import STUDY_FACTOR
from dlscale.analysis.findings.contrast_table import (
    BETWEEN_STUDIES,
    CONTRASTS,
    compared,
    contrast_sentences,
    contrast_title,
    declaration_text,
)
from dlscale.analysis.findings.contrasts import Contrasts
from dlscale.analysis.render.grid import render_legend, render_table


def render_contrasts(contrasts: Contrasts) -> Iterator[RenderableType]:
    """The sentences and tables of all comparisons, for `rich.console.Console.print`."""
    yield escape(f"{declaration_text(contrasts)}.")
    declared = BETWEEN_STUDIES if contrasts.factor == STUDY_FACTOR else CONTRASTS
    for heading, group in groupby(
        compared(contrasts), key=lambda pair: contrast_title(pair[1].contender, contrasts.factor)
    ):
        members = list(group)
        yield f"[bold]{escape(heading)}[/bold]"
        yield from render_table(declared.of(members), caption=False, legend=False)
        if declared is CONTRASTS:
            for sentence in contrast_sentences(contrast for _, contrast in members):
                yield escape(sentence)
            yield ""
    for reason in contrasts.left_out:
        yield escape(f"Not compared: {reason}.")
    yield from render_legend(declared.legend)
