"""Draws of the gradient noise: right norms, the same on any number of ranks, and none the wiser in the training.

Ranks are threads; a replica is a quadratic whose samples depend on shard and step, so that its noise is known.
"""

from types import SimpleNamespace

import numpy as np
import pytest

from dlscale.analysis.findings.noise_scale import gradient_estimates
from dlscale.benchmarks.rank.noise import NoiseMeter, num_draws, square_norms, unmeasurable_because
from dlscale.benchmarks.records.target import GradientNoise
from dlscale.collectives import capabilities
from dlscale.collectives.registry import connect
from dlscale.models import load_workload
from dlscale.models.samples import shard_indices
from dlscale.models.workload import Execution, Shard
from tests.benchmarks.rank.threads import on_ranks

LOCAL_BATCH = 4
NUM_SAMPLES = 20_000
COVARIANCE = np.array([4.0, 1.0, 0.25, 9.0, 2.0])  # its diagonal; the trace is 16.25
WEIGHTS = np.array([1.0, -0.5, 0.5, 0.25, 0.0])  # the gradient of a quadratic around 0


def shard_of(world):
    return Shard(index=world.Get_rank(), count=world.Get_size())


class Quadratic:
    """Mean of |w - x|^2 / 2 over the samples x, whose covariance is known; weights in two tensors."""

    def __init__(self, shard, *, begin=0):
        noise = np.random.default_rng(3).standard_normal((NUM_SAMPLES, len(COVARIANCE)))
        self._samples = noise * np.sqrt(COVARIANCE)
        self._batches = shard_indices(NUM_SAMPLES, shard=shard, local_batch=LOCAL_BATCH, seed=5, begin=begin)

    def gradients(self):
        gradient = WEIGHTS - self._samples[next(self._batches)].mean(axis=0)
        return [gradient[:2].reshape(1, 2).astype(np.float32), gradient[2:].astype(np.float32)]


@pytest.mark.parametrize("num_ranks", [1, 2, 4])
def test_the_noise_of_a_quadratic_is_that_of_its_covariance(num_ranks):
    """A ratio of averages, within 10 %, though single draws are far off and may be negative."""

    def body(world):
        replica = Quadratic(shard_of(world))
        draws = [square_norms(replica, 8 // num_ranks, world=world) for _ in range(500)]
        return [
            gradient_estimates(
                GradientNoise(num_batches=8, local_square_norm=local, mean_square_norm=mean, seconds=0.0),
                local_batch=LOCAL_BATCH,
            )
            for local, mean in draws
        ]

    estimates = np.array(on_ranks(num_ranks, body)[0])
    square_norm, trace = estimates.mean(axis=0)
    assert square_norm == pytest.approx(WEIGHTS @ WEIGHTS, rel=0.1)
    assert trace == pytest.approx(COVARIANCE.sum(), rel=0.1)
    assert trace / square_norm == pytest.approx(COVARIANCE.sum() / (WEIGHTS @ WEIGHTS), rel=0.1)
    assert estimates[:, 0].min() < 0


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_ranks_at_one_step_draw_what_one_rank_draws_in_as_many(num_ranks):
    """Step 6 of P ranks has the samples of steps 6 P and on of 1 rank."""

    def norms_of(begin, num_batches):
        return lambda world: square_norms(Quadratic(shard_of(world), begin=begin), num_batches, world=world)

    (alone,) = on_ranks(1, norms_of(6 * num_ranks, num_ranks))
    together = on_ranks(num_ranks, norms_of(6, 1))
    for norms in together:
        assert norms == pytest.approx(alone, rel=1e-6)


def test_draws_are_one_in_so_many_steps_and_pairs_on_one_rank():
    def at_evaluations(num_ranks, evaluate_every, count=12):
        steps = [evaluate_every * (place + 1) for place in range(count)]
        return [
            num_draws(step, every=120, since=step - evaluate_every, num_ranks=num_ranks) for step in steps
        ]

    assert at_evaluations(2, 120) == [1] * 12
    assert at_evaluations(1, 240) == [2] * 12
    assert at_evaluations(1, 100) == [0, 0, 2, 0, 2, 0, 0, 2, 0, 2, 0, 2]
    assert at_evaluations(4, 60) == [0, 1] * 6
    assert at_evaluations(2, 300, count=4) == [2, 3, 2, 3]


def test_a_meter_draws_only_when_it_is_due_and_says_nothing_of_what_is_not_finite():
    def body(world):
        meter = NoiseMeter(replica=Quadratic(shard_of(world)), control=world, world=world)
        idle, due = meter.draw(60, since=0), meter.draw(120, since=60)
        bad = SimpleNamespace(gradients=lambda: [np.array([np.nan], np.float32)])
        broken = NoiseMeter(replica=bad, control=world, world=world)
        return idle, due, broken.draw(120, since=0)

    for idle, due, broken in on_ranks(2, body):
        assert idle is broken is None
        assert due.num_batches == 2
        assert 0 < due.mean_square_norm < due.local_square_norm


def test_a_backend_that_exchanges_nothing_says_why_it_is_not_measured():
    none, ring = capabilities("none"), capabilities("ring")
    assert unmeasurable_because(none, 2) == "none exchanges no gradients: ranks have weights of their own"
    assert unmeasurable_because(none, 1) == unmeasurable_because(ring, 2) == ""


@pytest.mark.parametrize(
    "framework", ["torch", pytest.param("tensorflow", marks=pytest.mark.requires("tensorflow"))]
)
def test_a_training_goes_on_as_if_nothing_had_been_drawn(framework):
    """The same weights in the end, and a draw is the same after a resumption."""
    workload = load_workload("hep_cnn")
    factory = workload.factory(
        framework=framework,
        preset="tiny",
        local_batch=2,
        source=workload.input("tiny"),
        execution=Execution(),
    )
    shard = Shard(index=0, count=1)
    backend = connect("none", control=None, framework=framework)

    def trained(*, drawing):
        trainer = backend.distribute(factory, shard=shard, seed=7)
        replica = factory(shard=shard, seed=7)
        replica.apply([np.zeros_like(weight) for weight in replica.weights()])
        if drawing:
            NoiseMeter(replica=replica, control=None, world=None).prepare()
        norms = []
        for step in range(4):
            trainer.step()
            trainer.synchronize()
            if drawing or step == 3:
                replica.restore(trainer.state())
                norms += on_ranks(1, lambda world: square_norms(replica, 2, world=world))
        return trainer.weights(), norms

    weights, norms = trained(drawing=True)
    undisturbed, again = trained(drawing=False)
    for own, other in zip(weights, undisturbed, strict=True):
        np.testing.assert_array_equal(own, other)
    assert norms[-1] == again[-1], "it depends on the trainer's state alone"
    assert len(set(norms)) == 4
