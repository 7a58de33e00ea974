"""The node-hours that trainings take at one size."""

from __future__ import annotations

from dataclasses import dataclass

from dlscale.analysis.proposal.sizes import HOUR_SECONDS, Curve, Size
from dlscale.analysis.statistics import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """`runs` trainings on `samples` samples each, at the largest size that surely keeps the threshold."""

    size: Size
    samples: int
    runs: int
    hours: Interval  # of one, from the first step to the last
    node_hours: Interval  # of one; of whole nodes
    total: Interval  # node-hours of all


def request(curve: Curve, *, samples: int, runs: int) -> Request | None:
    """None if no size surely keeps the threshold: there is nothing to found a number on."""
    size = curve.keeping("surely")
    if size is None or size.row.throughput is None:
        return None
    hours = size.row.throughput.rate(samples / HOUR_SECONDS)
    node_hours = hours.times(size.num_nodes)
    return Request(
        size=size,
        samples=samples,
        runs=runs,
        hours=hours,
        node_hours=node_hours,
        total=node_hours.times(runs),
    )
