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
    contrast_sentences,
    contrast_title,
    lead_text,
)
from dlscale.analysis.findings.contrasts import Contrasts
from dlscale.analysis.render.grid import render_legend, render_table


def render_contrasts(contrasts: Contrasts) -> Iterator[RenderableType]:
    """The sentences and tables of all comparisons, for `rich.console.Console.print`."""
    yield escape(lead_text(contrasts))
    declared = BETWEEN_STUDIES if contrasts.factor == STUDY_FACTOR else CONTRASTS
    for heading, group in groupby(contrasts.found, key=contrast_title):
        members = list(group)
        yield f"[bold]{escape(heading)}[/bold]"
        yield from render_table(declared.of(members), caption=False, legend=False)
        if declared is CONTRASTS:
            yield from map(escape, contrast_sentences(members))
            yield ""
    for reason in contrasts.left_out:
        yield escape(f"Not compared: {reason}.")
    yield from render_legend(declared.legend)
