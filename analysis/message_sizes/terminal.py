"""A run of the message-size benchmark in the terminal: a table by message size, the goals, the comparison with
others, what is missing.
"""

from __future__ import annotations

import string
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.markup import escape
from rich.table import Table

from dlscale.analysis.message_sizes.measurements import PEER, RING, MessageSizeRow
from dlscale.analysis.message_sizes.summary import MessageSizeSummary
from dlscale.analysis.render.text import microseconds, number, rate, size_text
from dlscale.analysis.statistics import Interval

LEFT = ("size", "who")
COLUMNS = (*LEFT, "algbw\n[GB/s]", "best", "p99\n[us]", "busbw\n[GB/s]", "of bound\n[%]", "ring\nover it",
           "algbw\nfresh", "algbw\ncold")  # fmt: skip
WIDE_ONLY = ("best", "algbw\nfresh")
COLOURS = {"met": "green", "missed": "bold red", "not judged": "dim", "reported": "default"}
NEAR_AND_FAR = 2.0  # CPUs whose flag round trips differ by more seem to have been moved

Tags = Mapping[tuple[str, str], str]  # by backend and setting


def render_message_sizes(summary: MessageSizeSummary) -> RenderableType:
    """Everything, for `rich.console.Console.print`."""
    tags = _tags(summary.rows)
    parts: list[RenderableType] = []
    for num_ranks, rows in groupby(summary.rows, key=lambda row: row.num_ranks):
        parts.append(f"[bold]allreduce, fp32 sum, in place, {num_ranks} ranks on one node[/bold]")
        parts.append(_Grid(list(rows), tags))
    if not summary.rows:
        parts.append("No launch gave a number.")
    parts += [*_settings(summary, tags), *(f"[dim]{escape(line)}[/dim]" for line in _legend(summary))]
    parts += [*_goals(summary), *_checks(summary), *_failures(summary)]
    return Group(*parts)


def _tags(rows: Sequence[MessageSizeRow]) -> dict[tuple[str, str], str]:
    """A letter for each setting of a library, for where there is no room for its name."""
    settings: dict[str, list[str]] = {}
    for row in rows:
        if row.role == PEER and row.setting not in settings.setdefault(row.backend, []):
            settings[row.backend].append(row.setting)
    return {
        (backend, name): string.ascii_lowercase[index % 26]
        for backend, names in settings.items()
        for index, name in enumerate(names)
    }


@dataclass(frozen=True, slots=True)
class _Grid:
    """A section per size, of each library the default settings and the best; without names where it is narrow."""

    rows: Sequence[MessageSizeRow]
    tags: Tags

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        wide = self._table(narrow=False)
        unlimited = options.update(max_width=sys.maxsize)
        fits = console.measure(wide, options=unlimited).maximum <= options.max_width
        yield wide if fits else self._table(narrow=True)

    def _table(self, *, narrow: bool) -> Table:
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        names = [name for name in COLUMNS if not (narrow and name in WIDE_ONLY)]
        for name in names:
            table.add_column(
                name, justify="left" if name in LEFT else "right", no_wrap=name in LEFT, overflow="fold"
            )
        for num_bytes, group in groupby(self.rows, key=lambda row: row.message_bytes):
            at_size = list(group)
            others = {(row.mode, row.backend, row.setting): row for row in at_size}
            hot = [row for row in at_size if row.mode == "hot" and _shown(row)]
            for index, row in enumerate(hot):
                first = size_text(num_bytes) if index == 0 else ""
                cells = dict(
                    zip(COLUMNS, (first, *_cells(row, others, self.tags, narrow=narrow)), strict=False)
                )
                table.add_row(*(escape(cells.get(name, "")) for name in names))
            table.add_section()
        return table


def _shown(row: MessageSizeRow) -> bool:
    return row.role != PEER or row.tuned or row.setting.startswith("default") or bool(row.failure)


