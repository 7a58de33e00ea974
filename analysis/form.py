"""What a figure is drawn for: a screen, with all words around its axes, or a printed page, with a caption beside it.

A printed figure has the width that it has on the page, text of 8 pt and bare axes. A LaTeX
figure in a file of its own has a caption of three lines, and the rest of what a screen shows as comments.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from dlscale.analysis.text import escape_latex
from dlscale.benchmarks.records.cell import Cell

PRINTED_POINTS = 8.0  # of all text, as publishers ask for
PRINTED_INCHES = (2.0, 20.0)  # the narrowest and the widest printed figure
_INCHES = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "pt": 1 / 72.27}  # TeX's point, as in \the\columnwidth


class OfBackend(Protocol):
    """A cell, or a prediction of one."""

    @property
    def backend(self) -> str:
        """The backend's name."""


class OfCell(Protocol):
    """A row about one cell."""

    @property
    def cell(self) -> Cell:
        """The cell."""


R = TypeVar("R", bound=OfCell)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The width of a printed figure in inches, None for a screen's, and the backends to draw, by default all."""

    width: float | None = None
    backends: tuple[str, ...] = ()

    @property
    def printed(self) -> bool:
        """Whether the figure is for a printed page."""
        return self.width is not None

    def draws(self, cell: OfBackend) -> bool:
        """Whether points of this cell, or prediction, are drawn."""
        return not self.backends or cell.backend in self.backends

    def chosen(self, rows: Iterable[R]) -> list[R]:
        return [row for row in rows if self.draws(row.cell)]


SCREEN = Form()


def parse_width(text: str) -> float:
    """Inches from 3.3in, 8.4cm, 84mm or 240pt (of TeX). Raises ValueError."""
    match = re.fullmatch(r"\s*(\d{1,6}(?:\.\d{1,6})?)\s*(in|cm|mm|pt)\s*", text)
    if not match:
        raise ValueError(f"{text[:40]!r} is not a width; write 3.3in, 8.4cm, 84mm or 240pt")
    inches = float(match[1]) * _INCHES[match[2]]
    least, most = PRINTED_INCHES
    if not least <= inches <= most:
        raise ValueError(f"{text.strip()!r} is {inches:.3g} in; figures are {least:g} to {most:g} in wide")
    return inches


CAPTION_CHARACTERS_PER_INCH = 45  # of a figure's width: three lines of 10 pt


@dataclass(frozen=True, slots=True, kw_only=True)
class Caption:
    """The words about a figure: a warning (may be empty), what was trained, what is shown, what is constant, and the
    small print. `brief` are the words that a printed caption cannot do without.
    """

    title: str
    warning: str
    brief: str
    subtitle: str
    small_print: Sequence[str]

    def printed(self, width: float) -> tuple[str, list[str]]:
        """The caption of a figure `width` inches wide, in three lines but for long warnings, and all other words."""
        shown = _sentences(self.warning, self.title, self.brief)
        whole = _sentences(shown, *self.subtitle.splitlines())
        if len(whole) <= CAPTION_CHARACTERS_PER_INCH * width:
            return whole, list(self.small_print)
        return shown, [*self.subtitle.splitlines(), *self.small_print]


def _sentences(*texts: str) -> str:
    return " ".join(f"{text.rstrip('.')}." for text in texts if text)


def figure_latex(caption: Caption, *, name: str, width: float, origin: str) -> str:
    """A LaTeX figure that shows `name`.pdf `width` inches wide; `origin` and what its caption has no room for are
    comments.
    """
    text, rest = caption.printed(width)
    comments = [line for words in (origin, *rest) for line in textwrap.wrap(words, 118)]
    return "\n".join(
        [
            *(f"% {line}" for line in comments),
            r"\begin{figure}",
            r"  \centering",
            rf"  \includegraphics[width={width:.4g}in]{{{name}.pdf}}",
            rf"  \caption{{{escape_latex(text)}}}",
            rf"  \label{{fig:{name}}}",
            r"\end{figure}",
            "",
        ]
    )
