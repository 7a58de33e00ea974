"""The figure of algbw over message size: PNG, PDF and SVG, byte for byte reproducible."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from dlscale.analysis.figures.drawing import DOUBLE_COLUMN_INCHES, drawing
from dlscale.analysis.figures.layout import figure_with_axes
from dlscale.analysis.figures.write import save_pictures
from dlscale.analysis.message_sizes.measurements import (
    PEER,
    RING,
    RING_SHARED,
    STREAM,
    MessageSizeRow,
    heading,
)
from dlscale.analysis.message_sizes.summary import MessageSizeSummary
from dlscale.analysis.text import number, size_text
from dlscale.benchmarks.records.message_sizes import Collective

_BOUND: dict[str, Any] = {"color": "#777777", "linewidth": 1.0, "linestyle": (0, (1, 1.5)), "zorder": 1}
_THIN: dict[str, Any] = {"linewidth": 0.7, "alpha": 0.55, "markersize": 0}
# Colours of Okabe & Ito; each library always has the same one, with a marker for black-and-white prints.
_LOOKS = {
    RING: ("#0072B2", "s"),
    RING_SHARED: ("#56B4E9", "s"),
    "mpich": ("#D55E00", "^"),
    "openmpi": ("#E69F00", "v"),
    "intelmpi": ("#CC79A7", "P"),
    "gloo": ("#009E73", "D"),
    "horovod": ("#999933", "h"),
    "mpi": ("#D55E00", "^"),
    "nccl": ("#000000", "o"),
}
_TICKS_APART = 16  # sizes are labelled at every 16th part of the next
Line = tuple[list[int], list[float]]


def write_figure(summary: MessageSizeSummary, folder: Path) -> list[Path]:
    """Write `collectives-<P>r.png`, `.pdf` and `.svg` for every measured number of ranks; return their paths.

    Of other operations than allreduce, `collectives-<operation>-<P>r`.
    """
    written: list[Path] = []
    campaign = summary.campaign
    for num_ranks, collective in itertools.product(campaign.rank_counts, campaign.collectives):
        at = [row for row in summary.rows if (row.num_ranks, row.collective) == (num_ranks, collective)]
        rows = [row for row in at if row.algbw]
        if not rows:
            continue
        with drawing():
            figure = _draw(summary, rows, num_ranks, collective)
            own = "" if collective == "allreduce" else f"{collective}-"
            stem = folder / f"collectives-{own}{num_ranks}r"
            title = f"{collective} on {num_ranks} ranks"
            written += save_pictures(figure, stem, title=title, provenance=summary.provenance)
    return written


def _draw(
    summary: MessageSizeSummary, rows: Sequence[MessageSizeRow], num_ranks: int, collective: Collective
) -> Figure:
    lines = _lines(rows)
    bounded = any(row.role == STREAM for row in rows)
    figure, (axes,) = figure_with_axes(
        width=DOUBLE_COLUMN_INCHES,
        num_panels=1,
        title=heading(summary.campaign, collective, num_ranks),
        warning=_warning(summary),
        subtitle=f"{summary.campaign.node['cpu_model']}, {len(summary.campaign.cpus)} cores",
        handles=[
            *(_handle(name, label) for name, label in lines.items()),
            *([Line2D([], [], **_BOUND, label="bound")] if bounded else []),
        ],
        small_print=_small_print(summary),
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    for name in lines:
        _curve(axes, rows, name)
    axes.plot(*_line([row for row in rows if row.role == STREAM]), **_BOUND)
    _size_axis(axes, summary.campaign.sizes)
    axes.set_ylabel("algorithm bandwidth [GB/s]")
    return figure


def _warning(summary: MessageSizeSummary) -> str:
    invalid = dict.fromkeys(check.backend for check in summary.checks if check.compared and not check.valid)
    return f"invalid: {', '.join(invalid)} not within 5 % of IMB-MPI1" if invalid else ""


def _lines(rows: Sequence[MessageSizeRow]) -> dict[str, str]:
    """The curves of a figure: key and label."""
    names = {RING: "ring", RING_SHARED: "ring, memory of its own"}
    own = {role: label for role, label in names.items() if any(row.role == role for row in rows)}
    return own | {row.backend: row.title for row in rows if row.role == PEER}


def _curve(axes: Axes, rows: Sequence[MessageSizeRow], name: str) -> None:
    """Draw a library's best setting at each size and, if it was tuned, its default as a thin line."""
    colour, marker = _LOOKS[name]
    style: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 3.6, "linewidth": 1.1}
    if name in (RING, RING_SHARED):
        axes.plot(*_line([row for row in rows if row.role == name]), **style, zorder=3)
        return
    own = [row for row in rows if row.role == PEER and row.backend == name]
    axes.plot(*_line([row for row in own if row.tuned]), **style)
    default = [row for row in own if row.setting == "default"]
    if any(row.setting != "default" for row in own):
        axes.plot(*_line(default), **(style | _THIN | {"linestyle": (0, (4, 2))}))


def _line(rows: Sequence[MessageSizeRow]) -> Line:
    points = sorted((row.message_bytes, row.algbw.center) for row in rows if row.algbw)
    return [num_bytes for num_bytes, _ in points], [value for _, value in points]


def _handle(name: str, label: str) -> Line2D:
    colour, marker = _LOOKS[name]
    return Line2D([], [], color=colour, marker=marker, markersize=3.6, linewidth=1.1, label=label)


def _size_axis(axes: Axes, sizes: Sequence[int]) -> None:
    ticks = [sizes[0]]
    for size in sizes:
        if size >= _TICKS_APART * ticks[-1]:
            ticks.append(size)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: size_text(round(value)).replace(" ", "\n")))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axes.set_xlabel("message size")


def _small_print(summary: MessageSizeSummary) -> list[str]:
    campaign = summary.campaign
    return [
        f"Median over {campaign.num_blocks} launches of the median call, by the slowest rank's time from a common "
        "start. Solid: each library at its best setting of that size; dashed: at its default. Bound: the rate at which "
        "every rank adds to its own memory, all at once.",
        f"Commit {campaign.commit[:12]}; measured {campaign.started}; data {summary.provenance.data_hash[:12]}.",
    ]
