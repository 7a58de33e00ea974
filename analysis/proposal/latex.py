r"""A document in LaTeX, to be put into a proposal with \input. Of packages it needs `graphicx` alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dlscale.analysis.proposal.document import Block, Document, Heading, Items, Paragraph, Table

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


def escaped(text: str) -> str:
    """Text as it is, on one line: nothing in it is a command. What pdfTeX has no letter for becomes a "?"."""
    shown = _PATTERN.sub(lambda found: _SPECIAL[found[0]], " ".join(text.split()))
    # A number and its percent sign stay together.
    return re.sub(r"(?<=\d) (?=\\%)", r"\\,", shown).encode("ascii", "replace").decode()


def to_latex(document: Document) -> str:
    """The whole text."""
    head = "% \\usepackage{graphicx} in the preamble, then \\input this file.\n"
    return head + "\n".join(line for block in document for line in (*_lines(block), "")).rstrip() + "\n"


def _lines(block: Block) -> Iterator[str]:
    if isinstance(block, Heading):
        yield f"\\{LEVELS[block.level]}{{{escaped(block.text)}}}"
    elif isinstance(block, Paragraph):
        yield escaped(block.text)
    elif isinstance(block, Items):
        yield "\\begin{itemize}"
        yield from (f"  \\item {escaped(text)}" for text in block.texts)
        yield "\\end{itemize}"
    elif isinstance(block, Table):
        yield from _table(block)
    else:
        yield "\\begin{figure}[htb]"
        yield "  \\centering"
        yield f"  \\includegraphics[width=\\linewidth]{{{block.stem}.pdf}}"
        yield f"  \\caption{{{escaped(block.caption)}}}"
        yield f"  \\label{{{block.label}}}"
        yield "\\end{figure}"


def _table(block: Table) -> Iterator[str]:
    places = "".join("l" if name in block.words else "r" for name in block.columns)
    yield "\\begin{table}[htb]"
    yield "  \\centering"
    yield "  \\small"
    yield f"  \\caption{{{escaped(block.caption)}}}"
    yield f"  \\label{{{block.label}}}"
    yield "  \\resizebox{\\linewidth}{!}{%"
    yield f"  \\begin{{tabular}}{{{places}}}"
    yield "    \\hline"
    yield f"    {_row(block.columns)}"
    yield "    \\hline"
    yield from (f"    {_row(cells)}" for cells in block.rows)
    yield "    \\hline"
    yield "  \\end{tabular}}"
    yield "\\end{table}"


def _row(cells: tuple[str, ...]) -> str:
    """In braces: a bracket at the begin of a row would be an option of the line's end before it."""
    return " & ".join(f"{{{escaped(cell)}}}" for cell in cells) + " \\\\"
