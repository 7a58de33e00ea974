"""Findings on a terminal: one screen, or everything with `--full`.

Anything that makes a number doubtful is always on the screen, in one line that says where to read more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from dlscale.analysis.declare import Sentence, Table
from dlscale.analysis.finding import Found, or_else
from dlscale.analysis.findings.failures import gaps, study_warnings
from dlscale.analysis.measured import Measured
from dlscale.analysis.plots import Block, Losses
from dlscale.analysis.render.grid import Grid, numbered, render_table
from dlscale.analysis.text import plural

FULL = "dlscale report --full"
MOST_NOTES = 8  # below a table


def render_screen(study: Measured, found: Iterable[Found]) -> RenderableType:
    """One screen: what each finding shows there, its errors, and warnings about the study as a whole."""
    parts: list[RenderableType] = []
    warnings: list[str] = [sentence for sentence, _ in or_else((), lambda: study_warnings(study))]
    for one in found:
        shown = [part for block in one.screen for part in _on_screen(block)]
        parts += [*shown, *([""] if shown and shown[-1] != "" else [])]
        warnings += [one.error] if one.error else []
    return Group(*parts, *_warning_lines([*dict.fromkeys(warnings), *or_else([], lambda: list(gaps(study)))]))


def _on_screen(block: Block) -> Iterator[RenderableType]:
    if isinstance(block, Sentence):
        yield _sentence(block)
    elif isinstance(block, Table) and block.rows:
        notes: dict[str, int] = {}
        yield Grid(numbered(block, notes), sections=False)
        if notes:
            yield Text(_notes_text(notes))


def _sentence(sentence: Sentence) -> RenderableType:
    """The sentence; further lines are indented as the first is."""
    words = sentence.text.lstrip()
    text = Text(words, style="bold" if sentence.strong else "dim" if sentence.quiet else "")
    return Padding.indent(text, indent) if (indent := len(sentence.text) - len(words)) else text


def _notes_text(notes: dict[str, int]) -> str:
    listed = [f"({mark}) {note}" for note, mark in notes.items() if mark <= MOST_NOTES]
    more = [f"{plural(len(notes) - MOST_NOTES, 'note')} more: {FULL}"] if len(notes) > MOST_NOTES else []
    return "; ".join([*listed, *more])


def _warning_lines(warnings: Sequence[str]) -> Iterator[RenderableType]:
    """Each warning on two lines at most; the heading says where to read them in full."""
    if warnings:
        yield Text(f"Warnings ({FULL} and the page have more)", style="bold")
    yield from (Padding.indent(Cut(" ".join(warning.split())), 2) for warning in warnings)


@dataclass(frozen=True, slots=True)
class Cut:
    """A text on two lines at most, and `…` where it goes on."""

    text: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        lines = Text(self.text).wrap(console, options.max_width)
        for number, line in enumerate(lines[:2], 1):
            line.rstrip()
            if number < len(lines) and number == 2:
                line.truncate(options.max_width - 1)
                line.append("…")
            yield line


def render_full(study: Measured, found: Iterable[Found]) -> RenderableType:
    """All sentences and tables of all findings."""
    warnings = or_else((), lambda: study_warnings(study))
    return Group(*(escape(sentence) for sentence, _ in warnings), render_findings(found))


def render_findings(found: Iterable[Found]) -> RenderableType:
    """All sentences and tables of these findings, which may be of several studies."""
    parts: list[RenderableType] = []
    for one in found:
        shown = [part for block in one.blocks for part in in_full(block)]
        parts += [f"[bold]{escape(one.finding.title)}[/bold]", *shown, ""] if shown else []
    return Group(*parts)


def in_full(block: Block) -> Iterator[RenderableType]:
    """The sentences and tables of a block in full."""
    if isinstance(block, Sentence):
        yield _sentence(block)
    elif isinstance(block, Table):
        yield from render_table(block)
    elif isinstance(block, Losses):
        yield from map(Text, block.texts)
