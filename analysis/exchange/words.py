"""Exchanges in plain words: how long, how fast, and how much of it a training hides."""

from __future__ import annotations

from dlscale.analysis.exchange.exchanges import Exchange
from dlscale.analysis.exchange.step import IN_LINE
from dlscale.analysis.statistics import Interval
from dlscale.analysis.words import backend_name, number, percent

GIGA = 1e-9
MEGA = 1e-6


def sentence(one: Exchange) -> str:
    """`ring on 2 ranks: the exchange of 2.37 MB takes 1.20 ms alone [1.10, 1.30] at 3.95 GB/s (busbw); ... .`"""
    alone = one.alone
    name = backend_name(one.cell) + ("" if one.evidence == "measured" else f" ({one.evidence})")
    took = measure(alone.seconds.times(1e3), "ms alone")
    return (
        f"{name} on {one.cell.num_ranks} ranks: the exchange of {number(alone.num_bytes * MEGA)} MB takes {took} "
        f"at {number(alone.busbw.center * GIGA)} GB/s (busbw); {_hidden(one)}."
    )


def measure(interval: Interval, unit: str) -> str:
    """`1.20 ms [1.10, 1.30]`; without limits only the number."""
    ends = [number(one) for one in (interval.low, interval.high) if one is not None]
    return f"{number(interval.center)} {unit}" + (f" [{', '.join(ends)}]" if ends else "")


def ratio(interval: Interval) -> str:
    """`1.03 [1.01, 1.05]`."""
    ends = [f"{one:.2f}" for one in (interval.low, interval.high) if one is not None]
    return f"{interval.center:.2f}" + (f" [{', '.join(ends)}]" if ends else "")


def _hidden(one: Exchange) -> str:
    if one.how == IN_LINE:
        if one.step is None:
            return f"nothing is hidden; what the step should take is not known, {one.reason}"
        return f"nothing is hidden; the step is {ratio(one.step.of_sum)} of computation plus exchange"
    hidden = one.overlap.hidden
    if hidden is None:
        why = one.overlap.reason or one.reason
        return f"how much of it is hidden is not known, {why}{_between(one)}"
    flaw = "" if hidden.low is not None else f", of {hidden.n} block{'s' * (hidden.n > 1)}: no interval"
    if hidden.center < 0:
        return (
            "nothing is hidden: beside the computation a step is longer by "
            f"{ratio(hidden.complement())} of that time{flaw}"
        )
    return f"{percent(hidden)} of it is hidden behind the computation{flaw}"


def _between(one: Exchange) -> str:
    """The ends of the prediction, where no share can be told."""
    if one.step is None:
        return ""
    low, high, measured = (
        number(1e3 * seconds) for seconds in (one.step.shortest, one.step.longest, one.step.measured.center)
    )
    return f"; the step takes {measured} ms, predicted {low} with all of it hidden, {high} with nothing"
