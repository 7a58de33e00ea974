"""The cost of a launch before it trains, by backend: a separate table, because throughput never includes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from dlscale.analysis.declare import Column, TableOf, Tags, shown_number
from dlscale.analysis.finding import Finding
from dlscale.analysis.findings.small_print import solution_origin, span
from dlscale.analysis.form import SCREEN, Form
from dlscale.analysis.launches import CellLaunches, good_launches
from dlscale.analysis.measured import Measured
from dlscale.analysis.plots import Axis, Figure, Plot, Stack
from dlscale.analysis.records import attributes, slowest_in_phase
from dlscale.benchmarks.records.record import Phases

PHASES = ("start_up", "import_backend", "connect", "gates", "first_step")
PHASE_LABELS = ("start", "import", "connect", "gates", "first step")
MAX_PANELS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class StartUp:
    """Seconds of the slowest rank, medians over `num_launches`; None for a phase that no launch reached."""

    framework: str
    backend: str
    num_ranks: int
    num_servers: int
    num_launches: int
    seconds: dict[str, float | None]  # by phase

    @property
    def known(self) -> list[float]:
        return [seconds for seconds in self.seconds.values() if seconds is not None]

    @property
    def row(self) -> dict[str, Any]:
        phases = {f"{phase}_seconds": seconds for phase, seconds in self.seconds.items()}
        return {**attributes(self, "framework backend num_ranks num_servers num_launches"), **phases}


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
    return sum(start.known) if len(start.known) == len(PHASES) else None


PHASES_EXPLAINED = (
    "Start: from mpiexec to the end of the framework's import and of MPI_Init; import: what the backend needs besides; "
    "connect: until the ranks have found each other; gates: checks of correctness, tracing and compilation among them; "
    "first step: of the trainer that is measured."
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
    data=lambda start: start.row,
    legend=f"{PHASES_EXPLAINED} Medians over launches of the slowest rank's seconds.",
    tags=lambda start: Tags(framework=start.framework, backend=start.backend),
    group=lambda start: start.framework,
)


def start_up_figure(study: Measured, framework: str, form: Form = SCREEN) -> Figure | None:
    """The phases of the starts of one framework, stacked, a panel per backend; None if none of them is known."""
    own = [
        start
        for start in FINDING.of(study)
        if start.framework == framework
        and sum(start.known) > 0
        and (not form.backends or start.backend in form.backends)
    ]
    none_first = sorted(own, key=lambda start: start.backend != "none")
    panels = {name: list(group) for name, group in groupby(none_first, key=_panel)}
    if not panels:
        return None
    shown, left_out = list(panels)[:MAX_PANELS], list(panels)[MAX_PANELS:]
    ranks = sorted({start.num_ranks for start in own})
    x = Axis(
        title="ranks",
        kind="log",
        ticks=tuple((float(count), str(count)) for count in ranks),
        low=ranks[0] * 2**-0.6,
        high=ranks[-1] * 2**0.6,
    )
    y = Axis(title="time [s]", low=0, high=1.12 * max(sum(start.known) for start in own))
    return Figure(
        name="start-up",
        title=f"Start of a launch, {framework} on {', '.join(study.provenance.systems)}",
        subtitle="Seconds before training, of the slowest rank",
        small_print=(" ".join(_words(own, left_out)), solution_origin(study.provenance)),
        panels=tuple(
            Plot(
                name=f"start-up-{name}",
                title=name,
                says="",
                x=x,
                y=y,
                series=(),
                stacks=tuple(map(_stack, panels[name])),
                layers=PHASE_LABELS,
            )
            for name in shown
        ),
        rows=[start.row for start in own if _panel(start) in shown],
        wide=len(shown) > 3,
        shared=True,
    )


def _panel(start: StartUp) -> str:
    return start.backend + (f" + {start.num_servers}" if start.num_servers else "")


def _stack(start: StartUp) -> Stack:
    total, whole = sum(start.known), len(start.known) == len(PHASES)
    label = f"{'' if whole else '>'}{total:.{1 if total < 100 else 0}f}"
    return Stack(
        x=float(start.num_ranks),
        heights=tuple(seconds or 0.0 for seconds in start.seconds.values()),
        label=label,
    )


def _words(starts: Sequence[StartUp], left_out: Sequence[str]) -> Iterator[str]:
    yield (
        f"Each phase is the median over n = {span([start.num_launches for start in starts])} launches of the slowest "
        "rank's seconds. Ranks may be slowest in different phases, so a stack may be higher than any launch was. "
        f"{PHASES_EXPLAINED} Throughput contains none of this."
    )
    if any(len(start.known) < len(PHASES) for start in starts):
        yield "> before a number: a phase is not known for all ranks."
    if any(start.num_servers for start in starts):
        yield "+ 1: servers besides the ranks."
    if left_out:
        yield f"Not shown: {', '.join(left_out)} (see --json)."


def _files(study: Measured, form: Form) -> Iterator[tuple[str, Figure]]:
    for framework in sorted({start.framework for start in FINDING.of(study)}):
        if figure := start_up_figure(study, framework, form):
            yield f"start-up-{framework}", figure


FINDING = Finding(
    name="start_up",
    title="Start-up",
    compute=lambda study: start_ups(study.launches),
    table=STARTUP,
    files=_files,
)
FINDINGS = (FINDING,)
