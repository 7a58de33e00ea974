"""A network's numbers from a machine's own exchanges: latency, rate and the cost of adding, by least squares.

    minimise over (latency, rate, seconds to add a byte)
        sum over points of (log predicted - log measured)^2
        + sum over the three of (PRIOR log(value / start))^2

In logarithms a small message counts as much as a large one. The second sum is weak: PRIOR makes a factor of ten as bad
as one point that is wrong by 5 %. It decides only what the points leave open, as a ring's do between rate and adding.

First without the points on the most nodes, or the largest messages where all are on as many: how wrong the largest
point is then is what a prediction beyond the measured sizes can be trusted with. The network that is handed on is
fitted to all points.

The jitter of messages is in how the single calls of an exchange spread, where latency is the larger part of it: the
interquartile range of what jitter adds to an exchange is in proportion to the jitter, which therefore is the measured
range over that with a jitter of 1 s; over points, the median. All that calls spread counts as jitter. Half of the
calls are longer by the median that it adds: the three numbers are fitted anew to what is left without that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from dlscale.analysis.predict.backend_rules import HOROVOD_BITS_BYTES
from dlscale.analysis.predict.exchange import NetworkExchange
from dlscale.analysis.predict.loggp import Cost, cost, drawn_jitter
from dlscale.analysis.predict.network import Factors, Network
from dlscale.base.errors import UsageError

FITTED = ("latency_seconds", "node_bytes_per_second", "reduce_seconds_per_byte")
PRIOR = 0.05 / math.log(10)
MAX_EXTRAPOLATION = 64  # times the most nodes that were measured
MAX_HELD_OUT_ERROR = 0.15
MIN_POINTS = 4  # three numbers are fitted, and the largest point is held out
Z90 = 1.645  # a 5-95 % band in standard deviations of a normal distribution
JITTER_DRAWS = 2000
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationPoint:
    """One kind of exchange of one size, as it was measured."""

    exchange: NetworkExchange
    num_bytes: int
    seconds: float  # median over launches
    # Likewise, the interquartile range of a launch's single calls; None: not known.
    spread: float | None = None
    # Horovod's, within which an exchange begins, after its ranks have agreed on it.
    cycle_seconds: float = 0.0

    @property
    def size(self) -> tuple[int, int, int]:
        """The order of points: nodes, ranks, bytes."""
        return self.exchange.num_nodes, self.exchange.num_nodes * self.exchange.ranks_per_node, self.num_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A fitted network, and how far it is to be trusted."""

    network: Network
    num_points: int
    held_out: CalibrationPoint  # the largest
    held_out_error: float  # predicted / measured - 1, by the points on fewer nodes or of smaller messages
    scatter: float  # standard deviation of log(predicted / measured) over all points
    no_jitter: str = ""  # why the jitter of messages was not measured; empty if it was

    @property
    def largest_nodes(self) -> int:
        """The most nodes that were measured."""
        return self.held_out.exchange.num_nodes

    def doubts(self, num_nodes: int) -> tuple[str, ...]:
        """Why a prediction on that many nodes is not to be trusted; none if it may be."""
        doubts = []
        if num_nodes > MAX_EXTRAPOLATION * self.largest_nodes:
            doubts.append(
                f"{num_nodes} nodes are more than {MAX_EXTRAPOLATION} times the {self.largest_nodes} of the calibration"
            )
        if abs(self.held_out_error) > MAX_HELD_OUT_ERROR:
            doubts.append(
                f"the calibration is wrong by {100 * self.held_out_error:+.0f} % for its largest point, which was held "
                "out"
            )
        return tuple(doubts)


def calibrated(points: Sequence[CalibrationPoint], start: Network, *, source: str) -> Calibration:
    """The network `start` with latency, rate and adding as the points have them; `source` says where they are from.

    Raises UsageError for fewer than MIN_POINTS, for points of one size, between no nodes, or of no time.
    """
    _check(points, source)
    kept, held_out = _without_largest(points, source)
    trial = _fitted(kept, start)
    fitted = _fitted(points, start)
    scatter = float(np.sqrt(np.mean(fitted.residuals**2)))
    deviations = _deviations(fitted.jacobian, scatter)
    return Calibration(
        network=replace(
            fitted.network,
            latency_factors=_band(deviations[0], scatter),
            rate_factors=_band(deviations[1], scatter),
            source=f"calibrated: {len(points)} points of {source}",
        ),
        num_points=len(points),
        held_out=held_out,
        held_out_error=math.exp(float(_residuals([held_out], trial.network)[0])) - 1,
        scatter=scatter,
        no_jitter=fitted.no_jitter,
    )


def _check(points: Sequence[CalibrationPoint], source: str) -> None:
    if not points:
        raise UsageError(
            f"calibration from {source}: no exchange was measured between nodes; run a study with control "
            "exchange on 2 nodes or more"
        )
    if any(point.exchange.num_nodes < 2 for point in points):
        raise UsageError(
            f"calibration from {source}: exchanges within one node say nothing of the network; give a study on 2 nodes "
            "or more"
        )
    if bad := next((point for point in points if not 0 < point.seconds < math.inf), None):
        raise UsageError(
            f"calibration from {source}: an exchange of {bad.num_bytes} bytes took {bad.seconds} s; measure it again"
        )
    if len(points) < MIN_POINTS:
        raise UsageError(
            f"calibration from {source}: {len(points)} measured points (sizes of buckets on each number of nodes), of "
            f"which {MIN_POINTS} are needed; run more --nodes, or dlscale collectives"
        )


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


