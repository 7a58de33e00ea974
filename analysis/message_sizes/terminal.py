"""A run of the message-size benchmark in the terminal: a table by message size, a line of averages, what is missing."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from dlscale.analysis.message_sizes.measurements import PEER, RING, STREAM, MessageSizeRow, heading
from dlscale.analysis.message_sizes.summary import MessageSizeSummary, average_bus_bandwidths
from dlscale.analysis.statistics import Interval
from dlscale.analysis.text import microseconds, number, plural, size_text
from dlscale.benchmarks.records.message_sizes import MessageSizeRun

COLUMNS = (
    "size",
    "library",
    "algbw\n[GB/s]",
    "busbw\n[GB/s]",
    "p99\n[us]",
    "of\nbound\n[%]",
    "ring\nover\nit",
)
Tags = Mapping[tuple[str, str], str]  # by backend and setting


def render_message_sizes(summary: MessageSizeSummary) -> RenderableType:
    """The whole report, for `rich.console.Console.print`."""
    tags = _tags(summary.rows)
    parts: list[RenderableType] = []
    for (num_ranks, collective), group in groupby(
        summary.rows, key=lambda row: (row.num_ranks, row.collective)
    ):
        rows = list(group)
        parts.append(f"[bold]{escape(heading(summary.campaign, collective, num_ranks))}[/bold]")
        parts.append(_table(rows, tags))
        rates = [f"{title} {number(rate)}" for (_, title), rate in average_bus_bandwidths(rows).items()]
        parts.append(escape(f"Average bus bandwidth over all sizes, in GB/s: {', '.join(rates) or '-'}"))
    if not summary.rows:
        parts.append("No launch gave a number.")
    parts += [*_settings(summary, tags), *(f"[dim]{escape(line)}[/dim]" for line in _legend(summary))]
    parts += [escape(line) for line in summary.choices]
    return Group(*parts, *_checks(summary), *_failures(summary))


def _tags(rows: Sequence[MessageSizeRow]) -> dict[tuple[str, str], str]:
    """A letter for each setting of a library: its name is too long for the table."""
    settings: dict[str, list[str]] = {}
    for row in rows:
        if row.role == PEER and row.setting not in settings.setdefault(row.backend, []):
            settings[row.backend].append(row.setting)
    return {
        (backend, name): string.ascii_lowercase[index % 26]
        for backend, names in settings.items()
        for index, name in enumerate(sorted(names, key=lambda name: not name.startswith("default")))
    }


def _table(rows: Sequence[MessageSizeRow], tags: Tags) -> Table:
    """A section per size: the ring, the bounds, and each library at its default and its best setting."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for index, name in enumerate(COLUMNS):
        table.add_column(name, justify="right" if index > 1 else "left", no_wrap=index < 2, overflow="fold")
    for num_bytes, group in groupby(rows, key=lambda row: row.message_bytes):
        for index, row in enumerate(filter(_is_shown, group)):
            size = size_text(num_bytes) if index == 0 else ""
            table.add_row(size, *(escape(cell) for cell in _cells(row, tags)))
        table.add_section()
    return table


def _is_shown(row: MessageSizeRow) -> bool:
    return row.role != PEER or row.tuned or row.setting.startswith("default") or bool(row.failure)


def _cells(row: MessageSizeRow, tags: Tags) -> Iterator[str]:
    """The columns after the size."""
    star = " *" if row.tuned else ""
    yield row.title if row.role != PEER else f"{row.backend} {tags[row.backend, row.setting]}{star}"
    if row.failure:
        yield "failed"
        return
    yield _number(row.algbw)
    yield number(row.algbw.center * row.bus_factor) if row.algbw and row.role != STREAM else "-"
    yield microseconds(row.p99_seconds)
    yield "-" if row.fraction_of_bound is None else f"{100 * row.fraction_of_bound.center:.1f}"
    yield "" if row.role == RING else _number(row.ring_speedup)


def _number(interval: Interval | None) -> str:
    return "-" if interval is None else number(interval.center)


def _settings(summary: MessageSizeSummary, tags: Tags) -> Iterator[RenderableType]:
    """The variables of each setting, as they are typed on a command line."""
    peers = {(row.backend, row.setting): row for row in summary.rows if row.role == PEER}
    tried = {choice.backend: choice.num_tried for choice in summary.campaign.chosen}
    for index, (key, row) in enumerate(sorted(peers.items(), key=lambda item: (item[0][0], tags[item[0]]))):
        if index == 0:
            yield "[bold]Settings[/bold] (*: the library's best at that size)"
        text = " ".join(f"{name}={value}" for name, value in row.variables.items())
        count = f" (of {tried[row.backend]} tried)" if tried.get(row.backend) and not row.variables else ""
        yield escape(
            f"  {row.backend} {tags[key]}: {row.title}, {row.setting}{': ' if text else ''}{text}{count}"
        )


def _legend(summary: MessageSizeSummary) -> Iterator[str]:
    campaign = summary.campaign
    yield (
        f"Median over {plural(campaign.num_blocks, 'launch')} of each launch's median call, by its slowest rank. "
        "busbw: algbw times what each rank must send or receive per byte of the message. of bound: relative to "
        f"{_bound(campaign)}. ring over it: the ring's rate over this one's. See docs/collectives-benchmark.md."
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


def _checks(summary: MessageSizeSummary) -> Iterator[RenderableType]:
    for check in summary.checks:
        if check.compared:
            word = "agrees" if check.valid else "[bold red]does not agree[/]"
            yield f"{escape(check.backend)} {word} with IMB-MPI1 within 5 %: {escape(check.found)}"


def _failures(summary: MessageSizeSummary) -> Iterator[RenderableType]:
    for index, failure in enumerate(summary.failures):
        if index == 0:
            yield "[bold]Not measured[/bold]"
        yield escape(f"  {failure}")
