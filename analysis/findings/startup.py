"""The cost of a launch before it trains, by backend: a separate table, because throughput never includes it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlscale.analysis.declare import Column, TableOf, Tags, shown_number
from dlscale.analysis.finding import Finding
from dlscale.analysis.launches import CellLaunches, good_launches
from dlscale.analysis.records import slowest_in_phase
from dlscale.benchmarks.records.record import Phases


def to_start_up_row(start: StartUp) -> dict[str, Any]:
    """Seconds of the slowest rank before it trains, medians over launches; None for a phase that none reached."""
    return {
        "framework": start.framework,
        "backend": start.backend,
        "num_ranks": start.num_ranks,
        "num_servers": start.num_servers,
        "num_launches": start.num_launches,
        **{f"{phase}_seconds": seconds for phase, seconds in start.seconds.items()},
    }


PHASES = ("start_up", "import_backend", "connect", "gates", "first_step")
PHASE_LABELS = ("start", "import", "connect", "gates", "first step")


@dataclass(frozen=True, slots=True, kw_only=True)
class StartUp:
    """Seconds of the slowest rank, medians over `num_launches`; None for a phase that no launch reached."""

    framework: str
    backend: str
    num_ranks: int
    num_servers: int
    num_launches: int
    seconds: dict[str, float | None]  # by phase


def start_ups(measured: Iterable[CellLaunches]) -> list[StartUp]:
    """One per framework, backend, ranks and servers, of launches that gave numbers."""
    groups: dict[tuple[str, str, int, int], list[Phases]] = {}
    for launches in good_launches(measured, controls={"train"}):
        cell = launches.cell
        key = (cell.framework, cell.backend, cell.num_ranks, cell.num_servers)
        groups.setdefault(key, []).extend(record.phases for record in launches.records)
    return [
        StartUp(
            framework=framework,
            backend=backend,
            num_ranks=num_ranks,
            num_servers=num_servers,
            num_launches=len(phases),
            seconds={name: _median(phases, name) for name in PHASES},
        )
        for (framework, backend, num_ranks, num_servers), phases in sorted(groups.items())
    ]


def _median(launches: Iterable[Phases], name: str) -> float | None:
    """The median over launches of the slowest rank; None if every launch lacks a rank's time."""
    slowest = [seconds for phases in launches if (seconds := slowest_in_phase(phases, name)) is not None]
    return float(np.median(slowest)) if slowest else None


def _backend(start: StartUp) -> str:
    return start.backend + (f" + {start.num_servers} servers" if start.num_servers else "")


def _seconds_of(phase: str, label: str) -> Column[StartUp]:
    return Column(label, lambda start: shown_number(start.seconds[phase], "{:.2f}".format), unit="s")


def _sum(start: StartUp) -> float | None:
    known = [seconds for seconds in start.seconds.values() if seconds is not None]
    return sum(known) if len(known) == len(PHASES) else None


LEGEND = (
    "Start: from mpiexec to the end of the framework's import and of MPI_Init; import: what the backend needs besides; "
    "connect: until the ranks have found each other; gates: checks of correctness, tracing and compilation among them; "
    "first step: of the trainer that is measured. Medians over launches of the slowest rank's seconds."
)
STARTUP = TableOf[StartUp](
    name="starts",
    caption="What a launch costs before it trains",
    columns=(
        Column("framework", lambda start: start.framework, numeric=False),
        Column("backend", _backend, numeric=False),
        Column("ranks", lambda start: start.num_ranks),
        *map(_seconds_of, PHASES, PHASE_LABELS),
        Column("sum", lambda start: shown_number(_sum(start), "{:.2f}".format), unit="s"),
        Column("launches", lambda start: start.num_launches),
    ),
    data=to_start_up_row,
    legend=LEGEND,
    tags=lambda start: Tags(framework=start.framework, backend=start.backend),
    group=lambda start: start.framework,
)

FINDING = Finding(
    name="start_up",
    title="Start-up",
    compute=lambda study: start_ups(study.launches),
    table=STARTUP,
)
FINDINGS = (FINDING,)
