"""Extra-P's answers to what the published curves ask, beside the universal scalability law's and ours.

Extra-P (https://github.com/extra-p/extrap) fits c + a p^i (log2 p)^j to the times over p ranks, with exponents from a
list, and takes what cross-validation prefers. Its package asks for the toolkit of its windows; what models is installed
without by constraints-extra-p.txt. Like the law it is fitted to the base and the first three sizes of a curve, and
asked for the largest; times are those of a sample per device, 1 / efficiency. It asks for five sizes, so that its
answer with one more stands beside.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlscale.analysis.published.catalogue import Published
from dlscale.analysis.published.claim_verdicts import EfficiencyPoint, points
from dlscale.analysis.published.claims import x_of
from dlscale.analysis.render.markdown import markdown_table
from dlscale.base.errors import UsageError
from tests.validation.law import FITTED_POINTS, law_fit
from tests.validation.published_curves import published_curves

PACKAGE = "extrap"
COLUMNS = [
    "curve",
    "devices",
    "published efficiency",
    "ours",
    "law",
    "Extra-P",
    "nearest",
    "Extra-P, five sizes",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rivals:
    """The largest point of a curve, and three answers: efficiencies."""

    title: str
    size: float
    published: float
    ours: float  # fitted to nothing of the curve
    law: float
    extra_p: float
    extra_p_of_five: float

    @property
    def nearest(self) -> str:
        """Whose answer is nearest to what was published."""
        answers = {"ours": self.ours, "law": self.law, "Extra-P": self.extra_p}
        return min(answers, key=lambda name: abs(answers[name] - self.published))


def unavailable() -> str | None:
    """Why Extra-P cannot be used, and what to do; None if it can."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what its marshmallow will remove
            importlib.import_module(f"{PACKAGE}.modelers.single_parameter.basic")
    except ImportError as error:
        return f"Extra-P cannot be used ({error}); pip install --no-deps -r constraints-extra-p.txt"
    return None


def model_of(seconds: Mapping[float, float]) -> Any:
    """Extra-P's function of the number of ranks for times over numbers of ranks. Raises UsageError without Extra-P."""
    if reason := unavailable():
        raise UsageError(reason)
    entities = importlib.import_module(f"{PACKAGE}.entities.measurement")
    coordinate = importlib.import_module(f"{PACKAGE}.entities.coordinate")
    basic = importlib.import_module(f"{PACKAGE}.modelers.single_parameter.basic")
    measured = [
        entities.Measurement(coordinate.Coordinate(num_ranks), None, None, [value])
        for num_ranks, value in sorted(seconds.items())
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it asks for five points
        return basic.SingleParameterModeler().create_model(measured).hypothesis.function


def rivals(published: Published) -> list[Rivals]:
    """One for each curve that the law is fitted to. Raises UsageError without Extra-P."""
    answers = []
    for entry in published_curves(published):
        base = x_of(published.figure(entry.figure), entry.curve, entry.curve.base)
        curve = points(published, entry.figure, entry.curve.figures[entry.figure], base=base)
        fit, last = law_fit(curve, base), entry.rows[-1].predicted
        if fit is None or last is None:
            continue
        three, four = (
            1 / float(model_of(_times(curve, base, count)).evaluate(fit.point.x))
            for count in (FITTED_POINTS, FITTED_POINTS + 1)
        )
        answers.append(
            Rivals(
                title=entry.title,
                size=fit.point.x,
                published=fit.point.efficiency,
                ours=last.median,
                law=fit.predicted,
                extra_p=three,
                extra_p_of_five=four,
            )
        )
    return answers


def _times(curve: Sequence[EfficiencyPoint], base: float, count: int) -> dict[float, float]:
    """The times of the base and so many further sizes, all below the largest."""
    return {base: 1.0} | {point.x: 1 / point.efficiency for point in curve[:-1][:count]}


def rival_lines(answers: list[Rivals]) -> list[str]:
    """Markdown: who is nearest how often, and a row for each curve."""
    names = [one.nearest for one in answers]
    mean = {
        name: sum(abs(getattr(one, field) - one.published) for one in answers) / len(answers)
        for name, field in (("ours", "ours"), ("law", "law"), ("Extra-P", "extra_p"))
    }
    verdict = "; ".join(
        f"{name}: nearest for {names.count(name)} of {len(answers)} curves, {100 * error:.1f} points off in the mean"
        for name, error in mean.items()
    )
    rows = [
        [
            one.title,
            f"{one.size:g}",
            *(f"{value:.3f}" for value in (one.published, one.ours, one.law, one.extra_p)),
            one.nearest,
            f"{one.extra_p_of_five:.3f}",
        ]
        for one in answers
    ]
    return [f"{verdict}.", "", *markdown_table(COLUMNS, rows, words=["curve", "nearest"]), ""]
