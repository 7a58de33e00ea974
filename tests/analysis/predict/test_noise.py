"""Noise that was planted into steps, ranks and calls is found again, and what cannot be known says so."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtri

from dlscale.analysis.predict.measured import profile_of
from dlscale.analysis.predict.noise import (
    Noise,
    noise_of,
    noise_of_steps,
    normal_quantile,
    rare_events,
    slowest,
)
from dlscale.analysis.predict.prediction import sensitivity
from dlscale.analysis.predict.scenario import noise_texts
from tests.analysis.made_scenarios import NETWORK, PROFILE, scenario
from tests.made_records import make_record, profile_record


def disturbed_steps(count=6000, probability=0.01, least=0.3, size=0.5, seed=3):
    """Steps of 0.2 s that vary by 2 %, some of which take longer, on average by 0.8 of a step."""
    rng = np.random.default_rng(seed)
    longer = np.where(rng.random(count) < probability, least + rng.exponential(size, count), 0.0)
    return 0.2 * (np.exp(rng.normal(0, 0.02, count)) + longer)


@pytest.mark.parametrize("seed", range(3))
def test_planted_rare_events_are_found_with_their_rate_and_length(seed):
    noise = noise_of_steps(tuple(disturbed_steps(seed=seed)), (0.0, 0.0))
    assert noise.rare_probability == pytest.approx(0.01, rel=0.3)  # 60 events
    assert noise.rare_least == pytest.approx(0.3, abs=0.05)
    assert noise.rare_size == pytest.approx(0.5, rel=0.3)
    assert np.quantile(noise.steps, 0.998) < 1.07  # of the events only those that were neighbours are left
    rng = np.random.default_rng(0)
    assert slowest(noise, 1, (2000, 20), rng).mean() == pytest.approx(1, rel=0.005)
    # Of 8,192 ranks 82 have an event: the longest of 82 exponentials.
    most = 1 + 0.3 + 0.5 * (np.log(82) + 0.58)
    assert slowest(noise, 8192, (500, 20), rng).mean() == pytest.approx(most, rel=0.25)


def test_the_normal_quantile_is_exact_far_into_both_tails():
    probabilities = np.concatenate([np.geomspace(1e-20, 0.5, 997), 1 - np.geomspace(1e-12, 0.5, 997)])
    assert normal_quantile(probabilities) == pytest.approx(ndtri(probabilities), abs=1e-6)


@pytest.mark.parametrize("draw", ["normal", "exponential"])
def test_a_tail_alone_has_no_rare_events(draw):
    rng = np.random.default_rng(4)
    with_any = [rare_events(1 + 0.05 * getattr(rng, draw)(size=300)).any() for _ in range(200)]
    assert np.mean(with_any) < 0.05


def test_neighbours_are_one_disturbance_and_no_events():
    steps = np.exp(np.random.default_rng(5).normal(0, 0.02, 600))
    steps[[100, 101, 102, 103]] += 1.0
    steps[[200, 300, 400]] += 1.0
    assert np.flatnonzero(rare_events(steps)).tolist() == [200, 300, 400]
    noise = noise_of_steps(tuple(steps), (0.0, 0.0))
    assert noise.rare_least + noise.rare_size == pytest.approx(1 / steps.mean(), rel=0.05)
    assert max(noise.steps) > 1.8


def test_too_few_events_are_no_measurement_and_none_is_one():
    steps = np.exp(np.random.default_rng(6).normal(0, 0.02, 600))
    assert any("no rare event in 600 steps, so at most 0.5 %" in text for text in _measured(steps))
    steps[[100, 300]] += 1.0
    noise = noise_of(replace(PROFILE, step_seconds=tuple(steps)))
    assert (noise.rare_probability, len(noise.steps)) == (0.0, 600)
    assert any("rare events (2 of 600 steps, which are too few" in text for text in noise.not_measured)
    steps[[400]] += 1.0
    assert any("rare events: 3 of 600 steps, which take" in text for text in _measured(steps))


def _measured(steps):
    return noise_of(replace(PROFILE, step_seconds=tuple(steps))).measured


NUM_RANKS, LASTING, PASSING = 16, 0.04, 0.03


@pytest.fixture
def ranks_record():
    """A launch of `none` whose ranks differ for good, and by as much again in every launch."""
    lasting = np.random.default_rng(7).normal(0, LASTING, 64)

    def make(block, num_ranks=NUM_RANKS, **fields):
        passing = np.random.default_rng([8, block]).normal(0, PASSING, num_ranks)
        seconds = 5 * 8 * num_ranks / 100.0
        delays = seconds * (np.exp(lasting[:num_ranks] + passing) - 1)
        return make_record(num_ranks=num_ranks, block=block, rank_delays=delays.tolist(), **fields)

    make.lasting = float(np.std(lasting[:NUM_RANKS], ddof=1))
    return make


def test_planted_differences_between_ranks_are_found_without_those_of_a_launch(ranks_record):
    records = [ranks_record(block) for block in range(6)]
    profile = profile_of([profile_record(), *records], "hep_cnn", "torch")
    assert profile.rank_variation == pytest.approx(ranks_record.lasting, rel=0.15)
    assert profile.rank_variation_source == "launches of none: 6 on 16 ranks"
    assert noise_of(profile).static == profile.rank_variation
    # What changes from launch to launch does not last.
    nothing = [
        ranks_record(block, num_ranks=4).model_copy(update={"ranks": ranks})
        for block, ranks in enumerate(
            [rank.model_copy(update={"node": f"n{block}"}) for rank in ranks_record(0, num_ranks=4).ranks]
            for block in range(6)
        )
    ]
    assert profile_of([profile_record(), *nothing], "hep_cnn", "torch").rank_variation is None


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        ([], "no two launches of backend none"),
        ([{}], "no two launches of backend none"),
        ([{"num_ranks": 2}, {"num_ranks": 2}], "on the same 4 ranks or more"),
        ([{"oversubscribed": True}] * 2, "with cores of their own"),
        ([{"backend": "ring"}] * 2, "backend none"),
        ([{"preset": "small"}] * 2, "backend none"),
        ([{"failure": "killed"}] * 2, "backend none"),
    ],
)
def test_differences_that_no_launches_show_are_not_measured(ranks_record, plan, why):
    records = [ranks_record(block, **fields) for block, fields in enumerate(plan)]
    profile = profile_of([profile_record(), *records], "hep_cnn", "torch")
    assert profile.rank_variation is None
    assert any(why in text for text in noise_of(profile).not_measured)


@pytest.mark.parametrize(
    ("noise", "network"),
    [
        (Noise(static=0.05), {}),
        (noise_of_steps(tuple(disturbed_steps(2000)), (0.0, 0.0)), {}),
        (Noise(rare_probability=0.01, rare_least=0.5), {}),
        (Noise(), {"message_jitter_seconds": 1e-4}),
    ],
    ids=["static", "steps and rare", "rare", "messages"],
)
def test_half_of_each_kind_of_noise_is_another_efficiency(noise, network):
    gradients = (replace(PROFILE.gradients[0], num_bytes=4_000_000),)
    own = scenario(
        noise=noise, network=replace(NETWORK, **network), profile=replace(PROFILE, gradients=gradients)
    )
    changed = sensitivity(own, 64)
    assert changed["half the jitter"] - changed["as it is"] > 0.01


def test_what_was_not_measured_is_said_and_is_no_zero():
    stored = scenario(noise=noise_of(PROFILE))
    measured, not_measured = noise_texts(stored)
    assert (measured, len(not_measured)) == ([], 3)  # ranks, rare events, messages
    known = replace(stored, network=replace(NETWORK, message_jitter_seconds=2e-6))
    assert noise_texts(known) == (["messages are late by 2 us in the mean"], not_measured[:2])


@pytest.mark.parametrize("num_ranks", [1, 16, 512])
@pytest.mark.parametrize("noise", [Noise(variation=(0.05, 0.05)), Noise(variation=(0.03, 0.03), static=0.04)])
def test_the_slowest_of_many_lognormal_ranks_is_that_of_many_draws(noise, num_ranks):
    rng = np.random.default_rng(5)
    drawn = np.exp(rng.normal(-(0.05**2) / 2, 0.05, (4000, num_ranks))).max(axis=1)
    mean = slowest(noise, num_ranks, (400, 50), rng).mean()
    assert mean == pytest.approx(drawn.mean(), rel=0.005)


def test_measured_steps_are_resampled_and_their_tail_goes_on():
    rng = np.random.default_rng(7)
    steps = 1 + rng.exponential(0.05, 2000)
    noise = noise_of_steps(tuple(steps), (0.0, 0.0))
    mean = steps.mean()
    assert slowest(noise, 1, (2000, 20), rng).mean() == pytest.approx(1, rel=0.005)
    for num_ranks in (64, 8192):  # E[max] of exponentials: the harmonic number
        expected = (1 + 0.05 * (np.log(num_ranks) + 0.5772)) / mean
        assert slowest(noise, num_ranks, (2000, 20), rng).mean() == pytest.approx(expected, rel=0.03)


def test_rare_events_hit_many_ranks_often():
    rng = np.random.default_rng(8)
    noise = Noise(rare_probability=1e-4, rare_size=0.5)
    assert slowest(noise, 1, (2000, 20), rng).mean() == pytest.approx(1, abs=0.001)
    hit = (slowest(noise, 8192, (2000, 20), rng) > 1).mean()
    assert hit == pytest.approx(1 - (1 - 1e-4) ** 8192, abs=0.01)


def test_backup_workers_save_the_wait_for_the_slowest():
    rng = np.random.default_rng(9)
    noise = Noise(variation=(0.1, 0.1))
    all_ranks = slowest(noise, 64, (2000, 20), rng).mean()
    assert slowest(noise, 64, (2000, 20), rng, num_dropped=4).mean() < all_ranks - 0.05


def test_half_the_noise_is_half_as_far_from_the_mean():
    rare = {"rare_probability": 0.1, "rare_least": 0.4}
    noise = Noise(steps=(0.9, 1.1), variation=(0.1, 0.2), static=0.1, rare_size=1.0, **rare)
    half = noise.scaled(0.5)
    assert half == Noise(
        steps=(0.95, 1.05), variation=(0.05, 0.1), static=0.05, rare_size=0.5, **rare | {"rare_least": 0.2}
    )


def test_a_few_steps_are_no_distribution():
    assert noise_of_steps((0.3, 0.4), (0.01, 0.1)) == Noise(variation=(0.01, 0.1))
