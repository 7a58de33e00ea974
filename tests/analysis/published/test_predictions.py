"""Curves from inputs that are known: what exchange, overlap, scaling and the slowest device cost."""

import numpy as np
import pytest

from dlscale.analysis.published.claims import Range, load_publication
from dlscale.analysis.published.networks import Part, parts_of
from dlscale.analysis.published.predictions import (
    Predictions,
    band_of,
    drawn,
    predicted_curves,
    scenario_of_curve,
)
from dlscale.analysis.published.values import FOLDER

from .conftest import exactly, network, publication


def efficiency(*shares, size=64, **more):
    predictions = Predictions(publication(**more), network(*shares))
    return np.median(predictions.replicates("a curve", size).efficiency)


def test_what_is_not_overlapped_follows_the_step():
    assert efficiency() == pytest.approx(0.2 / (0.2 + 2 * 15 / 16 * 0.01), rel=1e-4)
    assert efficiency(flat=True) == pytest.approx(0.2 / (0.2 + 2 * 63 / 64 * 0.01), rel=1e-4)
    assert efficiency(size=4) == pytest.approx(1.0)
    assert efficiency(size=4, flat=True, base=1) == pytest.approx(1.0)  # nothing leaves the server


def test_overlap_hides_what_is_ready_early():
    """0.12 s of backpropagation: of two halves of 9.4 ms the first is hidden."""
    halves = [(0.5, 0.5), (0.5, 1.0)]
    assert efficiency(*halves, overlap="thread") == pytest.approx(0.2 / (0.2 + 15 / 16 * 0.01), rel=1e-4)
    assert efficiency((1.0, 0.5), overlap="thread") == pytest.approx(1.0)


def test_a_step_late_an_exchange_has_the_whole_of_the_next_step():
    """0.16 s are longer than backpropagation and shorter than a step of 0.2 s."""
    late = {"overlap": "next_step", "inputs": {"rate": exactly(1.2e9)}}
    assert efficiency(**late) == pytest.approx(1.0)
    assert efficiency(**late | {"inputs": {"rate": exactly(0.6e9)}}) == pytest.approx(0.64, rel=1e-3)


def test_strong_scaling_divides_the_step_and_not_the_exchange():
    own = 0.2 / 16
    assert efficiency(strong=True) == pytest.approx(own / (own + 2 * 15 / 16 * 0.01), rel=1e-4)
    weak, strong = (
        Predictions(publication(strong=mode), network()).replicates("a curve", 4) for mode in (False, True)
    )
    assert np.median(weak.samples_per_second) == pytest.approx(4 * 32 / 0.2)
    assert np.median(strong.samples_per_second) == pytest.approx(32 / 0.2)


def test_the_slowest_of_many_devices_costs_more():
    """The largest of 4 and of 64 draws are 1.03 and 2.4 standard deviations above the mean."""
    inputs = {"rate": exactly(1e15), "variation": exactly(0.02)}
    expected = (1 + 1.03 * 0.02) / (1 + 2.4 * 0.02)
    assert efficiency(inputs=inputs) == pytest.approx(expected, abs=0.003)


@pytest.mark.parametrize(("count", "fullest"), [(1, 16), (4, 4), (64, 1)])
def test_servers_are_never_more_than_workers(count, fullest):
    names = {"servers": "servers", "threads": "servers"}
    found = efficiency(inputs={"servers": exactly(count)}, algorithm="parameter_servers", **names)
    assert found == pytest.approx(0.2 / (0.2 + 2 * fullest * 0.01), rel=1e-4)


def test_each_variable_is_a_message_to_a_server():
    served = {"backend": "grpc_ps", "servers": "servers", "threads": "servers"}
    mark = publication({"servers": exactly(1)}, algorithm="parameter_servers", **served)

    def kept(num_variables):
        parts = [Part(num_bytes=1000, ready=1.0, num_variables=num_variables)]
        return np.median(Predictions(mark, lambda _: parts).replicates("a curve", 64).efficiency)

    assert kept(100) < 0.5 < 0.9 < kept(1)


def test_an_input_is_drawn_once_for_all_curves_that_have_it():
    limits = Range.model_validate(exactly(1.0) | {"high": 2.0})
    assert np.array_equal(drawn("rate", limits), drawn("rate", limits))
    assert abs(np.corrcoef(drawn("rate", limits).ravel(), drawn("latency", limits).ravel())[0, 1]) < 0.1


def test_a_curve_on_a_system_is_what_predict_says(published):
    mark = load_publication(FOLDER / "claims" / "cug18-cori.toml", published)
    predictions = Predictions(mark)
    weak = predictions.replicates("Horovod over MPI", 1024)
    quiet = predictions.replicates("Horovod over MPI", 1024, changed="half the jitter")
    assert 0.7 < np.median(weak.efficiency) < np.median(quiet.efficiency) < 1
    # 40 ms per sample, and an update
    one = predictions.replicates("Horovod over MPI", 1)
    assert np.median(one.samples_per_second) == pytest.approx(25, rel=0.01)
    rule = scenario_of_curve(mark.curve("Horovod over MPI")).rule
    assert (rule.backend, rule.cycle_seconds, rule.limits[0]) == ("horovod", 0.005, 64 << 20)


def test_a_node_without_a_stored_profile_has_the_whole_band_of_other_network(published):
    """0.395 to 2 TFLOP/s on a node of Cori: the rate is as uncertain, the efficiency is not."""
    mark = load_publication(FOLDER / "claims" / "cug18-cosmogan-cori.toml", published)
    one = Predictions(mark).replicates("Horovod over MPI", 1)
    rate, efficiency = band_of(one.samples_per_second), band_of(one.efficiency)
    assert rate.high / rate.low == pytest.approx((2 / 0.395) ** 0.9, rel=0.1)  # 5 to 95 % of its logarithm
    assert efficiency.low > 0.9
    assert "operations per second of other networks" in " ".join(mark.assumed("Horovod over MPI"))
    (curve, *_) = predicted_curves(published, [mark])
    assert curve.assumed == mark.assumed(curve.label)


def test_what_is_assumed_of_devices_is_said():
    mark = publication(inputs={"rate": exactly(10e9) | {"kind": "text", "unit": "B/s"}})
    texts = mark.assumed("a curve")
    assert "step: 0.2 to 0.2 " in texts
    assert "how gradients travel" in texts
    assert not [text for text in texts if text.startswith("rate")]


@pytest.mark.parametrize(
    ("name", "millions", "early"),
    [
        # torchvision's documentation counts the weights; of VGG-16 the dense layers, of Inception v3 the narrow blocks
        # have most of them, and are ready first.
        ("vgg16", 138.358, 0.85),
        ("resnet101", 44.549, 0.2),
        ("resnet152", 60.193, 0.2),
        ("inception_v3", 27.161, 0.7),
    ],
)
def test_gradients_of_networks_are_ready_as_their_layers_are(name, millions, early):
    """Not as many bytes as operations: a quarter of backpropagation is more than a quarter of the bytes, or less."""
    parts = parts_of(name)
    total = sum(part.num_bytes for part in parts)
    assert total / 4e6 == pytest.approx(millions, abs=1e-3)
    assert sum(part.num_bytes for part in parts if part.ready < 0.27) / total > early
    assert [part.ready for part in parts] == sorted(part.ready for part in parts)
    assert parts[-1].ready == 1
