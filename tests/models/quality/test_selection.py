"""The comparison with a selection: by hand, against every threshold, and its interval on toys with a known truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from dlscale.models.quality.selection import (
    BETTER,
    MIN_EFFECTIVE_PASSING,
    NO_DIFFERENCE,
    UNDECIDABLE,
    WORSE,
    compare_with_selection,
    stratify,
)

# Signal, then slice 0 with 9 of 10 parts of the cross section, then slice 1.
BY_HAND = {
    "scores": [9, 7, 5, 3, 6, 2, 1, 0, 8, 4, 4, 1],
    "labels": [1] * 4 + [0] * 8,
    "passes": [1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0],
    "slices": [-1] * 4 + [0] * 4 + [1] * 4,
    "cross_sections_mb": [9e-9, 1e-9],
}


def compare(events, **others):
    return compare_with_selection(**({"num_replicates": 100} | events | others))


def test_efficiencies_by_hand():
    result = compare(BY_HAND)
    assert result.selection_signal_efficiency == 0.5
    assert result.selection_background_efficiency == pytest.approx(0.1 * 2 / 4)
    # The event with score 6 weighs 0.9 / 4 and is too much; above it are one background and two signal events.
    assert result.network_signal_efficiency == 0.5
    assert result.network_background_efficiency == pytest.approx(0.1 / 4)
    assert result.difference == 0
    assert result.background_rejection == pytest.approx(0.95)
    assert (result.num_passing, result.num_background) == (2, 8)
    assert result.effective_passing == pytest.approx(2)
    assert result.effective_background == pytest.approx((4 * 9 + 4 * 1) ** 2 / (4 * 81 + 4 * 1))
    assert result.blind_slices == (0,)


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_the_threshold_is_the_loosest_that_keeps_the_background(seed, resampled):
    """Against every threshold there is, with the events as they are and as a replicate draws them."""
    rng = np.random.default_rng(seed)
    num_events, sigma = 60, np.array([100.0, 5.0, 1.0])
    labels = rng.integers(2, size=num_events)
    labels[:6] = [0, 0, 0, 1, 1, 1]
    slices = rng.integers(3, size=num_events)
    slices[:3] = range(3)
    scores = rng.integers(-5, 6, size=num_events) + 2 * labels  # with ties
    passes = rng.random(num_events) < np.where(labels, 0.5, 0.05)  # often none
    generated = np.bincount(slices[labels == 0], minlength=3) + rng.integers(3)
    order = np.argsort(-scores, kind="stable")  # that in which draws come
    labels, slices, scores, passes = labels[order], slices[order], scores[order], passes[order]
    events = stratify(
        scores, labels, passes=passes, slices=slices, cross_sections_mb=sigma, num_generated=generated
    )
    counts = np.ones(num_events, dtype=np.int64)
    if resampled:
        counts[labels == 0], counts[labels == 1] = events.resample(rng)

    def background_efficiency(chosen):
        chosen = chosen & (labels == 0)
        passing = np.bincount(slices[chosen], weights=counts[chosen], minlength=3)
        return np.sum(sigma * passing / generated) / sigma.sum()

    def signal_efficiency(chosen):
        return counts[chosen & (labels == 1)].sum() / counts[labels == 1].sum()

    allowed = background_efficiency(passes)
    loosest = min(
        threshold
        for threshold in (*np.unique(scores), -np.inf)
        if background_efficiency(scores > threshold) <= allowed * (1 + 1e-9)
    )
    measured = events.measure(counts[labels == 0], counts[labels == 1])
    assert measured.selection_background == pytest.approx(allowed)
    assert measured.selection_signal == pytest.approx(signal_efficiency(passes))
    assert measured.network_signal == pytest.approx(signal_efficiency(scores > loosest))
    assert measured.network_background == pytest.approx(background_efficiency(scores > loosest))
    assert measured.num_accepted == np.sum((scores > loosest) & (labels == 0))


def toy(rng, *, num_background, signal_score, num_signal=500, cut=2.3):
    """A selection on x and a network with score y, normal and correlated; signal is at 2.3 in x, background at 0."""
    labels = np.repeat([1, 0], [num_signal, num_background])
    x, y = rng.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], size=len(labels)).T
    return {
        "scores": y + signal_score * labels,
        "labels": labels,
        "passes": x + 2.3 * labels > cut,
        "slices": np.zeros(len(labels), dtype=np.int64),
        "cross_sections_mb": [1.0],
    }


def test_the_interval_covers_the_truth():
    truth = norm.sf(2.3 - 2.6) - 0.5
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(60):
        result = compare(toy(rng, num_background=800, signal_score=2.6), num_replicates=200)
        low, high = result.difference_interval
        covered += low <= truth <= high
    assert covered >= 0.86 * 60  # nominal 95 %; 99 % of the outcomes at that


@pytest.mark.parametrize(("signal_score", "verdict"), [(4.0, BETTER), (2.3, NO_DIFFERENCE), (1.0, WORSE)])
def test_verdicts(signal_score, verdict):
    result = compare(toy(np.random.default_rng(2), num_background=3000, signal_score=signal_score))
    assert result.verdict == verdict
    low, high = result.difference_interval
    assert low <= result.difference <= high
    assert result.sentence().count(verdict) == 1
    assert f"[{low:+.3f}, {high:+.3f}]" in result.sentence()
    assert f"worth {result.effective_passing:.1f} equal ones" in result.sentence()


def test_the_selection_itself_is_no_different():
    events = toy(np.random.default_rng(3), num_background=1000, signal_score=0)
    result = compare(events | {"scores": events["passes"].astype(float)})
    assert result.difference_interval == (0, 0)
    assert result.verdict == NO_DIFFERENCE


def test_order_does_not_matter_and_the_seed_decides():
    events = toy(np.random.default_rng(4), num_background=400, signal_score=3)
    again = dict(events)
    order = np.random.default_rng(5).permutation(len(events["scores"]))
    for name in ("scores", "labels", "passes", "slices"):
        again[name] = np.asarray(events[name])[order]
    assert compare(events, seed=6) == compare(again, seed=6)
    assert compare(events, seed=6).difference_interval != compare(events, seed=7).difference_interval


def test_events_that_failed_before_may_be_left_out():
    """A file after a preselection, with the number of generated events, tells the same as all events."""
    events = toy(np.random.default_rng(8), num_background=4000, signal_score=3)
    kept = (events["labels"] == 1) | events["passes"] | (events["scores"] > 1)
    part = {name: np.asarray(events[name])[kept] for name in ("scores", "labels", "passes", "slices")}
    whole = compare(events, num_replicates=1000)
    fewer = compare(events | part, num_generated=[4000], num_replicates=1000)
    assert fewer.num_background < whole.num_background
    assert fewer.selection_background_efficiency == pytest.approx(whole.selection_background_efficiency)
    assert fewer.network_signal_efficiency == whole.network_signal_efficiency
    assert fewer.selection_background_limit == pytest.approx(whole.selection_background_limit)
    assert fewer.network_background_unseen == pytest.approx(whole.network_background_unseen, rel=0.05)
    np.testing.assert_allclose(fewer.difference_interval, whole.difference_interval, atol=0.03)


def test_resampling_stays_within_slices():
    events = stratify(
        **{name: BY_HAND[name] for name in BY_HAND if name != "cross_sections_mb"},
        cross_sections_mb=[9, 1],
        num_generated=[4, 40],
    )
    rng = np.random.default_rng(9)
    drawn = [events.resample(rng) for _ in range(2000)]
    background = np.array([counts for counts, _ in drawn])
    per_slice = np.stack([background[:, events.slices == s].sum(axis=1) for s in (0, 1)])
    assert np.all(per_slice[0] == 4)
    assert all(signal.sum() == 4 for _, signal in drawn)
    # In slice 1, 4 of 40 are here: binomial with mean 4 and variance 3.6.
    assert per_slice[1].mean() == pytest.approx(4, abs=4 * np.sqrt(3.6 / 2000))
    assert per_slice[1].var() == pytest.approx(3.6, rel=0.15)
    np.testing.assert_allclose(background.mean(axis=0), 1, atol=0.12)


def test_if_no_background_passes_only_a_limit_is_known():
    events = toy(np.random.default_rng(10), num_background=200, signal_score=9, cut=6)
    result = compare(events)
    assert (result.num_passing, result.selection_background_efficiency) == (0, 0)
    assert result.network_signal_efficiency > 0.9
    assert result.verdict == UNDECIDABLE
    # None of n: the efficiency at which that still happens in 5 % of samples.
    assert result.selection_background_limit == pytest.approx(1 - 0.05 ** (1 / 200))
    assert "rejects every background event here" in result.sentence()
    assert f"below {result.selection_background_limit:.2g} with 95% confidence" in result.sentence()


def heavy_slice(rng, *, highest):
    """A slice 0 that is heavy, none of which passes the selection; its scores reach up to `highest`."""
    num_heavy, num_light, num_signal = 100, 2000, 500
    labels = np.repeat([0, 0, 1], [num_heavy, num_light, num_signal])
    slices = np.repeat([0, 1, -1], [num_heavy, num_light, num_signal])
    scores = np.concatenate(
        [rng.uniform(highest - 1, highest, num_heavy), rng.normal(size=num_light), np.full(num_signal, 5.0)]
    )
    passes = (rng.random(len(labels)) < np.where(labels, 0.5, 0.05)) & (slices != 0)
    return {
        "scores": scores,
        "labels": labels,
        "passes": passes,
        "slices": slices,
        "cross_sections_mb": [1e3, 1.0],
    }


def test_a_threshold_just_above_a_heavy_event_is_not_trusted():
    result = compare(heavy_slice(np.random.default_rng(11), highest=4.0))
    assert result.network_signal_efficiency == 1
    assert result.difference_interval[0] > 0
    assert result.network_background_efficiency <= result.selection_background_efficiency
    assert result.network_background_unseen > 10 * result.selection_background_efficiency
    assert result.verdict == UNDECIDABLE
    assert "on events that did not choose the threshold" in result.sentence()


def test_heavy_events_far_below_the_threshold_do_no_harm():
    result = compare(heavy_slice(np.random.default_rng(11), highest=-1.0))
    assert result.network_background_unseen == pytest.approx(result.selection_background_efficiency, rel=0.1)
    assert result.verdict == BETTER
    assert result.blind_slices == (0,)
    assert "no event of slice 0 passes, though one would outweigh all that do" in result.sentence()
    assert result.selection_background_limit > 100 * result.selection_background_efficiency


def test_a_handful_of_events_is_too_few_to_be_better_but_not_to_be_worse():
    better = compare(toy(np.random.default_rng(2), num_background=3000, signal_score=4))
    few = replace(better, effective_passing=MIN_EFFECTIVE_PASSING - 0.1)
    assert (better.verdict, few.verdict) == (BETTER, UNDECIDABLE)
    assert "add background events" in few.sentence()
    assert replace(few, difference_interval=(-0.2, -0.1)).verdict == WORSE


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"labels": [1] * 12}, "need signal and background, got 12 signal of 12"),
        ({"passes": [2] + [0] * 11}, "selection flag must be 1"),
        ({"passes": [0]}, "selection flags"),
        ({"slices": [-1] * 4 + [0] * 4 + [2] * 4}, "must be 0 to 1"),
        ({"slices": [-1] * 4 + [0] * 8}, "each slice needs one"),
        ({"num_generated": [4, 3]}, "no fewer than are here"),
        ({"num_generated": [4]}, "generated in 2 slices"),
        ({"cross_sections_mb": [1, 0]}, "cross sections must be positive"),
        ({"scores": [np.nan] + [0] * 11}, "1 of 12 scores are not finite"),
        ({"num_replicates": 99}, "too few for a 95 % interval"),
    ],
)
def test_wrong_events_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        compare(BY_HAND, **wrong)
