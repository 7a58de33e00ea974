"""The report in a terminal, for those who look at a machine through ssh."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.markup import escape

from dlscale.analysis.page.model import Page, Section, Text
from dlscale.analysis.page.plot_model import Losses, Plot
from dlscale.analysis.scaling import ScalingTable
from dlscale.analysis.table import render as render_table
from dlscale.analysis.text_report.bars import Waterfalls
from dlscale.analysis.text_report.plots import Chart
from dlscale.benchmarks.record_files import BadFile

RATES = "throughput"  # the section whose plots are drawn after the efficiency
DIFFERENCES = "contrasts"
MOST_SENTENCES = 8


def render(page: Page, table: ScalingTable, *, bad_files: Sequence[BadFile] = ()) -> RenderableType:
    """For `rich.console.Console.print`; `page` and `table` are of the same records."""
    return Group(*_parts(page), render_table(table, bad_files=bad_files), *_rules(page))


def _parts(page: Page) -> Iterator[RenderableType]:
    yield f"[bold]{escape(page.title)}[/bold]"
    for sentence in page.summary:
        yield escape(sentence)
    for sentence, _ in page.warnings:
        yield f"[bold]{escape(sentence)}[/bold]"
    yield ""
    for block in page.first:
        if isinstance(block, Plot):
            yield Chart(block, page.looks)
    for section in page.sections:
        if section.name == DIFFERENCES:
            yield from _differences(section)
        for block in section.blocks:
            if isinstance(block, Losses):
                yield f"[bold]{escape(section.title)}[/bold], lost of the ideal speed"
                yield Waterfalls(block.losses)
            elif isinstance(block, Plot) and section.name == RATES:
                yield Chart(block, page.looks)


def _differences(section: Section) -> Iterator[RenderableType]:
    """What was declared, and a sentence for each comparison on the most ranks; `dlscale compare` has the table."""
    yield f"[bold]{escape(section.title)}[/bold]"
    yield escape(section.lead)
    said = [block.text for block in section.blocks if isinstance(block, Text)]
    for sentence in said[:MOST_SENTENCES]:
        yield escape(sentence)
    if len(said) > MOST_SENTENCES:
        yield escape(f"{len(said) - MOST_SENTENCES} more: dlscale compare")
    yield ""


def _rules(page: Page) -> Iterator[RenderableType]:
    yield ""
    yield "[bold]The 12 rules of Hoefler and Belli[/bold]"
    for rule in page.rules:
        yield escape(f"{rule.number:>2}  {rule.verdict:<14}  {rule.text} {rule.why}")
