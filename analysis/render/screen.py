"""Findings on a terminal: one screen, or everything with `full`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pandas as pd
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from dlscale.analysis.finding import Finding, of_trainings, on_most_ranks
from dlscale.analysis.load import Study

MOST_CHARACTERS = 40  # of a text inside a table
MOST_ROWS = 16  # of all tables on one screen; of more those on fewer ranks are left out
LEGEND = "[ ]: 95 % intervals over launches. n: successful / planned launches. Columns: docs/columns.md."


def show(study: Study, findings: Iterable[Finding], *, console: Console, full: bool = False) -> None:
    """Print what belongs on one screen; with `full` the sentences and tables of all findings."""
    for finding in findings:
        if full or finding.on_screen:
            for part in _shown(study, finding, full=full):
                console.print(part, highlight=False)
    rest = "" if full else " All tables: dlscale report --full."
    console.print(Text(f"{LEGEND}{rest}", style="dim"))


def _shown(study: Study, finding: Finding, *, full: bool) -> Iterator[RenderableType]:
    frame = finding.of(study)
    if not len(frame):
        return
    if full:
        yield Text(finding.title, style="bold underline")
    if sentence := finding.sentence(frame):
        yield Text(sentence)
    if not full:
        frame = finding.brief(frame)
        frame = on_most_ranks(frame) if len(frame) > MOST_ROWS and "family" in frame else frame
    for training, rows in of_trainings(frame):
        table = finding.table(rows, brief=not full)
        if table.size:
            yield Text(table.attrs["caption"] or training, style="bold")
            yield grid(table)


def grid(table: pd.DataFrame, *, folded: bool = False) -> RenderableType:
    """A table of texts, numbers to the right; long texts are numbered, and stand once each below it, or are folded."""
    shown, notes = Table(box=None, header_style="dim", pad_edge=False), dict[str, int]()
    texts = table.copy()
    for heading in table:
        numeric = not folded and is_numeric(table[heading])
        if not folded and not numeric and table[heading].str.len().max() > MOST_CHARACTERS:
            parts = table[heading].str.split("; ")
            for own in parts:
                for part in filter(None, own):
                    notes.setdefault(part, len(notes) + 1)
            texts[heading] = [", ".join(str(notes[part]) for part in own if part) for own in parts]
        label, _, unit = str(heading).partition(" [")
        title = Text(f"{label}\n[{unit}" if unit else label)
        shown.add_column(title, overflow="fold", vertical="top" if folded else "bottom")
        shown.columns[-1].justify = "right" if numeric else "left"
    for row in texts.itertuples(index=False):
        shown.add_row(*(Text(cell) for cell in row))
    return Group(shown, *(Text(f"{place}: {note}", style="dim") for note, place in notes.items()))


def is_numeric(texts: pd.Series) -> bool:
    """Whether a column of texts is one of numbers."""
    return all(text.lstrip("+-")[:1].isdigit() for text in texts if text)
