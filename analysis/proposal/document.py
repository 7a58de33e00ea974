"""A document as headings, sentences, lists, tables and pictures, written as LaTeX or as GitHub's markdown.

The LaTeX file is included in a proposal with the command `input` and needs only the package `graphicx`. Word users
convert the markdown with pandoc.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dlscale.analysis.declare import Sentence, Table
from dlscale.analysis.render.grid import header
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
    """A picture; `stem` is the file name without its suffix."""

    caption: str
    stem: str


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
            yield f"  \\includegraphics[width=\\linewidth]{{{block.stem}.pdf}}"
            yield f"  \\caption{{{escape_latex(block.caption)}}}"
            yield f"  \\label{{fig:{block.stem}}}"
            yield "\\end{figure}"


def _latex_table(table: Table) -> Iterator[str]:
    places = "".join("r" if column.numeric else "l" for column in table.columns)
    yield "\\begin{table}[htb]"
    yield "  \\centering"
    yield "  \\small"
    yield f"  \\caption{{{escape_latex(table.caption)}}}"
    yield f"  \\label{{tab:{table.name}}}"
    yield "  \\resizebox{\\linewidth}{!}{%"
    yield f"  \\begin{{tabular}}{{{places}}}"
    yield "    \\hline"
    yield f"    {_latex_row(header(column) for column in table.columns)}"
    yield "    \\hline"
    yield from (f"    {_latex_row(value.text for value in row.values)}" for row in table.rows)
    yield "    \\hline"
    yield "  \\end{tabular}}"
    yield "\\end{table}"


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
