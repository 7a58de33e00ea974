"""Step times of every case: the distribution over the windows of its launches, and how much launches differ."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pandas as pd

from dlscale.analysis import theme
from dlscale.analysis.finding import COUNT, PLACE, Column, Drawing, Finding, on_most_ranks
from dlscale.analysis.load import Study
from dlscale.analysis.text import digits, plural

QUANTILES = {"p5": 0.05, "p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
MOST_POINTS = 1000  # of a curve; more windows are thinned evenly
WIDE = 4  # ratio of the slowest to the fastest window; above, the axis is logarithmic


def launches(study: Study) -> pd.DataFrame:
    """One row per cell with a number; milliseconds per step.

    `ordered` are up to MOST_POINTS of its windows, ascending; `relative_rates` are its launches' throughputs over their
    median, minus 1. Changes common to all cells come from the machine, and cancel in paired ratios.
    """
    cells = study.trained[study.trained["num_launches"] > 0]
    windows = study.windows[study.windows["cell"].isin(cells.index)]
    by_cell = windows.groupby("cell")["step_seconds"]
    quantiles = 1e3 * by_cell.quantile([*QUANTILES.values()]).unstack()
    rates = study.good.groupby("cell")["samples_per_second"]
    frame = pd.DataFrame({"num_windows": by_cell.size(), "num_launches": cells["num_launches"]}, cells.index)
    for name, share in QUANTILES.items():
        frame[f"{name}_milliseconds"] = quantiles.get(share, pd.Series(dtype=float))
    frame["ordered"] = by_cell.agg(_thinned) if len(windows) else None
    frame["relative_rates"] = rates.agg(lambda own: (own / own.median() - 1).tolist()) if len(cells) else None
    return frame.rename_axis("cell").reset_index()


def _thinned(seconds: pd.Series) -> list[float]:
    """Up to MOST_POINTS milliseconds, each with as many between it and the next, and the slowest."""
    chosen = np.linspace(0, len(seconds) - 1, min(len(seconds), MOST_POINTS)).round().astype(int)
    ordered: list[float] = (1e3 * np.sort(seconds)[chosen]).tolist()
    return ordered


def sentence(frame: pd.DataFrame) -> str:
    """How much launches of one case differ; nothing of a single launch each."""
    rates = np.array([rate for own in frame["relative_rates"] for rate in own])
    if not len(rates) or frame["num_launches"].max() < 2:
        return ""
    write = digits(1, sign="+")
    low, high = (write(100 * value) for value in np.percentile(rates, [5, 95]))
    return f"Nine of ten of {plural(len(rates), 'launch')} are within {low} % and {high} % of the median of their case."


def draw(rows: pd.DataFrame, axes: theme.Axes) -> None:
    """The share of windows whose steps took at most a time, a curve per backend."""
    for _, own, look in theme.curves(rows):
        for row, line in zip(own.to_dict("records"), cycle(("-", "--", ":"))):
            ordered = row["ordered"]
            shares = 100 * np.arange(len(ordered) + 1) / len(ordered)
            style = {"color": look["color"], "linestyle": line, "label": row["name"]}
            axes.step([ordered[0], *ordered], shares, where="post", **style)
    ends = [own[place] for own in rows["ordered"] for place in (0, -1)]
    if max(ends) > WIDE * min(ends):
        theme.log_axis(axes.xaxis)
    axes.set(
        ylim=(0, 103),
        xlabel=f"time per step on {plural(rows['num_ranks'].iloc[0], 'rank')} [ms]",
        ylabel="windows that took no longer [%]",
    )
    axes.legend()


FINDING = Finding(
    name="launches",
    title="Step times and launches",
    compute=launches,
    columns={
        **PLACE,
        **{
            f"{name}_milliseconds": Column(
                f"{about} of the windows' times per step, of the slowest rank", label, "ms"
            )
            for name, about, label in (
                ("p5", "5th percentile", "5 %"),
                ("p50", "median", "median"),
                ("p95", "95th percentile", "95 %"),
                ("p99", "99th percentile", "99 %"),
                ("max", "longest", "longest"),
            )
        },
        "num_windows": Column("windows after the warm-up, of all launches", "windows", write=COUNT),
        "num_launches": Column("launches that gave a number", "n", write=COUNT),
    },
    sentence=sentence,
    drawings=(
        Drawing(
            name="ecdf",
            draw=draw,
            rows=lambda frame: on_most_ranks(frame[frame["control"] == "train"]),
            about="Distribution of the time per step over all windows, of the slowest rank.",
        ),
    ),
)
