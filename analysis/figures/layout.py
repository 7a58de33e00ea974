"""Layout around a figure's axes: title and legend above, small print below, all sized in inches."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dlscale.analysis.efficiency import ScalingRow
from dlscale.analysis.provenance import Provenance

PANEL_HEIGHT_INCHES = 2.35  # with tick and axis labels
_LINE_INCHES = 0.155  # title and legend
_CHARACTERS_PER_INCH = 16.5  # in the widest lines of the figure's font; the bold title is wider
_TITLE_CHARACTERS_PER_INCH = 14
_HANDLE_INCHES = 0.5  # line of a legend entry and the gaps around it
_PRINT_POINTS = 5.6
_PRINT_LINE_INCHES = 0.1
_MARGIN_INCHES = 0.06


def figure_with_axes(
    *,
    width: float,
    num_panels: int,
    title: str,
    warning: str,
    subtitle: str,
    handles: Sequence[Line2D],
    small_print: Sequence[str],
) -> tuple[Figure, list[Axes]]:
    """A figure `width` inches wide whose height follows from its texts, and its axes, side by side.

    `warning` is printed below the title; it may be empty.
    """
    heading = [
        *(
            (line, "bold", "black")
            for text in (title, warning)
            for line in textwrap.wrap(text, int(width * _TITLE_CHARACTERS_PER_INCH))
        ),
        *((line, "normal", "#444444") for line in textwrap.wrap(subtitle, int(width * _CHARACTERS_PER_INCH))),
    ]
    num_columns = _legend_columns([len(str(handle.get_label())) for handle in handles], width)
    num_legend_lines = -(-len(handles) // num_columns)
    characters = int((width - 2 * _MARGIN_INCHES) * 72 / (_PRINT_POINTS * 0.54))
    printed = [
        line for text in small_print for line in textwrap.wrap(text, characters, break_on_hyphens=False)
    ]
    above_legend = _MARGIN_INCHES + len(heading) * _LINE_INCHES + 0.03
    top = above_legend + num_legend_lines * _LINE_INCHES + 0.05
    bottom = len(printed) * _PRINT_LINE_INCHES + 2 * _MARGIN_INCHES
    height = top + PANEL_HEIGHT_INCHES + bottom
    figure = Figure(figsize=(width, height), layout="constrained")
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.set(rect=(0, bottom / height, 1, PANEL_HEIGHT_INCHES / height))  # type: ignore[call-arg]
    left = _MARGIN_INCHES / width
    for index, (line, weight, color) in enumerate(heading):
        y = 1 - (_MARGIN_INCHES + index * _LINE_INCHES) / height
        figure.text(left, y, line, weight=weight, color=color, va="top")
    figure.legend(
        handles=list(handles),
        loc="upper left",
        bbox_to_anchor=(left, 1 - above_legend / height),
        ncols=num_columns,
        borderaxespad=0,
        borderpad=0,
        columnspacing=1.2,
        handlelength=2.6,
        labelspacing=0.35,
    )
    figure.text(
        left,
        _MARGIN_INCHES / height,
        "\n".join(printed),
        fontsize=_PRINT_POINTS,
        linespacing=1.2,
        va="bottom",
        color="#444444",
    )
    axes = figure.subplots(1, num_panels, sharex=True, sharey=True, squeeze=False)
    return figure, list(axes[0])


def _legend_columns(lengths: Sequence[int], width: float) -> int:
    """The largest number of columns whose labels, `lengths` characters long, fit side by side.

    matplotlib fills column by column; if entries do not divide evenly, the first columns get one more.
    """
    for num_columns in range(len(lengths), 1, -1):
        columns = np.array_split(lengths, num_columns)
        if sum(_HANDLE_INCHES + max(column) / _CHARACTERS_PER_INCH for column in columns) <= width:
            return num_columns
    return 1


def span(values: Sequence[int]) -> str:
    """`6`, or `5 to 6` where they differ."""
    return str(min(values)) if min(values) == max(values) else f"{min(values)} to {max(values)}"


def warning(rows: Sequence[ScalingRow]) -> str:
    """A warning that the parity gate failed, to be read before the numbers; empty if it passed."""
    pair = rows[0].pair
    return (
        f"NOT COMPARABLE between {' and '.join(pair.frameworks)}" if pair and pair.comparable is False else ""
    )


def parity(rows: Sequence[ScalingRow]) -> list[str]:
    """A line of small print with the parity gate's verdict; none with only one framework."""
    pair = rows[0].pair
    return [f"{pair.verdict}."] if pair else []


def origin(rows: Sequence[ScalingRow], provenance: Provenance) -> str:
    """The origin of the data: study, fingerprint, commit and hash, abbreviated."""
    fingerprints = sorted({row.fingerprint[:12] for row in rows if row.fingerprint})
    return (
        f"Study {', '.join(provenance.studies)}; fingerprint {', '.join(fingerprints)}; "
        f"commit {', '.join(_short(commit) for commit in provenance.commits)}; data {provenance.data_hash[:12]}."
    )


def _short(commit: str) -> str:
    """The first 12 digits of a commit, and whether the checkout was dirty."""
    digits, mark, _ = commit.partition("+")
    return digits[:12] + (mark and "+dirty")
