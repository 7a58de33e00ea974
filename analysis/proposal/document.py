"""A document as headings, paragraphs, lists, a table and pictures, written as LaTeX or as GitHub's markdown.

LaTeX is to be put into a proposal with its command `input`; it needs only the package `graphicx`. Users of Word
convert the markdown with pandoc.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dlscale.analysis.render.markdown import escape_markdown, markdown_table


@dataclass(frozen=True, slots=True)
class Heading:
    """`level` 1 is the section's own."""

    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Plain text."""

    text: str


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells are plain text; all columns but those in `words` are numbers."""

    label: str  # to refer to it
    caption: str
    columns: tuple[str, ...]
    words: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """`stem` is the file's name without what tells its forms apart."""

    label: str
    caption: str
    stem: str


Block = Heading | Paragraph | Items | Table | Picture
Document = tuple[Block, ...]

LEVELS = {1: "section", 2: "subsection", 3: "subsubsection"}
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{mark: "\\" + mark for mark in "{}#$%&_"},
}
_PATTERN = re.compile("|".join(re.escape(mark) for mark in _SPECIAL))


def escape_latex(text: str) -> str:
    """Text as it is, on one line: nothing in it is a command. What pdfTeX has no letter for becomes a "?"."""
    shown = _PATTERN.sub(lambda match: _SPECIAL[match[0]], " ".join(text.split()))
    # A number and its percent sign stay together.
    return re.sub(r"(?<=\d) (?=\\%)", r"\\,", shown).encode("ascii", "replace").decode()


def to_latex(document: Document) -> str:
    """The whole text."""
    head = "% \\usepackage{graphicx} in the preamble, then \\input this file.\n"
    return head + "\n".join(line for block in document for line in (*_latex_lines(block), "")).rstrip() + "\n"


def _latex_lines(block: Block) -> Iterator[str]:
    if isinstance(block, Heading):
        yield f"\\{LEVELS[block.level]}{{{escape_latex(block.text)}}}"
    elif isinstance(block, Paragraph):
        yield escape_latex(block.text)
    elif isinstance(block, Items):
        yield "\\begin{itemize}"
        yield from (f"  \\item {escape_latex(text)}" for text in block.texts)
        yield "\\end{itemize}"
    elif isinstance(block, Table):
        yield from _latex_table(block)
    else:
        yield "\\begin{figure}[htb]"
        yield "  \\centering"
        yield f"  \\includegraphics[width=\\linewidth]{{{block.stem}.pdf}}"
        yield f"  \\caption{{{escape_latex(block.caption)}}}"
        yield f"  \\label{{{block.label}}}"
        yield "\\end{figure}"


def _latex_table(block: Table) -> Iterator[str]:
    places = "".join("l" if name in block.words else "r" for name in block.columns)
    yield "\\begin{table}[htb]"
    yield "  \\centering"
    yield "  \\small"
    yield f"  \\caption{{{escape_latex(block.caption)}}}"
    yield f"  \\label{{{block.label}}}"
    yield "  \\resizebox{\\linewidth}{!}{%"
    yield f"  \\begin{{tabular}}{{{places}}}"
    yield "    \\hline"
    yield f"    {_latex_row(block.columns)}"
    yield "    \\hline"
    yield from (f"    {_latex_row(cells)}" for cells in block.rows)
    yield "    \\hline"
    yield "  \\end{tabular}}"
    yield "\\end{table}"


def _latex_row(cells: tuple[str, ...]) -> str:
    """In braces: a bracket at the begin of a row would be an option of the line's end before it."""
    return " & ".join(f"{{{escape_latex(cell)}}}" for cell in cells) + " \\\\"


def to_markdown(document: Document) -> str:
    """The whole text."""
    return "\n".join(line for block in document for line in (*_markdown_lines(block), "")).rstrip() + "\n"


def _markdown_lines(block: Block) -> Iterator[str]:
    if isinstance(block, Heading):
        yield f"{'#' * (block.level + 1)} {escape_markdown(block.text)}"
    elif isinstance(block, Paragraph):
        yield escape_markdown(block.text)
    elif isinstance(block, Items):
        yield from (f"* {escape_markdown(text)}" for text in block.texts)
    elif isinstance(block, Table):
        yield from markdown_table(block.columns, block.rows, words=block.words)
        yield ""
        yield f"*{escape_markdown(block.caption)}*"
    else:
        yield f"![{escape_markdown(block.caption)}]({block.stem}.png)"
        yield ""
        yield f"*{escape_markdown(block.caption)}*"
