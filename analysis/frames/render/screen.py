"""Findings on a terminal: one screen, or everything with `full`."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from dlscale.analysis.frames.finding import Finding, of_trainings
from dlscale.analysis.frames.load import Study

MOST_COLUMNS = 80  # of one screen


def show(study: Study, findings: Iterable[Finding], *, console: Console, full: bool = False) -> None:
    """Print the cautions, the answer and the trainings; with `full` the sentences and tables of all findings."""
    for finding in findings:
        if not (full or finding.on_screen):
            continue
        console.print(Group(*_shown(study, finding, full=full)))


def _shown(study: Study, finding: Finding, *, full: bool) -> Iterable[RenderableType]:
    frame = finding.of(study)
    if not len(frame):
        return
    if full:
        yield Text(finding.title, style="bold")
    if sentence := finding.sentence(frame):
        yield Text(sentence)
    for training, rows in of_trainings(frame):
        if not full and "control" in rows:
            rows = rows[rows["control"] == "train"]
        table = finding.table(rows, brief=not full)
        if table.size:
            yield Text(table.attrs["caption"] or training, style="bold")
            yield grid(table)


def grid(table: pd.DataFrame) -> Table:
    """A table of texts, numbers to the right."""
    shown = Table(box=None, header_style="dim", pad_edge=False)
    for heading in table:
        numeric = is_numeric(table[heading])
        shown.add_column(Text(str(heading)), justify="right" if numeric else "left", no_wrap=numeric)
    for row in table.itertuples(index=False):
        shown.add_row(*(Text(cell) for cell in row))
    return shown


def is_numeric(texts: pd.Series) -> bool:
    """Whether a column of texts is one of numbers."""
    return bool(texts[texts != ""].str.match(r"[-+]?\d").all())
