"""The page: one file that needs no network, and no script but for sorting and folding; figures are SVG inside it.

All text of records is escaped by jinja2, and by matplotlib in figures. The content security policy forbids all requests
and all scripts and styles but the page's own by hash, so that even a mistake here runs no script.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dlscale.analysis import theme
from dlscale.analysis.finding import Drawing, Finding, of_trainings
from dlscale.analysis.load import Study
from dlscale.analysis.render.figures import figure_of, stem_of, svg
from dlscale.analysis.render.screen import is_numeric
from dlscale.analysis.render.text import as_csv
from dlscale.analysis.text import error_text
from dlscale.base.files import write_atomically

HERE = Path(__file__).parent
MOST_FIGURES = 8
MOST_ROWS = 60  # of a table; its CSV has all


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section of a page; those that are not answers are folded. `csv` is that of the table, with all rows."""

    name: str
    title: str
    sentences: Sequence[str] = ()
    figures: Sequence[tuple[str, str]] = ()  # SVG and caption
    table: pd.DataFrame = field(default_factory=pd.DataFrame)
    csv: str = ""
    num_rows: int = 0
    is_answer: bool = False
    is_folded: bool = False  # its table, of an answer that the figure gives

    @cached_property
    def numeric(self) -> list[bool]:
        """Which columns of the table are numbers."""
        return [is_numeric(self.table[heading]) for heading in self.table]

    @property
    def download(self) -> str:
        """The CSV as an address."""
        return "data:text/csv;base64," + base64.b64encode(self.csv.encode()).decode()


def write(
    path: Path, *, title: str, facts: Mapping[str, str], sections: Iterable[Section], origin: str
) -> None:
    """Write a page of these sections. Raises UsageError if it cannot be written."""
    style, script = ((HERE / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    environment = Environment(loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    policy = {
        "default-src": "'none'",
        "script-src": _digest(script),
        "style-src-elem": _digest(style),
        "style-src-attr": "'unsafe-inline'",  # of figures; our HTML has none, and records cannot add any
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    text = environment.get_template("page.html.j2").render(
        title=title,
        facts={name: value for name, value in facts.items() if value},
        sections=list(sections),
        origin=origin,
        policy="; ".join(f"{name} {value}" for name, value in policy.items()),
        style=Markup(style),  # noqa: S704 - our own file
        script=Markup(script),  # noqa: S704 - our own file
        svg=Markup,
    )
    write_atomically(path, text, mode=0o644)


def _digest(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def sections_of(study: Study, findings: Iterable[Finding]) -> Iterator[Section]:
    """A section per finding that has something to say. The first figures are drawn, as many as a page has."""
    left = MOST_FIGURES
    for finding in findings:
        frame = finding.of(study)
        if not len(frame):
            continue
        with theme.used():
            figures = [one for drawing in finding.drawings[:left] if (one := _figure(study, drawing, frame))]
        left -= len(figures)
        sentences, table = finding.sentence(frame).splitlines(), finding.table(frame.head(MOST_ROWS))
        is_folded = not finding.table(frame.head(1), brief=True).size
        if sentences or figures or table.size:
            yield Section(
                name=finding.name,
                title=finding.title,
                sentences=sentences,
                figures=figures,
                table=table,
                csv=as_csv(finding.exported(frame)),
                num_rows=len(frame),
                is_answer=finding.is_answer and bool(sentences or figures or not is_folded),
                is_folded=finding.is_answer and is_folded,
            )


def _figure(study: Study, drawing: Drawing, frame: pd.DataFrame) -> tuple[str, str] | None:
    """The SVG of a drawing, with a panel per training where there are several; None without a row."""
    rows = drawing.rows(frame)
    if not len(rows):
        return None
    trainings = of_trainings(rows)
    title = trainings[0][0] if len(trainings) == 1 else ""
    if drawn := study.drawn.get(stem_of(title, drawing)) if title else None:
        return drawn, drawing.about
    if len(trainings) > 1 and not drawing.panels:
        drawing = replace(drawing, panels="training")
    try:
        text = svg(figure_of(drawing, rows, title=title))
    except Exception as error:
        study.errors.append(error_text(f"Figure {drawing.name} could not be drawn", error))
        return None
    return text, drawing.about


def facts_of(study: Study) -> dict[str, str]:
    """The facts of the page's head."""
    cells = study.trained
    first, last = study.attempts["started"].agg(["min", "max"])
    when = ""  # no time of no record can be written
    if len(study.attempts):
        same_day = first.date() == last.date()
        when = f"{first:%Y-%m-%d %H:%M} to {last:{'%H:%M' if same_day else '%Y-%m-%d %H:%M'}} UTC"
    nodes = sorted(set(study.ranks["node"]))
    num_cases = max(int(study.cells["num_planned"].sum()), len(study.launches))
    return {
        "Study": study.name,
        "When": when,
        "Frameworks": ", ".join(sorted(set(cells["framework"]))),
        "Ranks": ", ".join(map(str, sorted(set(cells["num_ranks"])))),
        "Nodes": f"{len(nodes)} ({', '.join(nodes[:4])}{', ...' * (len(nodes) > 4)})" if nodes else "",
        "Plan": study.plan,
        "Cases": f"{len(study.good)} of {num_cases} gave a number",
        "Evidence": ", ".join(sorted(set(cells["evidence"]) - {""})),
    }
