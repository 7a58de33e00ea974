"""Noise that was planted into steps, ranks and calls is found again, and what cannot be known says so."""

from dataclasses import replace

import numpy as np
import pytest

from dlscale.analysis.predict.backend_rules import rule_of
from dlscale.analysis.predict.measured_profiles import profile_of
from dlscale.analysis.predict.network import Network
from dlscale.analysis.predict.noise import Noise, noise_of, noise_of_steps, rare_events, slowest
from dlscale.analysis.predict.prediction import predict_curve
from dlscale.analysis.predict.profile import Gradient, Profile
from dlscale.analysis.predict.render import explanation, prediction_rows, profile_lines
from dlscale.analysis.predict.scenario import Scenario

PROFILE = Profile(
    workload="hep_cnn",
    preset="paper",
    framework="torch",
    local_batch=10,
    forward_seconds=0.1,
    backward_seconds=0.3,
    update_seconds=0.02,
    gradients=(Gradient(name="all", num_bytes=4_000_000, ready_seconds=0.3),),
    step_seconds=(0.32,),
    evidence="measured",
    source="a test",
)


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
def ranks_record(make_record):
    """A launch of `none` whose ranks differ for good, and by as much again in every launch."""
    lasting = np.random.default_rng(7).normal(0, LASTING, 64)

    def make(block, num_ranks=NUM_RANKS, **fields):
        passing = np.random.default_rng([8, block]).normal(0, PASSING, num_ranks)
        seconds = 5 * 8 * num_ranks / 100.0
        delays = seconds * (np.exp(lasting[:num_ranks] + passing) - 1)
        return make_record(num_ranks=num_ranks, block=block, rank_delays=delays.tolist(), **fields)

    make.lasting = float(np.std(lasting[:NUM_RANKS], ddof=1))
    return make


def test_planted_differences_between_ranks_are_found_without_those_of_a_launch(ranks_record, profile_record):
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
def test_differences_that_no_launches_show_are_not_measured(ranks_record, profile_record, plan, why):
    records = [ranks_record(block, **fields) for block, fields in enumerate(plan)]
    profile = profile_of([profile_record(), *records], "hep_cnn", "torch")
    assert profile.rank_variation is None
    assert any(why in text for text in noise_of(profile).not_measured)


def scenario(noise, **network):
    return Scenario(
        network=Network(
            name="switch",
            num_nodes=4096,
            node_bytes_per_second=1e9,
            latency_seconds=10e-6,
            node_memory_bytes_per_second=1e10,
            reduce_seconds_per_byte=0.0,
            **network,
        ),
        profile=PROFILE,
        noise=noise,
        rule=rule_of("gloo", {}, framework="torch", num_servers=1, spare_core=True),
        scaling_mode="weak",
        batch=10,
        num_replicates=200,
    )


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
    curve = predict_curve(scenario(noise, **network), [64], explain=True)
    gained = curve.sensitivity["half the jitter"] - curve.sensitivity["as it is"]
    assert gained > 0.01
    assert (
        f"half the jitter {100 * curve.sensitivity['half the jitter']:.1f} %" in list(explanation(curve))[-1]
    )


def test_what_was_not_measured_is_said_and_is_no_zero():
    stored = scenario(noise_of(PROFILE))
    (line,) = profile_lines(stored)
    assert line.startswith(
        "noise, not measured: ranks that differ for good (a stored profile is of one rank);"
    )
    assert "rare events (the profile has no single steps)" in line
    assert "jitter of messages (it takes --calibrate with a run of dlscale collectives)" in line
    (row,) = prediction_rows([predict_curve(stored, [2])])
    assert (row["noise"], row["noise_not_measured"]) == ("", line.removeprefix("noise, not measured: "))
    known = scenario(replace(stored.noise, not_measured=()), message_jitter_seconds=2e-6)
    assert list(profile_lines(known)) == ["noise: messages are late by 2 us in the mean"]
