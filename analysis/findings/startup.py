"""What a launch costs before it trains, by backend: a table of its own, for throughput never contains it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.markup import escape

from dlscale.analysis.records import why_unusable
from dlscale.analysis.render.text import Grid
from dlscale.benchmarks.records.record import Phases, Record


def to_start_up_row(one: StartUp) -> dict[str, Any]:
    """Seconds of the slowest rank before it trains, medians over launches; None for a phase that none reached."""
    return {
        "framework": one.framework,
        "backend": one.backend,
        "num_ranks": one.num_ranks,
        "num_servers": one.num_servers,
        "num_launches": one.num_launches,
        **{f"{phase}_seconds": seconds for phase, seconds in one.seconds.items()},
    }


PHASES = ("start_up", "import_backend", "connect", "gates", "first_step")
STARTUP_COLUMNS = (
    *("framework", "backend", "ranks", "start\n[s]", "import\n[s]", "connect\n[s]", "gates\n[s]"),
    *("first step\n[s]", "n"),
)
STARTUP_LEGEND = (
    "Start: from mpiexec to the end of the framework's import and of MPI_Init; import: what the backend needs besides; "
    "connect: until the ranks have found each other; gates: checks of correctness, tracing and compilation among them; "
    "first step: of the trainer that is measured. Medians over n launches of the slowest rank's seconds."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartUp:
    """Seconds of the slowest rank, medians over `num_launches`; None for a phase that no launch reached."""

    framework: str
    backend: str
    num_ranks: int
    num_servers: int
    num_launches: int
    seconds: dict[str, float | None]  # by phase


def start_ups(records: Iterable[Record]) -> list[StartUp]:
    """One per framework, backend, ranks and servers, of launches that gave numbers."""
    groups: dict[tuple[str, str, int, int], list[Phases]] = {}
    for record in records:
        cell = record.case.cell
        if cell.control == "train" and why_unusable(record) is None:
            key = (cell.framework, cell.backend, cell.num_ranks, cell.num_servers)
            groups.setdefault(key, []).append(record.phases)
    return [
        StartUp(
            framework=framework,
            backend=backend,
            num_ranks=num_ranks,
            num_servers=num_servers,
            num_launches=len(phases),
            seconds={name: _median(getattr(one, name) for one in phases) for name in PHASES},
        )
        for (framework, backend, num_ranks, num_servers), phases in sorted(groups.items())
    ]


def render_startup(found: Iterable[StartUp]) -> Iterator[RenderableType]:
    """A table with a section per framework; nothing without launches."""
    sections = []
    for _, group in groupby(found, key=lambda one: one.framework):
        cells: list[tuple[str, ...]] = []
        previous = ""
        for one in group:
            label = one.backend + (f" + {one.num_servers}" if one.num_servers else "")
            cells.append(
                (one.framework if not cells else "", "" if label == previous else label, *_numbers(one))
            )
            previous = label
        sections.append(cells)
    if not sections:
        return
    yield "[bold]What a launch costs before it trains[/bold]"
    yield Grid(STARTUP_COLUMNS, sections)
    yield f"[dim]{escape(STARTUP_LEGEND)}[/dim]"
    yield ""


def _numbers(one: StartUp) -> Iterator[str]:
    yield str(one.num_ranks)
    for name in PHASES:
        seconds = one.seconds[name]
        yield "-" if seconds is None else f"{seconds:.2f}"
    yield str(one.num_launches)


def _median(launches: Iterable[list[float | None]]) -> float | None:
    """Over launches, of the slowest rank; None where every launch lacks a rank's time."""
    slowest = []
    for ranks in launches:
        known = [seconds for seconds in ranks if seconds is not None]
        if known and len(known) == len(ranks):
            slowest.append(max(known))
    return float(np.median(slowest)) if slowest else None
