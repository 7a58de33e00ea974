"""Profiles: where the time of a step of one rank goes, and how much of an exchange backpropagation could hide.

Control `profile` stamps every other step. Each moment is the median over a launch's stamped steps, and over launches
their median. An exchange can begin with the first gradient, and what is computed after that can hide it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from dlscale.analysis import theme
from dlscale.analysis.finding import COUNT, MILLISECONDS, PLACE, Column, Drawing, Finding, frame_of
from dlscale.analysis.load import Study
from dlscale.analysis.statistics import NONE, Interval, median_interval
from dlscale.benchmarks.records.record import StepProfile

MILLI = MILLISECONDS | {"write": "{:.3g}".format}
TIMES = {  # of each part its label and meaning
    "step_seconds": ("step", "whole step without stamps"),
    "fetching_seconds": ("fetch", "until the local batch is there"),
    "forward_seconds": ("forward", "all forward passes"),
    "backward_seconds": ("backward", "all backward passes"),
    "update_seconds": ("update", "the rest of the step"),
    "first_ready_seconds": (
        "first gradient",
        "from the start of the step until the first gradient is complete",
    ),
    "median_ready_seconds": ("half of the bytes", "until gradients with half of the bytes are complete"),
    "last_ready_seconds": ("last gradient", "until the last gradient is complete"),
    "hideable_seconds": ("can hide", "from the first to the last gradient: the most that can be hidden"),
}


def profiles(study: Study) -> pd.DataFrame:
    """One row per cell with a profile; for the drawing, `moments` are the ends of passes, `ready` of gradients."""
    good = study.good[study.good["control"] == "profile"]
    rows = []
    for key, own in good.groupby("cell", sort=False):
        found = [profile for number in own["number"] if (profile := study.records[number].profile)]
        if found:
            rows.append({"cell": key, **_parts(found)})
    return frame_of(rows, "cell", *NONE.columns("stamps_ratio"), "moments", "ready", "shares")


def _parts(found: Sequence[StepProfile]) -> dict[str, Any]:
    gradients = found[0].gradients
    complete = np.cumsum([gradient.num_bytes for gradient in gradients])
    half = int(np.searchsorted(complete, complete[-1] / 2))
    moments = np.median([_moments(one) for one in found], axis=0)
    ready = np.median([[gradient.ready.median for gradient in one.gradients] for one in found], axis=0)
    # A pass begins with the batch, or when the pass before it has ended.
    lengths = np.median([np.diff(_moments(one)).reshape(-1, 2).sum(axis=0) for one in found], axis=0)
    update = float(np.median([one.update.median for one in found]))
    hideable = np.median([one.gradients[-1].ready.median - one.gradients[0].ready.median for one in found])
    return {
        "num_launches": len(found),
        "num_steps": sum(len(one.stamped_seconds) for one in found),
        "num_gradients": len(gradients),
        "num_bytes": int(complete[-1]),
        "step_seconds": float(np.median([np.median(one.plain_seconds) for one in found])),
        "fetching_seconds": float(moments[0]),
        "forward_seconds": float(lengths[0]),
        "backward_seconds": float(lengths[1]),
        "update_seconds": update,
        "first_ready_seconds": float(ready[0]),
        "median_ready_seconds": float(ready[half]),
        "last_ready_seconds": float(ready[-1]),
        "hideable_seconds": float(hideable),
        **_stamps(found).columns("stamps_ratio"),
        "moments": [0.0, *moments, moments[-1] + update],
        "ready": ready,
        "shares": complete / complete[-1],
    }


def _moments(profile: StepProfile) -> list[float]:
    """The end of fetching and, in turns, of each forward and backward pass."""
    ends = [end for pair in zip(profile.forward, profile.backward, strict=True) for end in pair]
    return [profile.fetched.median, *(end.median for end in ends)]


def _stamps(found: Sequence[StepProfile]) -> Interval:
    """What stamps cost: the median over rounds of four steps, two of either kind, with its interval.

    Rounds of one launch are neighbours, so the interval is that of these launches, not of further ones.
    """
    ratios: list[float] = []
    for one in found:
        plain, stamped = np.array(one.plain_seconds), np.array(one.stamped_seconds)
        if len(plain) != len(stamped) or len(plain) % 2 or not len(plain):  # no rounds: all together
            ratios.append(float(stamped.mean() / plain.mean()))
        else:
            ratios += (stamped.reshape(-1, 2).sum(axis=1) / plain.reshape(-1, 2).sum(axis=1)).tolist()
    return median_interval(ratios)


def draw_timeline(rows: pd.DataFrame, axes: theme.Axes) -> None:
    """A step's passes above, and below them the share of the gradients' bytes that is complete."""
    for lane, row in enumerate(rows.to_dict("records")):
        ends, top = 1e3 * np.array(row["moments"]), -2.5 * lane
        names = ["fetch", *["forward", "backward"] * ((len(ends) - 3) // 2), "update"]
        for name, begin, end in zip(names, ends, ends[1:], strict=False):
            color = theme.PHASES[("fetch", "forward", "backward", "update").index(name) * 2]
            axes.barh(top, end - begin, 0.8, begin, color=color)
            if end - begin > 0.08 * ends[-1]:
                axes.text(
                    (begin + end) / 2,
                    top,
                    f"{name}\n{end - begin:.3g} ms",
                    ha="center",
                    va="center",
                    fontsize=7,
                )
        ready = 1e3 * np.array([0.0, *row["ready"], ends[-1] / 1e3])
        shares = top - 1.4 + 0.8 * np.array([0.0, *row["shares"], 1.0])
        axes.fill_between(ready, top - 1.4, shares, step="post", color=theme.KEPT, alpha=0.5)
    places = [-2.5 * lane - off for lane in range(len(rows)) for off in (0.0, 1.0)]
    axes.set_yticks(places, ["passes", "bytes of\ngradients\ncomplete"] * len(rows))
    axes.grid(visible=False, axis="y")
    axes.set(xlim=(0, None), xlabel="time in a step of one rank [ms]")


FINDING = Finding(
    name="profile",
    title="Inside a step",
    compute=profiles,
    columns={
        **PLACE,
        "num_bytes": Column("bytes of all gradients", "gradients", "MB", factor=1e-6),
        **{name: Column(about, label, **MILLI) for name, (label, about) in TIMES.items()},
        "stamps_ratio": Column("steps with stamps over steps without, in turns", "stamps"),
        "num_launches": Column("launches with a profile"),
        "num_steps": Column("stamped steps of all launches", "steps", write=COUNT),
        "num_gradients": Column("tensors of gradients"),
    },
    drawings=(
        Drawing(
            name="timeline",
            draw=draw_timeline,
            size=(5.5, 2.2),
            left=0.8,
            about="A step of one rank, in time.",
        ),
    ),
)
