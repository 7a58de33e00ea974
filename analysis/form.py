"""What a figure is drawn for: a screen, with all words around its axes, or a printed page, with a caption beside it.

A printed figure has the width that it has on the page, text of 8 pt and bare axes. What a screen shows as title and
small print becomes the caption of a LaTeX figure in a file of its own, so that nothing about the data is lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from dlscale.analysis.text import escape_latex
from dlscale.benchmarks.records.record import Cell

PRINTED_POINTS = 8.0  # of all text, as publishers ask for
PRINTED_INCHES = (2.0, 20.0)  # the narrowest and the widest printed figure
_INCHES = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "pt": 1 / 72.27}  # TeX's point, as in \the\columnwidth


class OfBackend(Protocol):
    """A cell, or a prediction of one."""

    @property
    def backend(self) -> str:
        """The backend's name."""
        ...


class OfCell(Protocol):
    """A row about one cell."""

    @property
    def cell(self) -> Cell:
        """The cell."""
        ...


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
        """The rows whose points are drawn."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Caption:
    """The words about a figure: what was trained, a warning (may be empty), what is constant, and the small print."""

    title: str
    warning: str
    subtitle: str
    small_print: Sequence[str]


def figure_latex(caption: Caption, *, name: str, width: float, origin: str) -> str:
    """A LaTeX figure that shows `name`.pdf `width` inches wide; `origin` is a comment on its first line."""
    sentences = [caption.title, caption.warning, caption.subtitle, *caption.small_print]
    text = " ".join(f"{sentence.rstrip('.')}." for sentence in sentences if sentence)
    return "\n".join(
        [
            f"% {origin}",
            r"\begin{figure}",
            r"  \centering",
            rf"  \includegraphics[width={width:.4g}in]{{{name}.pdf}}",
            rf"  \caption{{{escape_latex(text)}}}",
            rf"  \label{{fig:{name}}}",
            r"\end{figure}",
            "",
        ]
    )
