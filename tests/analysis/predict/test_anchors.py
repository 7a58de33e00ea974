"""Published curves: their points, predictions from inputs that are known, and the law beside them."""

import numpy as np
import pytest

from dlscale.analysis.predict import anchors
from dlscale.analysis.predict.anchors import Anchor, Point
from dlscale.analysis.published.catalogue import load_published
from dlscale.base.errors import UsageError

PUBLISHED = load_published()
ALL = anchors.load_anchors()


def exactly(value):
    return {"low": value, "high": value, "unit": "", "kind": "assumed", "source": "a test"}


def anchor(**more):
    inputs = {
        "name": "a curve",
        "figure": "powerai-ddl-3",
        "series": "Torch",
        "gradients": "resnet50",
        "overlap": "none",
        "algorithm": "ring",
        "base_devices": 4,
        "devices_per_node": 4,
        "num_bytes": {"value": 100_000_000, "kind": "assumed", "source": "a test"},
        "step": exactly(0.2),
        "backward": exactly(0.6),
        "rate": exactly(10e9),
        "latency": exactly(1e-9),
        "variation": exactly(1e-9),
    }
    return Anchor(**inputs | more)


def efficiency(gradients=((1.0, 1.0),), num_devices=64, **more):
    return np.median(anchors.predicted_efficiency(anchor(**more), gradients, num_devices))


def test_what_is_not_overlapped_follows_the_step():
    assert efficiency() == pytest.approx(0.2 / (0.2 + 2 * 15 / 16 * 0.01), rel=1e-4)
    assert efficiency(members_per_node=4) == pytest.approx(0.2 / (0.2 + 2 * 63 / 64 * 0.01), rel=1e-4)
    assert efficiency(num_devices=4) == pytest.approx(1.0)


def test_overlap_hides_what_is_ready_early():
    """0.12 s of backpropagation: of two halves of 9.4 ms the first is hidden."""
    halves = [(0.5, 0.5), (0.5, 1.0)]
    assert efficiency(halves, overlap="thread") == pytest.approx(0.2 / (0.2 + 15 / 16 * 0.01), rel=1e-4)
    assert efficiency([(1.0, 0.5)], overlap="thread") == pytest.approx(1.0)


def test_strong_scaling_divides_the_step_and_not_the_exchange():
    own = 0.2 / 16
    assert efficiency(strong=True) == pytest.approx(own / (own + 2 * 15 / 16 * 0.01), rel=1e-4)


def test_the_slowest_of_many_devices_costs_more():
    """The largest of 4 and of 64 draws are 1.03 and 2.4 standard deviations above the mean."""
    fast = exactly(1e15)
    expected = (1 + 1.03 * 0.02) / (1 + 2.4 * 0.02)
    assert efficiency(rate=fast, variation=exactly(0.02)) == pytest.approx(expected, abs=0.003)


def test_points_are_read_as_they_are_published():
    by_name = {one.figure: one for one in ALL.anchors}
    torch = anchors.points(by_name["powerai-ddl-3"], PUBLISHED)
    assert torch[0] == Point(num_devices=16, efficiency=0.86, half_width=0.005)
    assert [point.num_devices for point in torch] == [16, 64, 96, 128, 192, 256]
    (goyal,) = anchors.points(by_name["goyal-8"], PUBLISHED)
    assert (goyal.num_devices, goyal.efficiency) == (352, 0.9)
    edison = anchors.points(by_name["cosmogan-edison"], PUBLISHED)
    assert edison[-1].efficiency == pytest.approx(27.213 / 32 / 0.819)
    assert edison[0].half_width == pytest.approx(0.164 / 2 / 0.819)


def test_every_curve_has_points_and_every_miss_a_cause():
    assert len(ALL.anchors) == 9
    for one in ALL.anchors:
        rows = list(anchors.compared(ALL, one, PUBLISHED))
        assert rows
        assert one.miss or all(row.inside for row in rows)


def test_the_law_is_fitted_to_the_first_points_only():
    law = anchors.law_fit(anchor(), PUBLISHED)
    assert law.point.num_devices == 256
    sizes, known = np.array([4.0, 16.0, 24.0]), np.array([0.86, 0.86, 0.85])
    # No other law of this form is nearer to the three points.
    best = min(
        float(np.square(anchors.law_efficiency(sizes, a, b) - known).sum())
        for a in np.linspace(0, 0.05, 501)
        for b in (0.0, 1e-5, 1e-4)
    )
    contention = (1 / law.predicted - 1) / 63
    assert np.square(anchors.law_efficiency(sizes, contention, 0.0) - known).sum() < 1.02 * best
    assert anchors.law_fit(anchor(figure="goyal-8", series="ResNet-50", base_devices=8), PUBLISHED) is None


@pytest.mark.parametrize(
    ("was", "becomes", "said"),
    [
        ("low = 0.164", "low = 2", "low 2 is above high 0.236"),
        ('gradients = "vgg16"', 'gradients = "vgg"', "no gradients 'vgg'"),
        ("[0.08, 0.001]", "[0.9, 0.001]", "do not add up to 1"),
    ],
)
def test_a_damaged_file_is_one_line(was, becomes, said, tmp_path):
    path = tmp_path / "anchors.toml"
    path.write_text(anchors.FILE.read_text().replace(was, becomes, 1))
    with pytest.raises(UsageError, match=said):
        anchors.load_anchors(path)
