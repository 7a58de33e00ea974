"""Layout around a figure's axes, sized in inches: title, legend and small print, in print the legend alone."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from dlscale.analysis.form import PRINTED_POINTS, SCREEN, Caption, Form

PANEL_HEIGHT_INCHES = 2.35  # with tick and axis labels
_LINE_INCHES = 0.155  # title and legend
_CHARACTERS_PER_INCH = 16.0  # in the widest lines of the figure's font; the bold title is wider
_TITLE_CHARACTERS_PER_INCH = 14
_HANDLE_INCHES = 0.5  # line of a legend entry and the gaps around it
_PRINT_POINTS = 5.6
_PRINT_LINE_INCHES = 0.094
_MARGIN_INCHES = 0.06
_PRINTED_HEIGHTS = (1.7, PANEL_HEIGHT_INCHES)  # of a printed panel; two thirds of its width between these
MOST_PRINTED_INCHES = 7.5  # the height of a printed figure: a page of A4 or letter has room for its caption
_MOST_LEGEND_INCHES = 1.5  # of that height
_AXIS_INCHES = 0.35


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Inches that the words of a printed panel need; panels that would be narrower side by side are stacked.

    A `fixed` height is all that a panel gets, without the axis below the last one.
    """

    width: float = 1.7
    height: float = 1.3
    fixed: bool = False


class Captioned(Figure):
    """A figure with the words about it, which stand around its axes or, in print, in a caption beside it."""

    caption: Caption


def figure_with_axes(
    *,
    width: float,
    num_panels: int,
    num_rows: int = 1,
    caption: Caption,
    handles: Sequence[Line2D],
    shared: bool = True,
    form: Form = SCREEN,
    least: Needs | None = None,
    panel_height: float = PANEL_HEIGHT_INCHES,
) -> tuple[Captioned, list[Axes]]:
    """A figure `width` inches wide whose height follows from its texts, and its axes, row by row.

    Panels have `shared` scales or each its own. A printed
    figure has the width of its form, no words but the legend, and axes on top of each other where they would be too
    narrow side by side, each as high as it needs.
    """
    if form.width is not None:
        needs = least or Needs()
        grid = printed_grid(form.width, needs, num_panels=num_panels, num_rows=num_rows)
        return _printed(
            form.width, caption, grid, num_panels=num_panels, shared=shared, handles=handles, needs=needs
        )
    heading = [
        *(
            (line, "bold", "black")
            for text in (caption.title, caption.warning)
            for line in textwrap.wrap(text, int(width * _TITLE_CHARACTERS_PER_INCH))
        ),
        *(
            (line, "normal", "#444444")
            for text in caption.subtitle.splitlines()
            for line in textwrap.wrap(text, int(width * _CHARACTERS_PER_INCH))
        ),
    ]
    num_columns, num_legend_lines = _wrap_legend(handles, width)
    characters = int((width - 2 * _MARGIN_INCHES) * 72 / (_PRINT_POINTS * 0.56))
    printed = [
        line
        for text in caption.small_print
        for line in textwrap.wrap(text, characters, break_on_hyphens=False)
    ]
    above_legend = _MARGIN_INCHES + len(heading) * _LINE_INCHES + 0.03
    top = above_legend + num_legend_lines * _LINE_INCHES + 0.05
    bottom = len(printed) * _PRINT_LINE_INCHES + 2 * _MARGIN_INCHES
    panels = num_rows * panel_height
    height = top + panels + bottom
    figure = _captioned(caption, (width, height), rect=(0, bottom / height, 1, panels / height))
    left = _MARGIN_INCHES / width
    for index, (line, weight, color) in enumerate(heading):
        y = 1 - (_MARGIN_INCHES + index * _LINE_INCHES) / height
        figure.text(left, y, line, weight=weight, color=color, va="top")
    _legend(figure, handles, num_columns=num_columns, top=above_legend)
    figure.text(
        left,
        _MARGIN_INCHES / height,
        "\n".join(printed),
        fontsize=_PRINT_POINTS,
        linespacing=1.2,
        va="bottom",
        color="#444444",
    )
    columns = num_panels // num_rows
    axes = figure.subplots(num_rows, columns, sharex=shared, sharey=shared, squeeze=False)
    return figure, list(axes.flat)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedGrid:
    """Rows and columns of the panels of a printed figure."""

    rows: int
    columns: int


