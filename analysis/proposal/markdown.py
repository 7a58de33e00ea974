"""A document in GitHub's markdown, which Word's users get into their text with pandoc."""

from __future__ import annotations

from collections.abc import Iterator

from dlscale.analysis.exports.markdown import grid, plain
from dlscale.analysis.proposal.document import Block, Document, Heading, Items, Paragraph, Table


def to_markdown(document: Document) -> str:
    """The whole text."""
    return "\n".join(line for block in document for line in (*_lines(block), "")).rstrip() + "\n"


def _lines(block: Block) -> Iterator[str]:
    if isinstance(block, Heading):
        yield f"{'#' * (block.level + 1)} {plain(block.text)}"
    elif isinstance(block, Paragraph):
        yield plain(block.text)
    elif isinstance(block, Items):
        yield from (f"* {plain(text)}" for text in block.texts)
    elif isinstance(block, Table):
        yield from grid(block.columns, block.rows, words=block.words)
        yield ""
        yield f"*{plain(block.caption)}*"
    else:
        yield f"![{plain(block.caption)}]({block.stem}.png)"
        yield ""
        yield f"*{plain(block.caption)}*"
