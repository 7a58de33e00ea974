"""Noise that was planted into steps, ranks and calls is found again, and what cannot be known says so."""

from dataclasses import replace

import numpy as np
import pytest

from dlscale.analysis.predict.measured import profile_of
from dlscale.analysis.predict.noise import (
    Noise,
    noise_of,
    noise_of_steps,
    noise_origins,
    slowest,
)
from dlscale.analysis.predict.prediction import predict_curve
from dlscale.analysis.predict.scenario import origins_of
from tests.analysis.made_scenarios import NETWORK, PROFILE, scenario
from tests.made_records import make_record, profile_record

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
    (told,) = [it for it in noise_origins(profile, noise_of(profile)) if it.kind == "not modelled"]
    assert why in told.source


@pytest.mark.parametrize(
    ("noise", "network"),
    [
        (Noise(static=0.05), {}),
        (noise_of_steps(tuple(np.random.default_rng(3).lognormal(0, 0.1, 300)), (0.0, 0.0)), {}),
        (Noise(), {"message_jitter_seconds": 1e-4}),
    ],
    ids=["static", "steps", "messages"],
)
def test_half_of_each_kind_of_noise_is_another_efficiency(noise, network):
    gradients = (replace(PROFILE.gradients[0], num_bytes=4_000_000),)
    own = scenario(
        noise=noise, network=replace(NETWORK, **network), profile=replace(PROFILE, gradients=gradients)
    )
    changed = predict_curve(own, [64], explain=True).sensitivity
    assert changed["half the jitter"] - changed["as it is"] > 0.01


def test_what_was_not_measured_is_said_and_is_no_zero():
    stored = scenario(noise=noise_of(PROFILE))
    missing = [it.input for it in origins_of(stored) if it.kind == "not modelled"]
    assert missing == ["permanently slower ranks", "jitter of messages"]
    known = replace(stored, network=replace(NETWORK, message_jitter_seconds=2e-6))
    assert [it.input for it in origins_of(known) if it.kind == "not modelled"] == missing[:1]


@pytest.mark.parametrize("num_ranks", [1, 16, 512])
@pytest.mark.parametrize("noise", [Noise(variation=(0.05, 0.05)), Noise(variation=(0.03, 0.03), static=0.04)])
def test_the_slowest_of_many_lognormal_ranks_is_that_of_many_draws(noise, num_ranks):
    rng = np.random.default_rng(5)
    drawn = np.exp(rng.normal(-(0.05**2) / 2, 0.05, (4000, num_ranks))).max(axis=1)
    mean = slowest(noise, num_ranks, (400, 50), (5,)).mean()
    assert mean == pytest.approx(drawn.mean(), rel=0.005)


def test_measured_steps_are_resampled_and_their_tail_goes_on():
    rng = np.random.default_rng(7)
    steps = 1 + rng.exponential(0.05, 2000)
    noise = noise_of_steps(tuple(steps), (0.0, 0.0))
    mean = steps.mean()
    assert slowest(noise, 1, (2000, 20), (5,)).mean() == pytest.approx(1, rel=0.005)
    for num_ranks in (64, 8192):  # E[max] of exponentials: the harmonic number
        expected = (1 + 0.05 * (np.log(num_ranks) + 0.5772)) / mean
        assert slowest(noise, num_ranks, (2000, 20), (5,)).mean() == pytest.approx(expected, rel=0.03)


def test_backup_workers_save_the_wait_for_the_slowest():
    noise = Noise(variation=(0.1, 0.1))
    all_ranks = slowest(noise, 64, (2000, 20), (5,)).mean()
    assert slowest(noise, 64, (2000, 20), (5,), num_dropped=4).mean() < all_ranks - 0.05


def test_half_the_noise_is_half_as_far_from_the_mean():
    half = Noise(steps=(0.9, 1.1), variation=(0.1, 0.2), static=0.1).scaled(0.5)
    assert half == Noise(steps=(0.95, 1.05), variation=(0.05, 0.1), static=0.05)


def test_a_few_steps_are_no_distribution():
    assert noise_of_steps((0.3, 0.4), (0.01, 0.1)) == Noise(variation=(0.01, 0.1))
