"""The content of a page, without its looks: its first screen, and sections of sentences, plots and tables."""

from __future__ import annotations

from dataclasses import dataclass

from dlscale.analysis.declare import NO_TAGS, Tags
from dlscale.analysis.plots import Block
from dlscale.analysis.render.theme import Look


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A segment of a strip, in percent of the ideal speed. `says` is its tooltip."""

    begin: float
    width: float
    says: str
    largest: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """The ideal speed from 0 to 100 %: the first segment is kept, the others are lost; with a description."""

    name: str
    kept: str
    cause: str  # the largest loss
    certain: bool
    segments: tuple[Segment, ...]
    tags: Tags = NO_TAGS


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section of the page. `name` is unique. Those that are not `answers` are closed at first, below the others."""

    name: str
    title: str
    blocks: tuple[Block, ...]
    lead: str = ""
    answers: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A whole page. `facts` are (name, value), shown below the title; `summary` has at most three sentences."""

    title: str
    facts: tuple[tuple[str, str], ...]
    evidence: str
    summary: tuple[str, ...]
    strips: tuple[Strip, ...]  # where the speed goes, at a glance
    warnings: tuple[tuple[str, str], ...]  # (sentence, the section that has more)
    sections: tuple[Section, ...]
    looks: dict[str, Look]
    origin: str  # where the numbers come from, in one line
