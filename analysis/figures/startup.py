"""Start-up time of a launch over ranks: its phases, stacked for each backend and number of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import log2
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator

from dlscale.analysis.figures.drawing import DOUBLE_COLUMN_INCHES, RIM, SINGLE_COLUMN_INCHES
from dlscale.analysis.figures.layout import Captioned, figure_with_axes
from dlscale.analysis.findings.small_print import span
from dlscale.analysis.findings.startup import PHASES, StartUp, to_start_up_row
from dlscale.analysis.form import SCREEN, Form
from dlscale.analysis.provenance import Provenance

MAX_PANELS = 8
NAMES = {
    "start_up": "start and import",
    "import_backend": "import of backend",
    "connect": "rendezvous",
    "gates": "gates",
    "first_step": "first step",
}
# From the colour map "cividis", uniform for colour-blind readers too; dark to light in the order of the phases.
COLORS = dict(zip(PHASES, ("#00224E", "#434E6C", "#7D7C78", "#BCAF6F", "#FEE838"), strict=True))
_WIDTH = 0.7  # bar width; 1 is the distance to the nearest other number of ranks


def draw(
    framework: str, start_ups: Sequence[StartUp], provenance: Provenance, form: Form = SCREEN
) -> tuple[Captioned, list[dict[str, Any]]] | None:
    """The figure of one framework and the rows behind it; None if none of its phases is known."""
    own = [
        start_up
        for start_up in start_ups
        if start_up.framework == framework
        and total(start_up) > 0
        and (not form.backends or start_up.backend in form.backends)
    ]
    backends = list(dict.fromkeys(map(_label, sorted(own, key=_order))))
    if not backends:
        return None
    shown = backends[:MAX_PANELS]
    figure, axes = figure_with_axes(
        form=form,
        width=SINGLE_COLUMN_INCHES if len(shown) <= 3 else DOUBLE_COLUMN_INCHES,
        num_panels=len(shown),
        title=f"start of a launch, {framework} on {', '.join(provenance.systems)}",
        warning="",
        subtitle="seconds before training, of the slowest rank",
        handles=_handles(),
        small_print=_small_print(own, backends[MAX_PANELS:], provenance),
    )
    size = 7.5 if len(shown) <= 5 else 6.5
    for panel, backend in zip(axes, shown, strict=True):
        members = sorted(
            (start_up for start_up in own if _label(start_up) == backend),
            key=lambda start_up: start_up.num_ranks,
        )
        _draw_one(panel, members)
        panel.set_title(backend, loc="left", fontsize=size)
        panel.set_xlabel("ranks")
        panel.grid(visible=False, axis="x")
        panel.tick_params(axis="x", length=0)
    highest = max(total(start_up) for start_up in own)
    axes[0].set_ylim(0, 1.12 * highest)
    axes[0].yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes[0].set_ylabel("time [s]")
    _rank_axis(axes, sorted({start_up.num_ranks for start_up in own}))
    return figure, [to_start_up_row(start_up) for start_up in own if _label(start_up) in shown]


def total(start_up: StartUp) -> float:
    """Total seconds of the known phases."""
    return sum(seconds for seconds in start_up.seconds.values() if seconds is not None)


def _draw_one(axes: Axes, members: Sequence[StartUp]) -> None:
    """Draw a bar per number of ranks on a log2 axis, with its phases stacked in chronological order."""
    places = [log2(start_up.num_ranks) for start_up in members]
    width = _WIDTH * min((after - before for before, after in pairwise(places)), default=1.0)
    for start_up, place in zip(members, places, strict=True):
        bottom = 0.0
        for phase in PHASES:
            height = start_up.seconds[phase] or 0.0
            axes.bar(
                place, height, width, bottom=bottom, color=COLORS[phase], edgecolor="white", linewidth=0.4
            )
            bottom += height
        whole = None not in start_up.seconds.values()
        axes.annotate(
            f"{'' if whole else '>'}{bottom:.{1 if bottom < 100 else 0}f}",
            (place, bottom),
            xytext=(0, 2),
            textcoords="offset points",
            ha="center",
            fontsize=6,
            color=RIM,
        )


def _rank_axis(axes: Sequence[Axes], ranks: Sequence[int]) -> None:
    """Set a base-2 axis of ranks with plain numbers, the same in all panels."""
    axes[0].set_xlim(log2(ranks[0]) - 0.6, log2(ranks[-1]) + 0.6)
    axes[0].xaxis.set_major_locator(FixedLocator([log2(count) for count in ranks]))
    axes[0].xaxis.set_major_formatter(FixedFormatter([str(count) for count in ranks]))


def _handles() -> list[Line2D]:
    return [
        Line2D([], [], color=COLORS[phase], linewidth=5, solid_capstyle="butt", label=NAMES[phase])
        for phase in PHASES
    ]


def _label(start_up: StartUp) -> str:
    return start_up.backend + (f" + {start_up.num_servers}" if start_up.num_servers else "")


def _order(start_up: StartUp) -> tuple[object, ...]:
    return start_up.backend != "none", start_up.backend, start_up.num_servers, start_up.num_ranks


def _small_print(start_ups: Sequence[StartUp], left_out: Sequence[str], provenance: Provenance) -> list[str]:
    launches = span([start_up.num_launches for start_up in start_ups])
    text = [
        f"Each phase is the median over n = {launches} launches of the slowest rank's seconds. Ranks may be slowest in "
        "different phases, so a stack may be higher than any launch was. Start and import: from mpiexec to the end of "
        "the framework's import and of MPI_Init. Gates: checks of correctness, tracing and "
        "compilation among them. First step: of the trainer that is measured. "
        "Throughput contains none of this."
    ]
    if any(None in start_up.seconds.values() for start_up in start_ups):
        text.append("> before a number: a phase is not known for all ranks.")
    if any(start_up.num_servers for start_up in start_ups):
        text.append("+ 1: servers besides the ranks.")
    if left_out:
        text.append(f"Not shown: {', '.join(left_out)} (see --json).")
    commits = ", ".join(commit[:12] for commit in provenance.commits)
    where = f"Study {', '.join(provenance.studies)}; commit {commits}; data {provenance.data_hash[:12]}."
    return [" ".join(text), where]