@dataclass(frozen=True, slots=True)
class _Fitted:
    network: Network
    jacobian: Floats  # derivatives of the logarithms of times and priors by those of the numbers
    residuals: Floats  # of the points
    no_jitter: str


def _fitted(points: Sequence[CalibrationPoint], start: Network) -> _Fitted:
    """The network without jitter, and, where that can be measured, again with it."""
    first = _fit(points, replace(start, message_jitter_seconds=None))
    jitter, why = _message_jitter(points, first.network)
    if jitter is None:
        return replace(first, no_jitter=why)
    return _fit(points, replace(start, message_jitter_seconds=jitter))


def _message_jitter(points: Sequence[CalibrationPoint], network: Network) -> tuple[float | None, str]:
    """(seconds, ""), or None and why it cannot be known."""
    singly = [(point, point.spread) for point in points if point.spread is not None]
    if not singly:
        return None, "no calls are timed one by one, as those of dlscale collectives are"
    small = [(point, spread) for point, spread in singly if _mostly_latency(point, network)]
    if not small:
        return None, "no exchange timed call by call is so small that latency is most of it"
    units = _jitter_units([point for point, _ in small], network)
    return float(np.median([spread for _, spread in small] / units[:, 1])), ""


def _mostly_latency(point: CalibrationPoint, network: Network) -> bool:
    alone = cost(network, point.exchange)
    return alone.seconds >= alone.seconds_per_byte * point.num_bytes


def _jitter_units(points: Sequence[CalibrationPoint], network: Network) -> Floats:
    """[points][2] median and interquartile range of what a jitter of 1 s adds to each point."""
    by_exchange: dict[NetworkExchange, Floats] = {}
    unit = replace(network, message_jitter_seconds=1.0)
    for point in points:
        if point.exchange not in by_exchange:
            rng = np.random.default_rng(0)
            drawn = drawn_jitter(unit, point.exchange, num_bytes=1, rng=rng, num_draws=JITTER_DRAWS)
            low, median, high = np.quantile(drawn, (0.25, 0.5, 0.75))
            by_exchange[point.exchange] = np.array([median, high - low])
    return np.array([by_exchange[point.exchange] for point in points])


def _fit(points: Sequence[CalibrationPoint], start: Network) -> _Fitted:
    """Least squares, with the jitter of `start`."""
    first = np.log([getattr(start, name) for name in FITTED])
    late = _late_seconds(points, start)

    def deviations(logs: Floats) -> Floats:
        return np.concatenate([_residuals(points, _with(start, logs), late), PRIOR * (logs - first)])

    solved: Any = least_squares(deviations, first, x_scale=1.0)
    return _Fitted(_with(start, solved.x), solved.jac, solved.fun[: len(points)], "")


def _late_seconds(points: Sequence[CalibrationPoint], network: Network) -> Floats:
    """[points] the median of what jitter adds."""
    jitter = network.message_jitter_seconds
    return jitter * _jitter_units(points, network)[:, 0] if jitter else np.zeros(len(points))


def _with(network: Network, logs: Floats) -> Network:
    latency, rate, adding = np.exp(logs).tolist()
    return replace(
        network, latency_seconds=latency, node_bytes_per_second=rate, reduce_seconds_per_byte=adding
    )


def _residuals(points: Sequence[CalibrationPoint], network: Network, late: Floats | None = None) -> Floats:
    """log(predicted / measured) of each point, `late` by jitter."""
    late = _late_seconds(points, network) if late is None else late
    predicted = predicted_seconds(points, network)
    return np.asarray(np.log(predicted + late) - np.log([point.seconds for point in points]))


def predicted_seconds(points: Sequence[CalibrationPoint], network: Network) -> Floats:
    """Seconds of each point's exchange without jitter."""
    costs: dict[NetworkExchange, Cost] = {}

    def seconds(exchange: NetworkExchange, num_bytes: int) -> float:
        if exchange not in costs:
            costs[exchange] = cost(network, exchange)
        return costs[exchange].of(num_bytes)

    def with_cycle(point: CalibrationPoint) -> float:
        alone = seconds(point.exchange, point.num_bytes)
        if not point.cycle_seconds:
            return alone
        bits = replace(point.exchange, algorithm="recursive_doubling")
        return alone + point.cycle_seconds / 2 + 2 * seconds(bits, HOROVOD_BITS_BYTES)

    return np.array([with_cycle(point) for point in points])


def _deviations(jacobian: Floats, scatter: float) -> Floats:
    """Standard deviations of the logarithms of the fitted numbers; the priors are as good as points are bad."""
    weighted = jacobian.copy()
    weighted[-len(FITTED) :] *= (
        max(scatter, 1e-6) / 0.05
    )  # a prior is worth what it says, whatever the points scatter
    return scatter * np.sqrt(np.diag(np.linalg.inv(weighted.T @ weighted)))


def _band(deviation: float, scatter: float) -> Factors:
    """5 and 95 % of a number in a further exchange: how well it is known, and how exchanges vary."""
    width = Z90 * math.hypot(deviation, scatter)
    return math.exp(-width), math.exp(width)
