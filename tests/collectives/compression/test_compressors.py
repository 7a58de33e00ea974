"""What holds of every compressor, and each against a reference in plain NumPy."""

import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.collectives.compression import COMPRESSORS, Compression
from dlscale.collectives.compression.halves import BFLOAT16, FLOAT16, from_halves, to_halves

OPTIONS = {
    "fp16": {},
    "bf16": {},
    "topk": {"topk_share": 0.02},
    "threshold": {"threshold": 0.5},
    "qsgd": {"qsgd_levels": 7},
}
COUNTS = [1, 2, 31, 1000, 70_001]


def test_all_compressors_are_looked_at():
    assert set(OPTIONS) == set(COMPRESSORS) - {"none"}


@pytest.fixture(params=list(OPTIONS))
def compressor(request):
    return Compression(compression=request.param, **OPTIONS[request.param]).compressor()


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("compressor", sorted(set(OPTIONS) - {"qsgd"}), indirect=True)
def test_nothing_is_lost_on_the_way(compressor, ranks, gradients, count):
    """The means of all steps and the last residuals are the gradients' sum."""
    group = ranks(2)
    applied, given = np.zeros(count), np.zeros(count)
    for step in range(6):
        buckets = [gradients(count, rank, step) for rank in range(2)]
        given += np.mean(buckets, axis=0, dtype=np.float64)
        applied += group.average(compressor, buckets)
    left = np.mean(
        [state.get("residual", np.zeros(count)) for state in group.states], axis=0, dtype=np.float64
    )
    # What rounds the mean itself, by 2^-9 of it and step in bfloat16, is not fed back.
    allowed = 2**-8 * np.abs(given).max() if "Halves" in type(compressor).__name__ else 1e-5
    np.testing.assert_allclose(applied + left, given, rtol=2e-6, atol=allowed)


