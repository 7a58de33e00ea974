"""How the page names things: titles of trainings, filter tags of cells, values with their intervals, times."""

from __future__ import annotations

from datetime import UTC, datetime

from dlscale.analysis.families import Family
from dlscale.analysis.render.html.model import Tags
from dlscale.analysis.render.text import number, percent
from dlscale.analysis.statistics import LEVEL, Interval
from dlscale.benchmarks.records.record import Cell
from dlscale.models import NAMES, load_workload


def tags_of(cell: Cell) -> Tags:
    """What the filters know a cell by."""
    return Tags(workload=cell.workload, framework=cell.framework, backend=cell.backend)


EVIDENCE = {
    "measured": "measured: real training, real ranks, real nodes",
    "emulated": "emulated: real ranks, but nodes that share a machine, a shaped network, or replaced compute",
    "simulated": "simulated: predicted by a model, nothing was run",
    "published": "published: taken from a paper",
}
CONTROLS = {
    "synthetic": "synthetic data",
    "loader": "loader only",
    "exchange": "exchange only",
    "alone": "alone",
    "whole_machine": "whole machine",
}


def workload_title(name: str) -> str:
    """`ResNet-50` of `resnet50`; a name that is not ours stays as it is."""
    return load_workload(name).title if name in NAMES else name


def training_title(family: Family) -> str:
    """`HEP-CNN tiny, torch, weak scaling on local`."""
    name = f"{workload_title(family.workload)} {family.preset}, {family.framework}"
    return f"{name}, {family.scaling_mode} scaling on {family.system}"


def plural(count: int, noun: str) -> str:
    """`1 rank`, `8 ranks`, `2 launches`."""
    return f"{count} {noun}{'' if count == 1 else 'es' if noun.endswith('ch') else 's'}"


def listed(words: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1]))) if words else ""


def interval_note(interval: Interval, unit: str) -> str:
    """Level, method and n of an interval, or why there is none; `unit` is what it counts: `launch` or `block`."""
    if interval.method == "base case":
        return f"the base case: 1 by definition, n = {plural(interval.n, 'launch')}"
    count = plural(interval.n, unit)
    if interval.low is None:
        return f"no interval, {count} are too few" if interval.n != 1 else f"no interval, {count} is too few"
    digits = 0 if interval.level == LEVEL else 1
    return f"{100 * interval.level:.{digits}f} % interval, {interval.method}, n = {count}"


def share_text(interval: Interval) -> str:
    """`4.1 % [3.0, 5.2]`: a share of the ideal speed, never -0.0."""
    center = f"{_points(interval.center)} %"
    if interval.low is None or interval.high is None:
        return center
    return f"{center} [{_points(interval.low)}, {_points(interval.high)}]"


def efficiency_text(interval: Interval) -> str:
    """`93 % [91, 95]`, and `unpaired` or `no interval` where that is so."""
    flaws = [] if interval.low is not None else ["no interval"]
    flaws += ["unpaired"] if "unpaired" in interval.method else []
    return percent(interval) + (f" ({', '.join(flaws)})" if flaws else "")


def milliseconds_text(interval: Interval | None) -> str:
    """`12.3 [12.0, 12.6]`; "-" where it is not known."""
    if interval is None:
        return "-"
    if interval.low is None or interval.high is None:
        return number(interval.center)
    return f"{number(interval.center)} [{number(interval.low)}, {number(interval.high)}]"


def start_time(started_at: str) -> datetime | None:
    """The time that a record began, in UTC; None if what it says is no time."""
    try:
        found = datetime.fromisoformat(started_at)
    except ValueError:
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _points(value: float) -> str:
    return f"{round(100 * value, 1) + 0.0:.1f}"
