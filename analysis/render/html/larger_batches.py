"""The page's part about larger batches: the gradient noise scale, and the times to the target that it predicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dlscale.analysis.declare import Axis, Block, Plot, Point, Sentence, Series, tags_of
from dlscale.analysis.efficiency import ScalingTable
from dlscale.analysis.findings.noise_scale import NOISE, noise_scales
from dlscale.analysis.findings.predicted_solutions import (
    PREDICTED,
    Prediction,
    predictions,
    shown_points,
)
from dlscale.analysis.findings.solutions import goal_text
from dlscale.analysis.text import backend_name, number, plural, with_limits, workload_title

LEAD = "How many more samples a larger batch needs, and where more ranks stop making a training faster."


def larger_batch_blocks(table: ScalingTable) -> Iterator[Block]:
    """Sentences, a plot of the prediction per training, and the tables; nothing without trainings with a target."""
    if not (noises := noise_scales(table.solutions)):
        return
    found = predictions(noises, table.weak_scaling)
    for noise in noises:
        yield Sentence(text=noise.text, tags=tags_of(noise.rows[0].cell))
    for prediction in found:
        yield Sentence(text=prediction.text, tags=tags_of(prediction.cell))
    for place, noise in enumerate(noises):
        if own := [prediction for prediction in found if prediction.noise is noise]:
            yield prediction_plot(own, name=f"predicted-{place}")
    yield NOISE.of(noises)
    if found:
        yield PREDICTED.of(shown_points(found))


def prediction_plot(found: Sequence[Prediction], *, name: str) -> Plot:
    """The predicted times of comparable trainings over ranks; `found` is not empty."""
    noise = found[0].noise
    family = noise.family
    return Plot(
        name=name,
        title=f"predicted time of training to {goal_text(noise.target)}: {workload_title(family.workload)}, "
        f"{family.framework}",
        says=" ".join(prediction.text for prediction in found),
        x=Axis(title="ranks", kind="log", ticks=_ticks(found)),
        y=Axis(title="predicted time of training [s]", low=0.0),
        series=tuple(
            Series(
                name=backend_name(prediction.cell),
                look=backend_name(prediction.cell),
                evidence="simulated",
                points=tuple(
                    Point(
                        x=point.cell.num_ranks,
                        y=point.seconds.center,
                        low=point.seconds.low,
                        high=point.seconds.high,
                        lines=(
                            f"{backend_name(prediction.cell)}, {plural(point.cell.num_ranks, 'rank')}, predicted",
                            f"{with_limits(point.seconds, unit=' s')}",
                            f"{number(point.samples)} samples at {number(point.rate)} samples/s",
                        ),
                    )
                    for point in prediction.points
                ),
                tags=tags_of(prediction.cell),
                joined=True,
            )
            for prediction in found
        ),
        notes=("Nothing in this plot was measured: measured times are in the section above.",),
        table=PREDICTED.name,
    )


def _ticks(found: Sequence[Prediction]) -> tuple[tuple[float, str], ...]:
    counts = sorted({point.cell.num_ranks for prediction in found for point in prediction.points})
    return tuple((float(count), str(count)) for count in counts)