def test_the_same_numbers_are_the_same_messages(compressor, ranks, gradients):
    buckets = [gradients(5000, rank) for rank in range(3)]
    first, second = (ranks(3).average(compressor, buckets) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_not_hidden(compressor, ranks, gradients, value):
    """A training that diverged must be seen to."""
    bucket = gradients(5000)
    bucket[77] = value
    assert not np.isfinite(ranks(1).average(compressor, [bucket])).all()


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("share", [0.01, 0.3, 1.0])
def test_topk_sends_the_largest(ranks, gradients, count, share):
    bucket, group = gradients(count), ranks(2)
    compressor = Compression(compression="topk", topk_share=share).compressor()
    mean = group.average(compressor, [bucket, np.zeros_like(bucket)])
    kept = max(1, round(share * count))
    expected = np.zeros_like(bucket)
    largest = np.argsort(np.abs(bucket))[count - kept :]
    expected[largest] = bucket[largest] / 2
    np.testing.assert_array_equal(mean, expected)
    np.testing.assert_array_equal(group.states[0]["residual"], np.where(expected != 0, 0, bucket))
    assert group.num_bytes == [8 * kept] * 2


@pytest.mark.parametrize("sorted_up", [True, False])
def test_topk_of_what_a_sample_misleads_about(ranks, sorted_up):
    """All the large ones lie between the sampled places, or in one block."""
    bucket = np.linspace(0, 1, 100_000, dtype=np.float32)
    if not sorted_up:
        bucket[::7] = 5
        bucket[1::7] = 0
    mean = ranks(1).average(Compression(compression="topk").compressor(), [bucket])
    assert np.count_nonzero(mean) == 1000
    assert np.abs(mean[mean != 0]).min() >= np.sort(bucket)[-1000]


@pytest.mark.parametrize("count", COUNTS)
def test_threshold_sends_tau(ranks, gradients, count):
    bucket, group = gradients(count), ranks(2)
    compressor = Compression(compression="threshold", threshold=0.75).compressor()
    mean = group.average(compressor, [bucket, np.zeros_like(bucket)])
    sent = np.where(np.abs(bucket) > 0.75, np.sign(bucket) * np.float32(0.75), np.float32(0))
    np.testing.assert_array_equal(mean, sent / 2)
    np.testing.assert_array_equal(group.states[0]["residual"], bucket - sent)
    assert group.num_bytes == [4 * np.count_nonzero(sent), 0]


@pytest.mark.parametrize(("levels", "bits"), [(1, 2), (7, 4), (127, 8)])
@pytest.mark.parametrize("count", COUNTS)
def test_qsgd_rounds_to_levels_and_is_right_on_average(ranks, gradients, levels, bits, count):
    bucket, group = gradients(count), ranks(1)
    compressor = Compression(compression="qsgd", qsgd_levels=levels).compressor()
    scales = np.repeat([np.abs(chunk).max() for chunk in np.split(bucket, range(512, count, 512))], 512)[
        :count
    ]
    total, num_draws = np.zeros(count), 20
    for _ in range(num_draws):
        sent = group.average(compressor, [bucket])
        found = sent / scales * levels
        np.testing.assert_allclose(found, np.round(found), atol=1e-4)
        assert (np.abs(sent - bucket) <= 1.001 * scales / levels).all()
        total += sent
    # The mean of the draws is off by their standard error, at most half a level each.
    errors = (total / num_draws - bucket) / (scales / levels)
    assert abs(errors.mean()) < 5 * 0.5 / np.sqrt(num_draws * count)
    assert np.sqrt(np.mean(errors**2)) < 2 * 0.5 / np.sqrt(num_draws)
    assert group.states[0]["drawn"] == [num_draws]
    pair = ranks(2)
    pair.average(compressor, [bucket] * 2)
    assert pair.num_bytes == [-(-count // 512) * (4 + 64 * bits)] * 2


def test_bfloat16_is_rounded_as_torch_does(gradients):
    torch = pytest.importorskip("torch")
    values = np.concatenate([gradients(5000), np.array([0, -0.0, np.inf, -np.inf, 3e38], np.float32)])
    expected = torch.from_numpy(values).to(torch.bfloat16).to(torch.float32).numpy()
    np.testing.assert_array_equal(from_halves(to_halves(values, BFLOAT16)), expected)


def test_float16_is_rounded_as_numpy_does():
    """All numbers of float16, what lies halfway between two, and either side of it."""
    exact = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    between = (exact[1:] + exact[:-1]) / 2
    values = np.concatenate([exact, between, np.nextafter(between, 0), np.nextafter(between, exact[1:])])
    values = np.concatenate([values, -values, np.array([1e-40], np.float32)])
    halves = to_halves(values, FLOAT16)
    np.testing.assert_array_equal(halves.view(np.uint16), values.astype(np.float16).view(np.uint16))
    np.testing.assert_array_equal(from_halves(halves), halves.astype(np.float32))


@pytest.mark.parametrize("kind", [FLOAT16, BFLOAT16])
def test_no_number_stays_none_in_halves(kind):
    values = np.array([0x7FC00000, 0xFFC00000, 0x7FFFFFFF], np.uint32).view(np.float32)
    assert np.isnan(from_halves(to_halves(values, kind))).all()


def test_what_float16_cannot_hold_comes_later(ranks):
    group, compressor = ranks(2), Compression(compression="fp16").compressor()
    bucket = np.array([100_000, 1, -1e-9], np.float32)
    first = group.average(compressor, [bucket, np.zeros_like(bucket)])
    assert first.tolist() == [65504 / 4, 0.5, 0.0]  # not more than a sum of both may be
    total = first.astype(np.float64)
    for _ in range(6):
        total += group.average(compressor, [np.zeros_like(bucket)] * 2)
    np.testing.assert_allclose(total[:2], bucket[:2] / 2, rtol=1e-3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"compression": "zip"},
            "compression is 'zip'; choose from: none, fp16, bf16, topk, threshold, qsgd",
        ),
        ({"compression": "topk", "topk_share": 0.0}, "topk_share is 0.0; give more than 0 and at most 1"),
        ({"compression": "topk", "topk_share": 1.5}, "topk_share is 1.5; give more than 0 and at most 1"),
        ({"compression": "threshold"}, "threshold is 0; give more than 0"),
        ({"compression": "threshold", "threshold": -1.0}, "threshold is -1; give more than 0"),
        ({"compression": "qsgd", "qsgd_levels": 0}, "qsgd_levels is 0; give 1 to 127"),
        ({"compression": "qsgd", "qsgd_levels": 128}, "qsgd_levels is 128; give 1 to 127"),
    ],
)
def test_a_wrong_option_is_one_line(options, words):
    with pytest.raises(UsageError, match=words):
        Compression(**options)


@pytest.mark.parametrize(
    ("training", "framework"),
    [({"pipelined": True, "teams": -1}, "torch"), ({"pipelined": False, "teams": 1}, "tensorflow")],
)
def test_what_does_not_go_together_is_refused(training, framework):
    compression = Compression(compression="topk")
    with pytest.raises(UsageError, match="leave one of them out"):
        compression.check(**training, framework=framework)
    compression.check(pipelined=False, teams=-1, framework=framework)
    Compression().check(**training, framework=framework)
