"""A network's numbers from a machine's own exchanges: latency, rate and the cost of adding, by least squares.

    minimise over (latency, rate, seconds to add a byte)
        sum over points of (log predicted - log measured)^2
        + sum over the three of (PRIOR log(value / start))^2

In logarithms a small message counts as much as a large one. The second sum is weak: PRIOR makes a factor of ten as bad
as one point that is wrong by 5 %. It decides only what the points leave open, as a ring's do between rate and adding.

First without the points on the most nodes, or the largest messages where all are on as many: how wrong the largest
point is then is what a prediction beyond the measured sizes can be trusted with. The network that is handed on is
fitted to all points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from dlscale.analysis.predict.backends import HOROVOD_BITS_BYTES
from dlscale.analysis.predict.exchange import NetworkExchange, cost
from dlscale.analysis.predict.network import Limits, Network, input_of
from dlscale.base.errors import UsageError

FITTED = ("latency_seconds", "node_bytes_per_second", "reduce_seconds_per_byte")
PRIOR = 0.05 / math.log(10)
MAX_EXTRAPOLATION = 64  # times the most nodes that were measured
MAX_HELD_OUT_ERROR = 0.15
MIN_POINTS = 4  # three numbers are fitted, and the largest point is held out
Z90 = 1.645  # a 5-95 % band in standard deviations of a normal distribution
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationPoint:
    """One kind of exchange of one size, as it was measured."""

    exchange: NetworkExchange
    num_bytes: int
    seconds: float  # median over launches
    # Horovod's, within which an exchange begins, after its ranks have agreed on it.
    cycle_seconds: float = 0.0

    @property
    def size(self) -> tuple[int, int, int]:
        """The order of points: nodes, ranks, bytes."""
        return self.exchange.num_nodes, self.exchange.num_nodes * self.exchange.ranks_per_node, self.num_bytes


class Calibration(NamedTuple):
    """A fitted network, and how far it is to be trusted."""

    network: Network
    held_out: CalibrationPoint  # the largest
    held_out_error: float  # predicted / measured - 1, by the points on fewer nodes or of smaller messages
    scatter: float  # standard deviation of log(predicted / measured) over all points

    def doubts(self, num_nodes: int) -> tuple[str, ...]:
        """Why a prediction on that many nodes is not to be trusted; none if it may be."""
        largest, error = self.held_out.exchange.num_nodes, 100 * self.held_out_error
        far = f"{num_nodes} nodes are more than {MAX_EXTRAPOLATION} times the {largest} of the calibration"
        wrong = f"the calibration is wrong by {error:+.0f} % for its largest point, which was held out"
        doubts = {far: num_nodes > MAX_EXTRAPOLATION * largest, wrong: abs(error) > 100 * MAX_HELD_OUT_ERROR}
        return tuple(text for text, is_so in doubts.items() if is_so)


def calibrated(points: Sequence[CalibrationPoint], start: Network, *, source: str) -> Calibration:
    """The network `start` with latency, rate and adding as the points have them; `source` says where they are from.

    Raises UsageError for fewer than MIN_POINTS, for points of one size, between no nodes, or of no time.
    """
    _check(points, source)
    kept, held_out = _without_largest(points, source)
    trial, fitted = _fit(kept, start), _fit(points, start)
    scatter = float(np.sqrt(np.mean(fitted.residuals**2)))
    latency, rate, _ = _deviations(fitted.jacobian, scatter)
    network = replace(
        fitted.network, latency_factors=_band(latency, scatter), rate_factors=_band(rate, scatter)
    )
    error = math.exp(float(_residuals([held_out], trial.network)[0])) - 1
    told = (
        f"{len(points)} exchanges of {source}; the largest, held out, is predicted with {100 * error:+.1f} %"
    )
    values = {
        "latency of a message": f"{1e6 * network.latency_seconds:.3g} us",
        "rate of a node's link": f"{network.node_bytes_per_second / 1e9:.3g} GB/s",
    }
    origins = [input_of(what, value, "calibrated", told) for what, value in values.items()]
    origins += [origin for origin in start.origins if origin.input not in values]
    return Calibration(replace(network, origins=tuple(origins)), held_out, error, scatter)


def _check(points: Sequence[CalibrationPoint], source: str) -> None:
    wrong = ""
    if not points:
        wrong = "no exchange was measured between nodes; run a study with control exchange on 2 nodes or more"
    elif any(point.exchange.num_nodes < 2 for point in points):
        wrong = "exchanges within one node say nothing of the network; give a study on 2 nodes or more"
    elif bad := next((point for point in points if not 0 < point.seconds < math.inf), None):
        wrong = f"an exchange of {bad.num_bytes} bytes took {bad.seconds} s; measure it again"
    elif len(points) < MIN_POINTS:
        wrong = (
            f"{len(points)} measured points (sizes of buckets on each number of nodes), of which {MIN_POINTS} are "
            "needed; run more --nodes, or dlscale collectives"
        )
    if wrong:
        raise UsageError(f"calibration from {source}: {wrong}")


def _without_largest(
    points: Sequence[CalibrationPoint], source: str
) -> tuple[list[CalibrationPoint], CalibrationPoint]:
    """(the points to fit without those as large, the largest). Raises UsageError if what is left fixes nothing."""
    largest = max(points, key=lambda point: point.size)
    for place in (0, 2):  # nodes, bytes
        kept = [point for point in points if point.size[place] < largest.size[place]]
        if len(kept) >= MIN_POINTS - 1 and len({point.num_bytes for point in kept}) > 1:
            return kept, largest
    raise UsageError(
        f"calibration from {source}: without its largest point ({largest.num_bytes} bytes on "
        f"{largest.exchange.num_nodes} nodes) no {MIN_POINTS - 1} points of two sizes are left; measure more sizes"
    )


class _Fitted(NamedTuple):
    network: Network
    jacobian: Floats  # derivatives of the logarithms of times and priors by those of the numbers
    residuals: Floats  # of the points


def _fit(points: Sequence[CalibrationPoint], start: Network) -> _Fitted:
    """Least squares from `start`."""
    first = np.log([getattr(start, name) for name in FITTED])

    def deviations(logs: Floats) -> Floats:
        return np.concatenate([_residuals(points, _with(start, logs)), PRIOR * (logs - first)])

    solved: Any = least_squares(deviations, first, x_scale=1.0)
    return _Fitted(_with(start, solved.x), solved.jac, solved.fun[: len(points)])


def _with(network: Network, logs: Floats) -> Network:
    return replace(network, **dict(zip(FITTED, np.exp(logs).tolist(), strict=True)))


def _residuals(points: Sequence[CalibrationPoint], network: Network) -> Floats:
    """log(predicted / measured) of each point."""
    return np.asarray(np.log(predicted_seconds(points, network)) - np.log([it.seconds for it in points]))


def predicted_seconds(points: Sequence[CalibrationPoint], network: Network) -> Floats:
    """Seconds of each point's exchange."""

    def seconds(point: CalibrationPoint) -> float:
        alone = cost(network, point.exchange).of(point.num_bytes)
        if not point.cycle_seconds:
            return alone
        bits = cost(network, replace(point.exchange, algorithm="recursive_doubling"))
        return alone + point.cycle_seconds / 2 + 2 * bits.of(HOROVOD_BITS_BYTES)

    return np.array([seconds(point) for point in points])


def _deviations(jacobian: Floats, scatter: float) -> Floats:
    """Standard deviations of the logarithms of the fitted numbers; the priors are as good as points are bad."""
    weighted = jacobian.copy()
    # A prior is worth what it says, whatever the points scatter.
    weighted[-len(FITTED) :] *= max(scatter, 1e-6) / 0.05
    return scatter * np.sqrt(np.diag(np.linalg.inv(weighted.T @ weighted)))


def _band(deviation: float, scatter: float) -> Limits:
    """5 and 95 % of a number in a further exchange: how well it is known, and how exchanges vary."""
    width = Z90 * math.hypot(deviation, scatter)
    return math.exp(-width), math.exp(width)
