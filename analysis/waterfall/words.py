"""Waterfalls in plain words: what is kept, what takes most of the rest, and whether that is certain."""

from __future__ import annotations

from dlscale.analysis.statistics import MIN_BLOCKS, Interval
from dlscale.analysis.waterfall.waterfall import Part, Waterfall
from dlscale.analysis.words import backend_name, number, percent


def headline(one: Waterfall) -> str:
    """`resnet50 on ring keeps 93 % [91, 95] at 8 ranks; the largest loss is late ranks: 4.1 % [3.0, 5.2].`"""
    subject = f"{one.cell.workload} on {backend_name(one.cell)}"
    if one.evidence != "measured":
        subject += f" ({one.evidence})"
    ranks = f"{one.cell.num_ranks} ranks"
    if one.efficiency is None:
        return f"{subject} at {ranks}: what is lost is not known, {one.reason}."
    unpaired = ", unpaired" if "unpaired" in one.efficiency.method else ""
    kept = f"{subject} keeps {percent(one.efficiency)} at {ranks}{unpaired}"
    if not one.sufficient:
        return f"{kept}; insufficient data to say why: {one.efficiency.n} of the {MIN_BLOCKS} blocks that it needs."
    return f"{kept}; {_why(one)}."


def _why(one: Waterfall) -> str:
    certain = [part for part in one.parts if part.loss.low is not None and part.loss.low > 0]
    largest = max(one.parts, key=lambda part: part.loss.center)
    if not certain and one.loss and one.loss.low is not None and one.loss.low > 0:
        return f"no single cause is beyond the noise; largest is {largest.name}: {loss_text(largest.loss)}"
    if not certain:
        return "no loss is beyond the noise"
    rivals = [part for part in one.parts if part.name in one.rivals]
    if not rivals:
        return f"the largest loss is {largest.name}: {loss_text(largest.loss)}"
    parts = sorted([largest, *rivals], key=lambda part: -part.loss.center)
    listed = "; ".join(f"{part.name} {loss_text(part.loss)}" for part in parts)
    return f"the largest losses are not told apart: {listed}"


def sentence(part: Part) -> str:
    """`late ranks: 1.2 % [0.9, 1.5] of the ideal speed, 0.25 ms of a step.`"""
    milliseconds = number(round(1000 * part.seconds.center, 6))
    return f"{part.name}: {loss_text(part.loss)} of the ideal speed, {milliseconds} ms of a step."


def loss_text(loss: Interval, *, unit: str = " %") -> str:
    """`4.1 % [3.0, 5.2]`: with one decimal, and never -0.0."""
    center = f"{_points(loss.center)}{unit}"
    if loss.low is None or loss.high is None:
        return center
    return f"{center} [{_points(loss.low)}, {_points(loss.high)}]"


def _points(share: float) -> str:
    return f"{round(100 * share, 1) + 0.0:.1f}"
