"""How often a claim is wrong, and how often a true one is made, in simulated studies. The seed is fixed."""

import math

import numpy as np
import pytest

from dlscale.analysis.findings.contrasts import contrasts

from .conftest import declaration

NUM_STUDIES = 400


def claims(num_blocks, *truths, noise=0.02, outliers=0.05):
    """Verdicts of simulated studies; the contenders' true log ratios to the reference are given."""
    generator = np.random.default_rng(1979)
    found = []
    for _ in range(NUM_STUDIES):
        shape = (len(truths) + 1, num_blocks)
        launches = noise * generator.standard_normal(shape)
        launches -= 0.2 * (generator.random(shape) < outliers)  # a launch that something held up
        # What is held against one and the same reference shares its noise.
        logs = launches[1:] - launches[0] + np.array(truths)[:, None]
        names = ("ring", "gloo", "horovod", "nccl")
        study = contrasts(declaration(**dict(zip(names, logs, strict=False))))
        found.append([one.verdict for one in study.found])
    return found


@pytest.mark.parametrize(("num_blocks", "num_contenders"), [(6, 1), (8, 2), (8, 4), (10, 3)])
def test_of_equal_ones_hardly_any_is_called_faster_or_slower(num_blocks, num_contenders):
    found = claims(num_blocks, *[0.0] * num_contenders)
    wrong = sum(any(one in ("faster", "slower") for one in study) for study in found)
    assert wrong / NUM_STUDIES <= 0.05


def test_one_at_the_end_of_the_band_hardly_passes_for_alike():
    found = claims(10, math.log(1.02), noise=0.005, outliers=0.0)
    assert sum(study == ["alike"] for study in found) / NUM_STUDIES <= 0.05


def test_what_is_there_is_found():
    found = claims(8, 0.06, -0.06, 0.0, noise=0.01, outliers=0.0)
    assert sum(study[:2] == ["faster", "slower"] for study in found) / NUM_STUDIES >= 0.99


def test_a_claim_never_has_the_wrong_side():
    assert not any("slower" in study for study in claims(8, 0.03, 0.06))
