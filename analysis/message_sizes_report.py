"""What a run of the message-size benchmark shows: tables, sentences, figures, and its rows as CSV and JSON."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator
from rich.table import Table
from rich.text import Text

from dlscale.analysis import theme
from dlscale.analysis.finding import Drawing
from dlscale.analysis.message_sizes import (
    DEFAULT,
    KEYS,
    PEER,
    average_bus_bandwidths,
)
from dlscale.analysis.render.figures import figure_of, save
from dlscale.analysis.render.text import as_csv, rows_of
from dlscale.analysis.text import digits, number, plural, size_text
from dlscale.base.files import write_atomically
from dlscale.benchmarks.records.collective_operations import BY_NAME
from dlscale.benchmarks.records.message_sizes import MessageSizeLaunch, MessageSizeRun

LOOKS = theme.LOOKS | {"mpich": ("#D55E00", "^"), "openmpi": ("#E69F00", "v"), "intelmpi": ("#882255", "p")}
TICKS_APART = 16  # sizes are labelled at every 16th part of the next
MANY_DECADES = 3  # of rates: an axis with powers of ten alone


def blocks(
    run: MessageSizeRun, launches: Sequence[MessageSizeLaunch], rows: pd.DataFrame
) -> Iterator[Table | Text]:
    """The whole report: tables, sentences, and what is missing."""
    yield from tables(run, rows)
    if not len(rows):
        yield Text("No launch gave a number.")
    yield from map(Text, sentences(run))
    if missing := failures(run, launches):
        yield Text("Not measured", style="bold")
        yield from (Text(f"  {text}") for text in missing)


def tables(run: MessageSizeRun, rows: pd.DataFrame) -> Iterator[Table | Text]:
    """A table per number of ranks and operation, with its numbered settings and the libraries' averages.

    Shown are the ring and each library at its default and its best setting.
    """
    for (num_ranks, collective), group in rows.groupby(["num_ranks", "collective"], sort=False):
        is_shown = (group["role"] != PEER) | group["tuned"] | group["setting"].str.startswith(DEFAULT)
        own = group[is_shown | (group["failure"] != "")]
        is_peer = own["role"] == PEER
        settings = [_setting(row) if row["role"] == PEER else "" for row in own.to_dict("records")]
        numbers = {name: str(place) for place, name in enumerate(dict.fromkeys(filter(None, settings)), 1)}
        best = own["tuned"].map({True: " *", False: ""})
        rates = own["algbw_gb_per_second"]
        texts = {
            "size": own["message_bytes"].map(size_text).where(~own["message_bytes"].duplicated(), ""),
            "library": (own["backend"] + best).where(is_peer, own["title"]),
            "setting": [numbers.get(name, "") for name in settings],
            "algbw\n[GB/s]": [text or "failed" for text in _numbers(rates)],
            "busbw\n[GB/s]": _numbers(own["busbw_gb_per_second"]),
            "p99\n[us]": _numbers(1e6 * own["p99_seconds"]),
            "of wire\n[%]": _numbers(100 * own["fraction_of_bound"], digits(1)),
            "ring over it": _numbers(own["ring_speedup"]),
        }
        if not run.wire_bytes_per_second:
            del texts["of wire\n[%]"]
        table = Table(box=None, pad_edge=False)
        for name in texts:
            is_text = name in ("size", "library")
            table.add_column(Text(name), justify="left" if is_text else "right", no_wrap=is_text)
        is_last = own["message_bytes"] != own["message_bytes"].shift(-1)
        for *cells, ends in zip(*texts.values(), is_last, strict=True):
            table.add_row(*map(Text, cells))
            if ends:
                table.add_row()
        yield Text(heading(run, str(collective), num_ranks), style="bold")
        yield table
        yield from (Text(f" {place}  {name}", style="dim") for name, place in numbers.items())
        averages = average_bus_bandwidths(group).droplevel("num_ranks").map(number)
        listed = ", ".join(f"{title} {rate}" for title, rate in averages.items())
        yield Text(f"Average bus bandwidth over all sizes, in GB/s: {listed or '-'}\n")


def _numbers(values: pd.Series, write: Callable[[float], str] = number) -> list[str]:
    return ["" if np.isnan(value) else write(value) for value in values]


def _setting(row: Mapping[str, Any]) -> str:
    """A library's setting, with its variables as they are typed on a command line."""
    variables = " ".join(f"{name}={value}" for name, value in row["variables"].items())
    return f"{row['title']}, {row['setting']}" + (f": {variables}" if variables else "")


def heading(run: MessageSizeRun, collective: str, num_ranks: int) -> str:
    """The title of an operation's table or figure."""
    title = BY_NAME[collective].title
    if not run.ranks_per_node:
        return f"{title}, {num_ranks} ranks on one node"
    return f"{title}, {num_ranks} ranks on {num_ranks // run.ranks_per_node} nodes of {run.system}"


def sentences(run: MessageSizeRun) -> Iterator[str]:
    """What the tables do not say: whether the machine was busy, and the wire's rate."""
    if run.busy:
        yield f"The machine was busy: {run.busy}. Rates are too low; of launches in turn ratios hold better."
    yield (
        f"Medians over {plural(run.num_blocks, 'launch')} of each launch's median call. *: the library's best setting "
        "at that size. See docs/ring.md."
    )
    if wire := run.wire_bytes_per_second:
        yield f"of wire: relative to what a node's link carries ({number(1e-9 * wire)} GB/s in each direction)."