def _cells(
    row: MessageSizeRow, others: Mapping[tuple[str, str, str], MessageSizeRow], tags: Tags, *, narrow: bool
) -> Iterator[str]:
    """The columns after the size."""
    star = " *" if row.role == PEER and row.tuned else ""
    if row.role != PEER:
        yield row.title
    elif narrow:
        yield f"{row.backend} {tags[row.backend, row.setting]}{star}"
    else:
        yield f"{row.title}, {row.setting}{star}"
    if row.failure:
        yield "failed"
        return
    yield "-" if row.algbw is None else number(row.algbw.center)
    yield "-" if row.best_algbw is None else number(row.best_algbw)
    yield microseconds(row.p99_seconds)
    yield (
        "-"
        if row.algbw is None or row.operation != "allreduce"
        else number(row.algbw.center * row.bus_factor)
    )
    yield "-" if row.fraction_of_bound is None else f"{100 * row.fraction_of_bound.center:.1f}"
    yield "" if row.role == RING else _ratio(row.ring_speedup, narrow=narrow)
    for mode in ("fresh", "cold"):
        other = others.get((mode, row.backend, row.setting))
        yield "-" if other is None or other.algbw is None else number(other.algbw.center)


def _ratio(interval: Interval | None, *, narrow: bool) -> str:
    if interval is None:
        return "-"
    return number(interval.center) if narrow else rate(interval)


def _settings(summary: MessageSizeSummary, tags: Tags) -> Iterator[RenderableType]:
    """What each setting means, as it can be typed."""
    peers = {(row.backend, row.setting): row for row in summary.rows if row.role == PEER}
    chosen = {one.backend: one.num_tried for one in summary.campaign.chosen}
    for index, (key, row) in enumerate(peers.items()):
        if index == 0:
            yield "[bold]Settings[/bold] (*: the library's best at that size)"
        text = " ".join(f"{name}={value}" for name, value in row.variables.items())
        tried = f" (of {chosen[row.backend]} tried)" if chosen.get(row.backend) and not row.variables else ""
        yield escape(
            f"  {row.backend} {tags[key]}: {row.title}, {row.setting}{': ' if text else ''}{text}{tried}"
        )


def _legend(summary: MessageSizeSummary) -> Iterator[str]:
    campaign = summary.campaign
    yield (
        f"Of {campaign.num_blocks} launches the median; in each the median call (p99: the 99th percentile) of the "
        "slowest rank, from a common start. best: the fastest call of all. algbw: message bytes over time; busbw: "
        "times 2(P-1)/P. of bound: of the rate at which all ranks at once add to their own memory, B_mem/(2P). ring "
        "over it: the ring's rate over this one's, 95 % t interval over paired launches. Calls are hot (one buffer), "
        f"fresh (written just before) or cold (last used {size_text(campaign.cold_bytes)} before)."
    )
    if trips := summary.round_trips:
        text = f"A flag went from one rank to another and back in {trips[len(trips) // 2]} ns"
        if trips[-1] > NEAR_AND_FAR * trips[0]:
            text += (
                f", at other times in {trips[0]} to {trips[-1]}: this machine moves its CPUs or has other work, "
                "which changes all numbers; ratios are paired"
            )
        yield text + "."


def _goals(summary: MessageSizeSummary) -> Iterator[RenderableType]:
    yield "[bold]Goals of the ring[/bold]"
    for verdict in summary.verdicts:
        word = f"[{COLOURS[verdict.verdict]}]{verdict.verdict}[/]"
        yield f"  {word}: {escape(verdict.goal)}: {escape(verdict.found)}"


def _checks(summary: MessageSizeSummary) -> Iterator[RenderableType]:
    for index, check in enumerate(summary.checks):
        if index == 0:
            yield "[bold]Beside IMB-MPI1 on the same MPI, which must be within 5 %[/bold]"
        word = "valid" if check.valid else "[bold red]void[/]"
        yield f"  {word}: {escape(f'{check.backend}, {check.setting}: {check.found}')}"


def _failures(summary: MessageSizeSummary) -> Iterator[RenderableType]:
    for index, failure in enumerate(summary.failures):
        if index == 0:
            yield "[bold]Not measured[/bold]"
        yield escape(f"  {failure}")
