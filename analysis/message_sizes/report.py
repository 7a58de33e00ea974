"""What a run of the message-size benchmark shows: tables, figures and sentences, declared as findings declare them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from dlscale.analysis.declare import Column, Sentence, Shown, Table, TableOf, Tags, Value
from dlscale.analysis.figures.drawing import drawing
from dlscale.analysis.figures.figure import draw
from dlscale.analysis.figures.write import save_pictures, save_rows
from dlscale.analysis.message_sizes.measurements import PEER, RING, STREAM, MessageSizeRow
from dlscale.analysis.message_sizes.summary import (
    MessageSizeSummary,
    average_bus_bandwidths,
    message_size_row,
)
from dlscale.analysis.plots import Axis, Block, Figure, Guide, Plot, Point, Series
from dlscale.analysis.text import microseconds, number, plural, size_text
from dlscale.benchmarks.records.collective_operations import BY_NAME
from dlscale.benchmarks.records.message_sizes import Collective, MessageSizeRun

TICKS_APART = 16  # sizes are labelled at every 16th part of the next
ROOM = 1.3  # room above and below the points of a figure, as a factor
Panel = tuple[str, Sequence[MessageSizeRow]]


def _library(row: MessageSizeRow) -> str:
    return row.title if row.role != PEER else f"{row.backend}{' *' if row.tuned else ''}"


def _setting(row: MessageSizeRow) -> Shown:
    """A number in the table, and below it the variables as they are typed on a command line."""
    if row.role != PEER:
        return ""
    variables = " ".join(f"{name}={value}" for name, value in row.variables.items())
    note = f"{row.title}, {row.setting}{': ' if variables else ''}{variables}"
    return Value(text=row.setting, notes=(note,))


def _algbw(row: MessageSizeRow) -> Shown:
    return "failed" if row.failure else row.algbw and row.algbw.center


def _busbw(row: MessageSizeRow) -> Shown:
    return row.algbw.center * row.bus_factor if row.algbw and row.role != STREAM else None


def _of_bound(row: MessageSizeRow) -> Shown:
    return f"{100 * row.fraction_of_bound.center:.1f}" if row.fraction_of_bound else None


def _ring_over_it(row: MessageSizeRow) -> Shown:
    return "" if row.role == RING else row.ring_speedup and row.ring_speedup.center


TABLE = TableOf[MessageSizeRow](
    name="collectives",
    caption="",  # `heading`
    columns=(
        Column("size", lambda row: size_text(row.message_bytes), numeric=False),
        Column("library", _library, numeric=False),
        Column("setting", _setting),
        Column("algbw", _algbw, unit="GB/s"),
        Column("busbw", _busbw, unit="GB/s"),
        Column("p99", lambda row: microseconds(row.p99_seconds), unit="us"),
        Column("of bound", _of_bound, unit="%"),
        Column("ring over it", _ring_over_it),
    ),
    data=message_size_row,
    group=lambda row: row.message_bytes,
)


def heading(campaign: MessageSizeRun, collective: Collective, num_ranks: int) -> str:
    """The title of an operation's table or figure."""
    title = BY_NAME[collective].title
    if not campaign.ranks_per_node:
        return f"{title}, {num_ranks} ranks on one node"
    num_nodes = num_ranks // campaign.ranks_per_node
    return f"{title}, {num_ranks} ranks on {num_nodes} nodes of {campaign.system}"


def blocks(summary: MessageSizeSummary) -> Iterator[Block]:
    """The whole report: a table per number of ranks and operation, averages, small print, and what is missing."""
    for _, group in groupby(summary.rows, key=lambda row: (row.num_ranks, row.collective)):
        rows = list(group)
        yield _table(summary.campaign, rows)
        rates = [f"{title} {number(rate)}" for (_, title), rate in average_bus_bandwidths(rows).items()]
        yield Sentence(text=f"Average bus bandwidth over all sizes, in GB/s: {', '.join(rates) or '-'}")
    if not summary.rows:
        yield Sentence(text="No launch gave a number.")
    for text in _small_print(summary):
        yield Sentence(text=text, quiet=True)
    for text in summary.choices:
        yield Sentence(text=text)
    for check in (check for check in summary.checks if check.compared):
        verdict = "agrees" if check.valid else "does not agree"
        yield Sentence(
            text=f"{check.backend} {verdict} with IMB-MPI1 within 5 %: {check.found}", strong=not check.valid
        )
    if summary.failures:
        yield Sentence(text="Not measured", strong=True)
    yield from (Sentence(text=f"  {text}") for text in summary.failures)


def _table(campaign: MessageSizeRun, rows: Sequence[MessageSizeRow]) -> Table:
    """The ring, the bounds, and each library at its default and its best setting."""
    shown = [
        row
        for row in rows
        if row.role != PEER or row.tuned or row.setting.startswith("default") or row.failure
    ]
    return replace(TABLE, caption=heading(campaign, rows[0].collective, rows[0].num_ranks)).of(shown)


