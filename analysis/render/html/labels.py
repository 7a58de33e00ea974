"""Labels on the page: titles of trainings, notes on intervals, and times."""

from __future__ import annotations

from dlscale.analysis.families import Family
from dlscale.analysis.render.tables import workload_title
from dlscale.analysis.render.text import plural
from dlscale.analysis.statistics import LEVEL, Interval

EVIDENCE = {
    "measured": "measured: real training, real ranks, real nodes",
    "emulated": "emulated: real ranks, but nodes that share a machine, a shaped network, or replaced compute",
    "simulated": "simulated: predicted by a model, nothing was run",
    "published": "published: taken from a paper",
}


def training_title(family: Family) -> str:
    """`HEP-CNN tiny, torch, weak scaling on local`."""
    name = f"{workload_title(family.workload)} {family.preset}, {family.framework}"
    return f"{name}, {family.scaling_mode} scaling on {family.system}"


def interval_note(interval: Interval, unit: str) -> str:
    """Level, method and n of an interval, or why there is none; `unit` is what n counts: `launch` or `block`."""
    if interval.method == "base case":
        return f"the base case: 1 by definition, n = {plural(interval.n, 'launch')}"
    count = plural(interval.n, unit)
    if interval.low is None:
        return f"no interval, {count} are too few" if interval.n != 1 else f"no interval, {count} is too few"
    digits = 0 if interval.level == LEVEL else 1
    return f"{100 * interval.level:.{digits}f} % interval, {interval.method}, n = {count}"
