"""The universal scalability law, fitted to published curves."""

import numpy as np

from dlscale.analysis.published.catalogue import load_published
from dlscale.analysis.published.claim_verdicts import points
from tests.validation.law import law_efficiency, law_fit


def test_the_law_is_fitted_to_the_first_points_only():
    published = load_published()
    law = law_fit(points(published, "powerai-ddl-3", "Torch", base=4), 4)
    assert law.point.x == 256
    sizes, known = np.array([4.0, 16.0, 24.0]), np.array([0.86, 0.86, 0.85])
    # No other law of this form is nearer to the three points.
    best = min(
        float(np.square(law_efficiency(sizes, a, b) - known).sum())
        for a in np.linspace(0, 0.05, 501)
        for b in (0.0, 1e-5, 1e-4)
    )
    contention = (1 / law.predicted - 1) / 63
    assert np.square(law_efficiency(sizes, contention, 0.0) - known).sum() < 1.02 * best
    assert law_fit(points(published, "goyal-8", "ResNet-50", base=8), 8) is None
