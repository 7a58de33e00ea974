"""Which of several predicted backends is fastest, as far as a prediction can know it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlscale.analysis.predict.prediction import PredictedCurve, prediction_record
from dlscale.analysis.text import plural

SURE = 0.95  # of the replicates, in which one of two is faster


def unknown_ranking(curves: Sequence[PredictedCurve]) -> str:
    """Which backends may be the fastest on the most nodes that all are predicted on; empty where that is known.

    A replicate of one backend is compared with that of another with the same draws. What an overlapped exchange takes
    from computing is drawn for each backend apart, unless a study on the system has measured it.
    """
    names = [prediction_record(curve, curve.points[-1]).carrier for curve in curves]
    sizes = [{point.num_nodes: point for point in curve.points} for curve in curves]
    common = set.intersection(*map(set, sizes)) if sizes else set()
    if len(curves) < 2 or max(common, default=1) == 1:
        return ""
    most = max(common)
    rates = {name: own[most].rates for name, own in zip(names, sizes, strict=True)}
    best = max(rates, key=lambda name: float(np.median(rates[name])))
    rivals = [
        name for name, own in rates.items() if name != best and float(np.mean(rates[best] > own)) < SURE
    ]
    if not rivals:
        return ""
    guessed = [
        name
        for name, curve in zip(names, curves, strict=True)
        if curve.scenario.contention != (0.0, 0.0) and not curve.scenario.contention_source
    ]
    why = (
        f"; what {', '.join(guessed)} take{'s' * (len(guessed) == 1)} from computing was measured on another machine"
        if guessed
        else ""
    )
    return (
        f"not known: which of {', '.join([best, *rivals])} is fastest on {plural(most, 'node')}, for their bands "
        f"overlap{why}; measure them there, and give --calibrate"
    )
