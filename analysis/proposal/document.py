"""A document as headings, sentences, lists, tables and pictures, written as LaTeX or as GitHub's markdown.

The LaTeX file is included in a proposal with the command `input` and needs only the package `graphicx`. Nothing in it
is scaled: pictures have the width they were drawn for, and a table that is wider than a page is several below each
other, with the first columns in each. Word users convert the markdown with pandoc.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dlscale.analysis.declare import Sentence, Table, only
from dlscale.analysis.render.grid import header, numbered
from dlscale.analysis.render.markdown import escape_markdown, table_markdown
from dlscale.analysis.text import escape_latex


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading; `level` 1 is the section itself."""

    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A picture, `width` inches wide; `stem` is the file name without its suffix."""

    caption: str
    stem: str
    width: float


Block = Heading | Sentence | Items | Table | Picture


def to_latex(document: Sequence[Block]) -> str:
    """The whole document as LaTeX."""
    head = "% \\usepackage{graphicx} in the preamble, then \\input this file.\n"
    return head + "\n".join(line for block in document for line in (*_latex(block), "")).rstrip() + "\n"


def _latex(block: Block) -> Iterator[str]:
    match block:
        case Heading():
            yield f"\\{'sub' * (block.level - 1)}section{{{escape_latex(block.text)}}}"
        case Sentence():
            yield escape_latex(block.text)
        case Items():
            yield "\\begin{itemize}"
            yield from (f"  \\item {escape_latex(text)}" for text in block.texts)
            yield "\\end{itemize}"
        case Table():
            yield from _latex_table(block)
        case Picture():
            yield "\\begin{figure}[htb]"
            yield "  \\centering"
            yield f"  \\includegraphics[width={block.width:.4g}in]{{{block.stem}.pdf}}"
            yield f"  \\caption{{{escape_latex(block.caption)}}}"
            yield f"  \\label{{fig:{block.stem}}}"
            yield "\\end{figure}"


# In characters of 8 pt: a line between the wide margins of LaTeX's own classes, the gap between two columns, and the
# words after which a column breaks them, in inches, too.
MOST_CHARACTERS, GAP_CHARACTERS, LONGEST_CHARACTERS, LONGEST_INCHES = 78, 3, 30, 1.7
KEY = "ranks"  # the last of the columns that tell rows apart


def _latex_table(table: Table) -> Iterator[str]:
    notes: dict[str, int] = {}
    kept = [place for place, column in enumerate(table.columns) if not column.detail]
    yield "\\begin{table}[htb]"
    yield "  \\centering"
    yield "  \\fontsize{8}{10}\\selectfont"
    yield f"  \\caption{{{escape_latex(table.caption)}}}"
    yield f"  \\label{{tab:{table.name}}}"
    for number, part in enumerate(parts_of(numbered(only(table, kept), notes))):
        if number:
            yield "  \\par\\medskip"
        yield from _tabular(part)
    yield from (f"  \\par\\raggedright {mark}: {escape_latex(note)}" for note, mark in notes.items())
    yield "\\end{table}"


def parts_of(table: Table) -> list[Table]:
    """The table, as several if it is wider than a page, each with the columns that tell rows apart."""
    widths = [min(LONGEST_CHARACTERS, _characters(table, place)) for place in range(len(table.columns))]
    num_keys = next((place + 1 for place, column in enumerate(table.columns) if column.label == KEY), 1)
    room = MOST_CHARACTERS - sum(widths[:num_keys]) - GAP_CHARACTERS * num_keys
    parts: list[list[int]] = [[]]
    used = 0
    for place in range(num_keys, len(widths)):
        used += widths[place] + GAP_CHARACTERS
        if parts[-1] and used > room:
            parts.append([])
            used = widths[place] + GAP_CHARACTERS
        parts[-1].append(place)
    return [only(table, [*range(num_keys), *part]) for part in parts]


def _characters(table: Table, place: int) -> int:
    return max(len(header(table.columns[place])), *(len(row.values[place].text) for row in table.rows), 0)


def _tabular(table: Table) -> Iterator[str]:
    words = f"p{{{LONGEST_INCHES}in}}"
    places = "".join(
        "r" if column.numeric else words if _characters(table, place) > LONGEST_CHARACTERS else "l"
        for place, column in enumerate(table.columns)
    )
    yield f"  \\begin{{tabular}}{{{places}}}"
    yield "    \\hline"
    yield f"    {_latex_row(header(column) for column in table.columns)}"
    yield "    \\hline"
    yield from (f"    {_latex_row(value.text for value in row.values)}" for row in table.rows)
    yield "    \\hline"
    yield "  \\end{tabular}"


def _latex_row(cells: Iterable[str]) -> str:
    """A row of cells in braces: a leading bracket would be read as an option of the previous line's end."""
    return " & ".join(f"{{{escape_latex(cell)}}}" for cell in cells) + " \\\\"


def to_markdown(document: Sequence[Block]) -> str:
    """The whole document as GitHub markdown."""
    return "\n".join(line for block in document for line in (*_markdown(block), "")).rstrip() + "\n"


def _markdown(block: Block) -> Iterator[str]:
    match block:
        case Heading():
            yield f"{'#' * (block.level + 1)} {escape_markdown(block.text)}"
        case Sentence():
            yield escape_markdown(block.text)
        case Items():
            yield from (f"* {escape_markdown(text)}" for text in block.texts)
        case Table():
            yield from table_markdown(block)
            yield f"*{escape_markdown(block.caption)}*"
        case Picture():
            yield f"![{escape_markdown(block.caption)}]({block.stem}.png)"
            yield ""
            yield f"*{escape_markdown(block.caption)}*"