def printed_grid(width: float, needs: Needs, *, num_panels: int, num_rows: int = 1) -> PrintedGrid:
    """As many panels side by side as are wide enough, in rows that are equally long; several rows keep together."""
    fitting = max(1, int(width / needs.width))
    in_row = num_panels // num_rows
    if num_rows > 1:
        columns = max(count for count in range(1, in_row + 1) if count <= fitting and in_row % count == 0)
    else:
        columns = -(-num_panels // -(-num_panels // fitting))
    return PrintedGrid(rows=-(-num_panels // columns), columns=columns)


def printed_rows(needs: Needs) -> int:
    """How many rows of panels a printed page has."""
    return max(1, int((MOST_PRINTED_INCHES - _MOST_LEGEND_INCHES) / needs.height))


def _printed(
    width: float,
    caption: Caption,
    grid: PrintedGrid,
    *,
    num_panels: int,
    shared: bool,
    handles: Sequence[Line2D],
    needs: Needs,
) -> tuple[Captioned, list[Axes]]:
    """A figure for a printed page, no higher than that: the legend and the axes."""
    scale = 7.5 / PRINTED_POINTS  # screens' legends are of 7.5 pt
    num_columns, num_lines = _wrap_legend(handles, width * scale)
    top = num_lines * _LINE_INCHES / scale + _MARGIN_INCHES if handles else 0.0
    lowest, highest = _PRINTED_HEIGHTS
    wanted = 0.0 if needs.fixed else min(highest, max(lowest, width / grid.columns * 2 / 3))
    room = (MOST_PRINTED_INCHES - top - _MARGIN_INCHES) / grid.rows
    panels = grid.rows * max(needs.height, min(wanted, room)) + needs.fixed * _AXIS_INCHES
    height = top + panels + _MARGIN_INCHES
    figure = _captioned(caption, (width, height), rect=(0, _MARGIN_INCHES / height, 1, panels / height))
    if handles:
        _legend(figure, handles, num_columns=num_columns, top=_MARGIN_INCHES)
    axes = figure.subplots(grid.rows, grid.columns, sharex=shared, sharey=shared, squeeze=False)
    for unused in axes.flat[num_panels:]:
        unused.remove()
    return figure, list(axes.flat[:num_panels])


def finish_printed(figure: Captioned) -> None:
    """Set all text of a printed figure to one size, and name axes that panels share once per column and row."""
    first, *others = [axes for axes in figure.axes if axes.get_subplotspec() is not None]
    for axes in others:
        if first.get_shared_y_axes().joined(first, axes):
            axes.set_ylabel(axes.get_ylabel() or first.get_ylabel())
            axes.label_outer(remove_inner_ticks=False)
    if others and first.get_shared_x_axes().joined(first, others[0]):
        first.label_outer(remove_inner_ticks=False)
        for axes in _above_nothing([first, *others]):
            axes.tick_params(labelbottom=True)
            axes.set_xlabel(others[-1].get_xlabel())
    for text in figure.findobj(Text):
        text.set_fontsize(PRINTED_POINTS)


def _above_nothing(axes: Sequence[Axes]) -> list[Axes]:
    """Panels of the row before the last one that have none below them."""
    places = {
        (place.rowspan.start, place.colspan.start): panel
        for panel in axes
        if (place := panel.get_subplotspec())
    }
    last = max(row for row, _ in places)
    return [
        panel for (row, column), panel in places.items() if row == last - 1 and (last, column) not in places
    ]


def _captioned(
    caption: Caption, inches: tuple[float, float], *, rect: tuple[float, float, float, float]
) -> Captioned:
    """An empty figure whose axes keep to `rect`: left, bottom, width and height as shares of the figure."""
    figure = Captioned(figsize=inches, layout="constrained")
    figure.caption = caption
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.set(rect=rect)  # type: ignore[call-arg]
    return figure


def _legend(figure: Figure, handles: Sequence[Line2D], *, num_columns: int, top: float) -> None:
    """Draw the legend at the left edge, `top` inches below the upper one."""
    width, height = figure.get_size_inches()
    figure.legend(
        handles=list(handles),
        loc="upper left",
        bbox_to_anchor=(_MARGIN_INCHES / width, 1 - top / height),
        ncols=num_columns,
        borderaxespad=0,
        borderpad=0,
        columnspacing=1.2,
        handlelength=2.6,
        labelspacing=0.35,
    )


def _wrap_legend(handles: Sequence[Line2D], width: float) -> tuple[int, int]:
    """Break labels that are wider than a legend, or than half of it if that saves lines; (its columns, its lines)."""
    labels = [str(handle.get_label()) for handle in handles]
    found = []
    for inches in (width, width / 2):
        characters = max(8, int((inches - _HANDLE_INCHES) * _CHARACTERS_PER_INCH))
        texts = [textwrap.wrap(label, characters) or [label] for label in labels]
        num_columns = _legend_columns([max(map(len, lines)) for lines in texts], width)
        columns = np.array_split([len(lines) for lines in texts], num_columns)
        found.append((max((int(column.sum()) for column in columns), default=0), num_columns, texts))
    num_lines, num_columns, texts = min(found, key=lambda legend: legend[0])
    for handle, lines in zip(handles, texts, strict=True):
        handle.set_label("\n".join(lines))
    return num_columns, num_lines


def _legend_columns(lengths: Sequence[int], width: float) -> int:
    """The largest number of columns whose labels, `lengths` characters long, fit side by side.

    matplotlib fills column by column; if entries do not divide evenly, the first columns get one more.
    """
    for num_columns in range(len(lengths), 1, -1):
        columns = np.array_split(lengths, num_columns)
        if sum(_HANDLE_INCHES + max(column) / _CHARACTERS_PER_INCH for column in columns) <= width:
            return num_columns
    return 1
