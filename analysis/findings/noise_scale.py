"""The gradient noise scale of trainings, and how many samples a target takes at other batches.

With B of samples per step a target takes S(B) = S_min (1 + B_noise / B) steps (S. McCandlish et al., arXiv:1812.06162,
eq. 2.11 with E = B S), that is E(B) = E_min (1 + B / B_noise) samples. B_noise is estimated twice: from gradients, as
tr(Sigma) / |G|^2 over all draws, and as the critical batch from the samples that trainings at several batches took.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from dlscale.analysis.declare import Column, Sentence, TableOf, Value, tags_of
from dlscale.analysis.families import Family
from dlscale.analysis.finding import Finding, training_columns
from dlscale.analysis.findings import solution_table
from dlscale.analysis.findings.solutions import TimeToSolution, goal_text
from dlscale.analysis.launches import Block
from dlscale.analysis.measured import Measured
from dlscale.analysis.records import attributes
from dlscale.analysis.statistics import INSUFFICIENT, LEVEL, MIN_BLOCKS, Floats, Interval, ratio_of_sums
from dlscale.analysis.text import interval_columns, number, plural, with_limits
from dlscale.benchmarks.records.target import GradientNoise, Target
from dlscale.collectives.algorithms.registry import SYNC

NUM_RESAMPLES = 1000
ROUNDING = 1e-9  # a growth of samples below this is none
RESAMPLE_SEED = 20181214  # of the draws with replacement: the same records give the same limits


def gradient_estimates(noise: GradientNoise, *, local_batch: int) -> tuple[float, float]:
    """Unbiased estimates of |G|^2 and tr(Sigma): of the gradient over all data, and of the covariance of one sample's.

    S. McCandlish et al., arXiv:1812.06162, appendix A.1, with batches of b and n b samples. One draw says little, and
    its |G|^2 may be negative: only sums over many are to be divided.
    """
    n, local, mean = noise.num_batches, noise.local_square_norm, noise.mean_square_norm
    return (n * mean - local) / (n - 1), local_batch * (local - mean) * n / (n - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseScale:
    """What gradients and samples of comparable trainings say about larger batches.

    The trainings are those of all cells of a family to one target by the same rules; a block has one seed in all of
    them.
    """

    rows: tuple[TimeToSolution, ...]
    num_draws: int
    draws: Mapping[Block, tuple[float, float]]  # sums of the estimates of |G|^2 and tr(Sigma)
    scale: Interval | None  # B_noise from gradients; None without draws, or where |G|^2 is not above 0
    critical: (
        Interval | None
    )  # B_noise from samples; None with one batch, or if larger ones took no more samples
    cost_share: float | None  # seconds of the draws over those of training
    unmeasured: str  # why there are no draws

    @property
    def family(self) -> Family:
        return self.rows[0].family

    @property
    def target(self) -> Target:
        """The target of the first cell; others differ in what follows from the batch."""
        return self.rows[0].target

    @property
    def blocks(self) -> list[Block]:
        """The blocks in which every cell has a training."""
        common = set.intersection(*({training.block for training in row.trainings} for row in self.rows))
        return sorted(common)

    @property
    def text(self) -> str:
        """A sentence with the result; empty without one."""
        goal = f"{self.family.workload} {self.family.preset} in {self.family.framework}"
        if self.scale:
            return (
                f"The gradient noise scale of {goal} is {scale_text(self.scale)} samples, from "
                f"{plural(self.num_draws, 'draw')} in training: a global batch of so many takes twice the samples "
                "that small ones take, a tenth of it 10 % more."
            )
        if self.num_draws:
            return f"The gradient noise scale of {goal} is not known: {plural(self.num_draws, 'draw')} are too few."
        return f"The gradient noise scale of {goal} was not measured: {self.unmeasured}."


def scale_text(scale: Interval) -> str:
    """`21.3 [9.80, 64.0]`, or `21.3 (at least 9.80)` without an upper limit."""
    if scale.low is not None and scale.high is None:
        return f"{number(scale.center)} (at least {number(scale.low)})"
    return with_limits(scale)


def noise_scales(solutions: Sequence[TimeToSolution]) -> list[NoiseScale]:
    """One of all comparable cells of each kind of evidence.

    Cells of synchronous SGD: what a batch takes by another algorithm follows another law.
    """
    solutions = [row for row in solutions if row.cell.algorithm == SYNC]

    def key(row: TimeToSolution) -> tuple[Any, ...]:
        return row.family, row.evidence, _rules(row)

    return [_of_cells(tuple(rows)) for _, rows in groupby(sorted(solutions, key=key), key=key)]


# How a rate follows from the global batch, by `Target.scaling`: its power.
POWERS = {"none": 0.0, "linear": 1.0, "sqrt": 0.5}


def _rules(row: TimeToSolution) -> str:
    """The target without what follows from the global batch: the rate over its growth stands for the rate."""
    own = row.target.model_dump(mode="json")
    own.pop("evaluate_every", None)
    own["learning_rate"] /= row.cell.global_batch ** POWERS[row.target.scaling]
    own["learning_rate"] = float(f"{own['learning_rate']:.6g}")
    return json.dumps(own, sort_keys=True)


def _of_cells(rows: tuple[TimeToSolution, ...]) -> NoiseScale:
    draws: dict[Block, tuple[float, float]] = {}
    num_draws, seconds, training_seconds = 0, 0.0, 0.0
    for row in rows:
        for training in row.trainings:
            own = [evaluation.noise for evaluation in training.solution.evaluations if evaluation.noise]
            if not own:
                continue
            found = [gradient_estimates(noise, local_batch=row.cell.local_batch) for noise in own]
            square, trace = draws.get(training.block, (0.0, 0.0))
            draws[training.block] = (
                square + math.fsum(estimate for estimate, _ in found),
                trace + math.fsum(estimate for _, estimate in found),
            )
            num_draws += len(own)
            seconds += math.fsum(noise.seconds for noise in own)
            training_seconds += training.last.training_seconds
    return NoiseScale(
        rows=rows,
        num_draws=num_draws,
        draws=draws,
        scale=ratio_of_sums([trace for _, trace in draws.values()], [square for square, _ in draws.values()]),
        critical=_critical(rows),
        cost_share=seconds / training_seconds if training_seconds else None,
        unmeasured="" if num_draws else _why_none(rows),
    )


def _why_none(rows: Sequence[TimeToSolution]) -> str:
    solutions = [training.solution for row in rows for training in row.trainings]
    reasons = sorted({solution.noise_unmeasured for solution in solutions} - {""})
    if reasons:
        return "; ".join(reasons)
    every = max((solution.noise_every for solution in solutions), default=0)
    return f"no training had {every} steps, or pairs of them on 1 rank" if every else "the records are older"


@dataclass(frozen=True, slots=True)
class BatchLaw:
    """E(B) = least_samples + least_steps B, for one fit or for each of several resamples."""

    least_samples: Floats  # E_min
    least_steps: Floats  # S_min; 0: a larger batch takes no more samples

    @property
    def scale(self) -> Floats:
        """B_noise = E_min / S_min; inf where larger batches take no more samples."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.where(self.least_steps > 0, self.least_samples / self.least_steps, np.inf))

    def samples(self, batch: float) -> Floats:
        """Samples to the target at that global batch."""
        return self.least_samples + self.least_steps * batch