def failures(run: MessageSizeRun, launches: Sequence[MessageSizeLaunch]) -> list[str]:
    """Missing libraries, failed launches, and operations that failed at some sizes, each in one sentence."""
    missing = [f"{peer.title}: {peer.unusable}" for peer in run.peers if peer.unusable]
    counts: Counter[str] = Counter()
    for launch in launches:
        where = f"{launch.backend} ({launch.setting}), {launch.num_ranks} ranks, {launch.purpose}"
        if launch.failure:
            counts[f"{where}: {launch.failure}"] += 1
        operations: dict[str, dict[str, None]] = {}
        for cell in launch.failures:
            name = cell.operation + (f" {cell.collective}" if cell.collective != "allreduce" else "")
            operations.setdefault(cell.reason, {})[name] = None
        for reason, names in operations.items():
            counts[f"{where}, {', '.join(names)}: {reason}"] += 1
    return missing + [text if count == 1 else f"{text} ({count} launches)" for text, count in counts.items()]


def as_rows(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows with the stable keys of `dlscale collectives --json`; unknown values are None."""
    return rows_of(rows[list(KEYS)].replace({"failure": {"": None}}))


def as_json(rows: pd.DataFrame) -> dict[str, Any]:
    """All rows."""
    return {"schema": 3, "rows": as_rows(rows)}


def origin(run: MessageSizeRun, launches: Sequence[MessageSizeLaunch]) -> dict[str, str]:
    """Columns that say where a run's numbers are from, whatever order its launches were read in."""
    # What their files have: fields that are newer than a file would change its hash.
    digest = hashlib.sha256(run.model_dump_json(exclude_unset=True).encode() + b"\n")
    for text in sorted(launch.model_dump_json(exclude_unset=True) for launch in launches):
        digest.update(text.encode() + b"\n")
    return {"study": "collectives", "data_hash": digest.hexdigest(), "commit": run.commit}


def write_files(
    run: MessageSizeRun,
    launches: Sequence[MessageSizeLaunch],
    rows: pd.DataFrame,
    folder: Path,
) -> list[Path]:
    """Write the rows to `collectives.csv`, and a figure per number of ranks and operation; nothing without rows.

    Figures are `collectives-<P>r.png`, `.pdf` and `.svg`, of operations other than allreduce
    `collectives-<operation>-<P>r`. Equal records give equal bytes.
    """
    where = origin(run, launches)
    lines = [
        {**row, "variables": " ".join(f"{name}={value}" for name, value in row["variables"].items()), **where}
        for row in as_rows(rows)
    ]
    written: list[Path] = []
    if lines:
        commands = sorted({launch.command for launch in launches})
        rest = f"; and {len(commands) - 3} more" if len(commands) > 3 else ""
        lines[0]["command"] = "; ".join(commands[:3]) + rest
        write_atomically(folder / "collectives.csv", as_csv(pd.DataFrame(lines, dtype=object)), mode=0o644)
        written.append(folder / "collectives.csv")
    measured = rows[rows["median_seconds"].notna()]
    machine = f"{run.node['cpu_model']}, {len(run.cpus)} cores"
    warning = f"busy machine: {run.busy}" if run.busy else ""
    theme.use()
    for (num_ranks, collective), own in measured.groupby(["num_ranks", "collective"], sort=False):
        name = f"collectives-{'' if collective == 'allreduce' else f'{collective}-'}{num_ranks}r"
        title = f"{heading(run, collective, num_ranks)}\n{warning or machine}"
        figure = figure_of(DRAWING, _panels(own), title=title)
        stated = f"commit {run.commit[:12]}; measured {run.started}; data {where['data_hash'][:12]}"
        written += save(figure, folder / name, origin=stated)
    return written


def _panels(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of each panel: libraries at their best settings and, if there were any to choose, at their defaults."""
    peers = rows["role"] == PEER
    is_default = rows["setting"] == DEFAULT
    panels = [rows[~peers | rows["tuned"]].assign(panel="best setting at each size")]
    if (peers & ~is_default).any():
        panels.append(rows[~peers | is_default].assign(panel="default settings"))
    return pd.concat(panels)


def draw(rows: pd.DataFrame, axes: Axes) -> None:
    """Algorithm bandwidth over message size, with intervals."""
    for title, own in rows.groupby("title", sort=False):
        rates = own["algbw_gb_per_second"]
        row = own.iloc[0]
        color, marker = LOOKS.get(row["backend"] if row["role"] == PEER else row["role"], theme.PLAIN)
        errors = theme.lengths(rates, own["algbw_low"], own["algbw_high"])
        axes.errorbar(
            own["message_bytes"], rates, yerr=errors, capsize=2, color=color, marker=marker, label=title
        )
    sizes = sorted(set(rows["message_bytes"]))
    ticks = sizes[:1]
    for size in sizes:
        if size >= TICKS_APART * ticks[-1]:
            ticks.append(size)
    theme.log_axis(axes.xaxis)
    axes.set_xticks(ticks, list(map(size_text, ticks)))
    theme.log_axis(axes.yaxis, base=10)
    spread = np.ptp(np.log10(rows["algbw_gb_per_second"]))
    axes.yaxis.set_major_locator(LogLocator(10, subs=(1.0,) if spread > MANY_DECADES else (1.0, 2.0, 5.0)))
    axes.set(xlabel="message size", ylabel="algorithm bandwidth [GB/s]")
    axes.legend()


DRAWING = Drawing(name="collectives", draw=draw, panels="panel", size=(3.6, 3.2), left=0.6)
