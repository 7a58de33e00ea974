"""The cost of a launch outside of its windows: separate, because throughput never includes it.

Ranks may be slowest in different phases, so a sum may be more than any launch took.
"""

from __future__ import annotations

import pandas as pd

from dlscale.analysis import theme
from dlscale.analysis.attempts import PHASES
from dlscale.analysis.finding import COUNT, PLACE, Column, Drawing, Finding
from dlscale.analysis.load import Study
from dlscale.analysis.text import digits

ABOUT = {  # label and meaning of each phase
    "start_up": ("start", "from mpiexec to the end of the framework's import and of MPI_Init"),
    "import_backend": ("import", "further imports of the backend"),
    "connect": ("connect", "until the ranks have found each other"),
    "gates": ("gates", "checks of correctness, with tracing and compilation"),
    "first_step": ("first step", "of the trainer that is measured"),
}
SECONDS = [f"{phase}_seconds" for phase in ABOUT]  # before training


def start_ups(study: Study) -> pd.DataFrame:
    """One row per training that gave a number: medians over launches of the slowest rank's seconds.

    A phase that a rank of every launch did not reach is missing, and so is the sum.
    """
    launches = study.good[study.good["control"] == "train"].groupby("cell")
    frame = launches[[f"{phase}_seconds" for phase in PHASES]].median()
    frame["total_seconds"] = frame[SECONDS].sum(axis=1, skipna=False)
    return frame.assign(num_launches=launches.size()).reset_index()


def draw_phases(rows: pd.DataFrame, axes: theme.Axes) -> None:
    """The phases on top of each other, at each number of ranks a bar per backend."""
    names = list(dict.fromkeys(rows["name"]))
    step = 0.8 / len(names)
    place = rows["name"].map({name: step * (k - (len(names) - 1) / 2) for k, name in enumerate(names)})
    low, high = (rows["num_ranks"] * 2 ** (place + half * step) for half in (-0.45, 0.45))
    below = pd.Series(0.0, rows.index)
    for phase, name, color in zip(ABOUT, SECONDS, theme.PHASES, strict=False):
        height = rows[name].fillna(0)
        axes.bar(low, height, high - low, below, align="edge", color=color, label=ABOUT[phase][0])
        below += height
    for name, x, y in zip(rows["name"], (low * high) ** 0.5, below, strict=True):
        axes.text(x, y, f" {name}", rotation=90, ha="center", va="bottom", fontsize=6)
    theme.rank_axis(axes, rows)
    axes.set_xlim(low.min() / 1.1, high.max() * 1.1)
    axes.set_ylim(0, max(axes.get_ylim()[1], 1.5 * below.max()))  # room for names and legend; panels share it
    axes.set_ylabel("time before training [s]")
    axes.legend(ncols=3, loc="upper left")


FINDING = Finding(
    name="start_up",
    title="Start-up",
    compute=start_ups,
    columns={
        **PLACE,
        "num_servers": Column("servers in addition to the ranks"),
        **{
            f"{phase}_seconds": Column(about, label, "s", write=digits(2))
            for phase, (label, about) in ABOUT.items()
        },
        "total_seconds": Column("sum of the phases", "sum", "s", write=digits(2)),
        "audits_seconds": Column(
            "replays of steps between and after the windows", "audits", "s", write=digits(2)
        ),
        "num_launches": Column("launches that gave a number", "launches", write=COUNT),
    },
    drawings=(
        Drawing(
            name="start-up",
            draw=draw_phases,
            rows=lambda frame: frame[frame[SECONDS].sum(axis=1) > 0],
            about="Time before training, by phase: the slowest rank's, median launch.",
        ),
    ),
)
