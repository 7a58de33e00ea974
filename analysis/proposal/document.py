"""What a text is made of, whatever it is written in: headings, paragraphs, lists, a table, pictures."""

from __future__ import annotations

from dataclasses import dataclass


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