def law_of_scale(batches: Floats, samples: Floats, scale: Floats) -> BatchLaw:
    """The law with that noise scale, [...], whose relative errors at [..., cells] samples are least."""
    shape = (1 + batches / scale[..., None]) / samples
    least = np.asarray(shape.sum(axis=-1) / (shape**2).sum(axis=-1))
    return BatchLaw(least, least / scale)


def law_of_samples(batches: Floats, samples: Floats) -> BatchLaw:
    """The law whose relative errors at [..., cells] samples are least; at least two batches differ.

    Where one of E_min and S_min would be negative it is 0, and the other is fitted alone.
    """
    u, v = 1 / samples, batches / samples
    sum_u, sum_v = u.sum(axis=-1), v.sum(axis=-1)
    uu, uv, vv = (u * u).sum(axis=-1), (u * v).sum(axis=-1), (v * v).sum(axis=-1)
    both = uu * vv - uv**2
    least, steps = (vv * sum_u - uv * sum_v) / both, (uu * sum_v - uv * sum_u) / both
    steps = np.where(
        abs(steps) * batches.max() < ROUNDING * least, -1.0, steps
    )  # equal samples are no growth
    return BatchLaw(
        np.asarray(np.where(least < 0, 0.0, np.where(steps < 0, sum_u / uu, least))),
        np.asarray(np.where(steps < 0, 0.0, np.where(least < 0, sum_v / vv, steps))),
    )


def laws(noise: NoiseScale) -> dict[str, BatchLaw]:
    """The laws by what B_noise is known from, "gradients" and "samples"; none without a median of samples."""
    known = arrived(noise.rows)
    batches, samples = _samples_at_batches(known)
    found = {}
    if known and noise.scale and noise.scale.center > 0:
        found["gradients"] = law_of_scale(batches, samples, np.array(noise.scale.center))
    if len(set(batches)) > 1:
        found["samples"] = law_of_samples(batches, samples)
    return found


def _samples_at_batches(rows: Sequence[TimeToSolution]) -> tuple[Floats, Floats]:
    """The global batches of cells whose median of samples is known, and that median."""
    known = [(row.cell.global_batch, row.samples.center) for row in rows if row.samples]
    batches, samples = np.array(known, dtype=float).reshape(-1, 2).T
    return batches, samples