def _small_print(summary: MessageSizeSummary) -> Iterator[str]:
    campaign = summary.campaign
    if tried := [f"{choice.backend} {choice.num_tried}" for choice in campaign.chosen if choice.num_tried]:
        yield f"Settings tried: {', '.join(tried)}."
    yield (
        f"Median over {plural(campaign.num_blocks, 'launch')} of each launch's median call, by its slowest rank. "
        "*: the library's best setting at that size. busbw: algbw times what each rank must send or receive per byte "
        f"of the message. of bound: relative to {_bound(campaign)}. ring over it: the ring's rate over this one's. "
        "See docs/ring.md."
    )
    if trips := summary.round_trips:
        yield (
            f"A message takes {trips[len(trips) // 2]} ns from one node to another and back ({trips[0]} to "
            f"{trips[-1]}); ranks start {number(1e-3 * summary.start_skew)} us apart (median over calls, by clocks "
            "compared to half of that time)."
        )


def _bound(campaign: MessageSizeRun) -> str:
    if not campaign.nodes:
        return "the rate at which all ranks at once add to their own memory"
    if not campaign.wire_bytes_per_second:
        return "nothing, as the system's file states no bandwidth of its network"
    return (
        f"what a node's link carries ({number(1e-9 * campaign.wire_bytes_per_second)} GB/s in each direction)"
    )


def figure(summary: MessageSizeSummary, rows: Sequence[MessageSizeRow]) -> Figure:
    """Algbw over message size: libraries at their best settings and, if there were any to choose, at their defaults."""
    campaign = summary.campaign
    ours = [row for row in rows if row.role not in (PEER, STREAM)]
    peers = [row for row in rows if row.role == PEER]
    panels: list[Panel] = [("best setting at each size", [*ours, *(row for row in peers if row.tuned)])]
    if any(row.setting != "default" for row in peers):
        panels.append(("default settings", [*ours, *(row for row in peers if row.setting == "default")]))
    bound = [row for row in rows if row.role == STREAM]
    invalid = dict.fromkeys(check.backend for check in summary.checks if check.compared and not check.valid)
    return Figure(
        name="collectives",
        title=heading(campaign, rows[0].collective, rows[0].num_ranks),
        subtitle=f"{campaign.node['cpu_model']}, {len(campaign.cpus)} cores",
        warning=f"invalid: {', '.join(invalid)} not within 5 % of IMB-MPI1" if invalid else "",
        small_print=(
            f"Median over {plural(campaign.num_blocks, 'launch')} of the median call, by the slowest rank's time from "
            "a common start. Memory bound: the rate at which every rank adds to its own memory, all at once.",
            f"Commit {campaign.commit[:12]}; measured {campaign.started}; data {summary.provenance.data_hash[:12]}.",
        ),
        panels=tuple(_plot(panel, bound, rows) for panel in panels),
        rows=(),
        shared=True,
    )


def _plot(panel: Panel, bound: Sequence[MessageSizeRow], every: Sequence[MessageSizeRow]) -> Plot:
    title, rows = panel
    sizes = sorted({row.message_bytes for row in every})
    ticks = sizes[:1]
    for size in sizes:
        if size >= TICKS_APART * ticks[-1]:
            ticks.append(size)
    rates = [row.algbw.center for row in every if row.algbw]
    curve = [(row.message_bytes, row.algbw.center) for row in bound if row.algbw]
    return Plot(
        name=title.split()[0],
        title=title,
        says="Nothing was measured.",
        x=Axis(
            title="message size",
            kind="log",
            ticks=tuple((size, size_text(size).replace(" ", "\n")) for size in ticks),
        ),
        y=Axis(title="algorithm bandwidth [GB/s]", kind="log", low=min(rates) / ROOM, high=max(rates) * ROOM),
        series=tuple(
            _series(name, [row for row in rows if row.title == name])
            for name in dict.fromkeys(row.title for row in rows)
        ),
        guides=(Guide(label="memory bound", points=tuple(curve)),) if curve else (),
    )


def _series(name: str, rows: Sequence[MessageSizeRow]) -> Series:
    intervals = [(row.message_bytes, row.algbw) for row in rows if row.algbw]
    return Series(
        name=name,
        look=name,
        evidence="measured",
        points=tuple(Point(x=size, y=rate.center, low=rate.low, high=rate.high) for size, rate in intervals),
        tags=Tags(backend=rows[0].role if rows[0].role != PEER else rows[0].backend),
        joined=True,
    )


def write_files(summary: MessageSizeSummary, folder: Path) -> list[Path]:
    """Write the rows of `--json` to `collectives.csv`, and a figure per number of ranks and operation.

    Figures are `collectives-<P>r.png`, `.pdf` and `.svg`, of operations other than allreduce
    `collectives-<operation>-<P>r`. Nothing is written without rows.
    """
    lines = [message_size_row(row) for row in summary.rows]
    for line in lines:
        line["variables"] = " ".join(f"{name}={value}" for name, value in line["variables"].items())
    written = [save_rows(folder / "collectives", lines, summary.provenance)] if lines else []
    measured = [row for row in summary.rows if row.algbw]
    for (num_ranks, collective), rows in groupby(measured, key=lambda row: (row.num_ranks, row.collective)):
        own = "" if collective == "allreduce" else f"{collective}-"
        with drawing():
            written += save_pictures(
                draw(figure(summary, list(rows))),
                folder / f"collectives-{own}{num_ranks}r",
                title=f"{collective} on {num_ranks} ranks",
                provenance=summary.provenance,
            )
    return written