def resampled_blocks(num_blocks: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """[NUM_RESAMPLES, num_blocks] places of blocks drawn with replacement."""
    return np.random.default_rng(RESAMPLE_SEED).integers(num_blocks, size=(NUM_RESAMPLES, num_blocks))


def samples_by_block(row: TimeToSolution, blocks: Sequence[Block]) -> Floats:
    """[blocks] samples to the target; inf where a training ended short of it."""
    found = {t.block: float(t.last.samples) if t.reached else math.inf for t in row.trainings}
    return np.array([found[block] for block in blocks])


def bootstrap_interval(center: float, values: Floats | None, *, num_blocks: int) -> Interval:
    """Limits between which 95 % of the resamples' values lie; none where a limit is not finite, or without values."""
    if values is None:
        return Interval(center=center, low=None, high=None, level=LEVEL, method=INSUFFICIENT, n=num_blocks)
    tail = 50 * (1 - LEVEL)
    with np.errstate(invalid="ignore"):
        low, high = np.percentile(values, [tail, 100 - tail], method="nearest")
    return Interval(
        center=center,
        low=float(low) if math.isfinite(low) else None,
        high=float(high) if math.isfinite(high) else None,
        level=LEVEL,
        method="bootstrap over seeds",
        n=num_blocks,
    )


def arrived(rows: Sequence[TimeToSolution]) -> list[TimeToSolution]:
    """The cells whose median of samples is known."""
    return [row for row in rows if row.samples]


def _critical(rows: Sequence[TimeToSolution]) -> Interval | None:
    known = arrived(rows)
    batches, samples = _samples_at_batches(known)
    if len(set(batches)) < 2:
        return None
    center = float(law_of_samples(batches, samples).scale)
    if not math.isfinite(center):
        return None
    blocks = sorted(set.intersection(*({t.block for t in row.trainings} for row in known)))
    if len(blocks) < MIN_BLOCKS:
        return bootstrap_interval(center, None, num_blocks=len(blocks))
    places = resampled_blocks(len(blocks))
    medians = [np.median(samples_by_block(row, blocks)[places], axis=1) for row in known]
    samples = np.stack(medians, axis=1)
    whole = samples[np.isfinite(samples).all(axis=1)]
    if not len(whole):
        return None
    return bootstrap_interval(center, law_of_samples(batches, whole).scale, num_blocks=len(blocks))


def to_noise_row(noise: NoiseScale) -> dict[str, Any]:
    """The row of comparable trainings: the noise scale from gradients and the critical batch from samples, in samples.

    A scale without an upper limit has `noise_scale_high` None and says so in its method.
    """
    return {
        **attributes(noise.family, "workload preset framework scaling_mode"),
        **attributes(noise.target, "metric threshold"),
        "learning_rate_scaling": noise.target.scaling,
        "evidence": noise.rows[0].evidence,
        "num_draws": noise.num_draws,
        **interval_columns("noise_scale", noise.scale),
        **interval_columns("critical_batch", noise.critical),
        "square_norm": _mean(noise, 0),
        "trace": _mean(noise, 1),
        "draws_share": noise.cost_share,
        "unmeasured": noise.unmeasured or None,
    }


def _mean(noise: NoiseScale, place: int) -> float | None:
    """Per draw."""
    total = math.fsum(sums[place] for sums in noise.draws.values())
    return total / noise.num_draws if noise.num_draws else None


def _scale(scale: Interval | None) -> Value | None:
    return Value(text=scale_text(scale), order=scale.center) if scale else None


NOISE = TableOf[NoiseScale](
    name="noise-scale",
    caption="Gradient noise scale",
    columns=(
        *training_columns(lambda noise: noise.family),
        Column("target", lambda noise: goal_text(noise.target), numeric=False, common=True),
        Column("noise scale", lambda noise: _scale(noise.scale), unit="samples"),
        Column("critical batch", lambda noise: _scale(noise.critical), unit="samples"),
        Column("draws", lambda noise: noise.num_draws),
        Column("cost", lambda noise: noise.cost_share and 100 * noise.cost_share, unit="% of training"),
    ),
    data=to_noise_row,
    legend=(
        "Noise scale: from the ranks' gradients, tr(Σ) / |G|², sums over all draws with Fieller's interval over seeds. "
        "Critical batch: from the median samples that trainings at several global batches took, bootstrapped over "
        "seeds. Both are B in E(B) = E_min (1 + B_global / B), the samples to the target at a global batch."
    ),
    tags=lambda noise: tags_of(noise.rows[0].cell),
)


def _sentences(noises: Sequence[NoiseScale]) -> list[Sentence]:
    texts: dict[str, Sentence] = {}  # of several learning rates the same one
    for noise in noises:
        texts.setdefault(noise.text, Sentence(text=noise.text, tags=tags_of(noise.rows[0].cell)))
    return list(texts.values())


def compared_families(study: Measured) -> set[Family]:
    """The families in which several ways of training are compared: one screen has no room for their batches."""
    return {row.family for row in solution_table.FINDING.of(study) if row.reference}


def _screen(study: Measured) -> list[Sentence]:
    compared = compared_families(study)
    return _sentences([noise for noise in FINDING.of(study) if noise.family not in compared])


FINDING = Finding(
    name="noise_scales",
    title="Larger batches",
    lead="How many more samples a larger batch needs, and where more ranks stop making a training faster.",
    compute=lambda study: noise_scales(solution_table.FINDING.of(study)),
    table=NOISE,
    sentences=_sentences,
    screen=_screen,
)
FINDINGS = (FINDING,)
