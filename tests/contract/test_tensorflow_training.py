"""TensorFlow's trainers over a collective: late and synchronous steps, threads, what they record, what goes wrong."""

import types
from functools import partial

import numpy as np
import pytest
import tensorflow as tf

from dlscale.collectives import ring
from dlscale.collectives.mpi import MpiCollective
from dlscale.collectives.training import _tensorflow_buckets
from dlscale.collectives.training.communication import Training

pytestmark = pytest.mark.on_ranks(2)

NUM_STEPS = 6
WEIGHTS = (tf.ones((7,)), tf.fill((3, 2), 2.0), tf.ones(()))


class Replica:
    """Its gradients are its weights times a number that each step and rank has of its own; rate 0.5."""

    framework = "tensorflow"
    compiled = sleeps = False
    schedule = None
    traced = staticmethod(partial(tf.function, autograph=False))

    def __init__(self, rank):
        self.variables = [tf.Variable(weight) for weight in WEIGHTS]
        optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.5)
        groups = self.variables[:2], self.variables[2:]
        self.objectives = [types.SimpleNamespace(parameters=group, optimizer=optimizer) for group in groups]
        self.num_assigned = tf.Variable(0)
        self._rank, self._step = rank, -1

    def next_batch(self):
        self._step += 1
        return (tf.constant(factor(self._step, self._rank), tf.float32),)

    def differentiate(self, number, **_):
        gradients = [[variable * number for variable in o.parameters] for o in self.objectives]
        return [number], gradients, [(self.num_assigned, self.num_assigned + 1)]

    def make_slots(self):
        """Plain SGD keeps nothing."""

    def weights(self):
        return [variable.numpy() for variable in self.variables]


def factor(step, rank):
    return 0.1 * (step + 1) + 0.01 * rank * (step % 2)


def expected_weights(training, size):
    """What all ranks must hold after every step, computed without any framework."""
    weights, late = np.float64(1.0), None
    history = []
    for step in range(NUM_STEPS):
        if training.drains(step):
            weights, late = weights - 0.5 * late, None
        gradient = weights * np.mean([factor(step, rank) for rank in range(size)])
        if training.is_delayed(step):
            gradient, late = late, gradient
        if gradient is not None:
            weights -= 0.5 * gradient
        history.append(weights)
    return history


@pytest.fixture
def make_collective(world):
    made = []

    def make(name="ring"):
        made.append(ring.join(world) if name == "ring" else MpiCollective(world))
        return made[-1]

    yield make
    for collective in made:
        collective.close()


@pytest.mark.parametrize(
    ("name", "teams", "until"),
    [("ring", teams, until) for teams in (0, 2) for until in (None, 0, 1, 3)] + [("mpi", 1, 3)],
)
def test_every_step_applies_what_it_ought_to(make_collective, world, name, teams, until, monkeypatch):
    """`until` is where the cool-down begins; None: never late."""
    monkeypatch.setattr("dlscale.collectives.training.communication.FIRST_BUCKET_BYTES", 20)
    pipelined = until is not None
    training = Training(teams=teams, pipelined=pipelined, pipelined_until_step=until or 0)
    replica = Replica(world.Get_rank())
    trainer = _tensorflow_buckets.over(
        replica, [make_collective(name) for _ in range(max(teams, 1))], training
    )
    history = []
    for _ in range(NUM_STEPS):
        trainer.step()
        history.append(trainer.weights())
    trainer.synchronize()
    settings = trainer.settings()
    trainer.close()
    size = world.Get_size()
    for found, scale in zip(history, expected_weights(training, size), strict=True):
        for weights, first in zip(found, WEIGHTS, strict=True):
            np.testing.assert_allclose(weights, first.numpy() * scale, rtol=1e-5)
    assert replica.num_assigned.numpy() == NUM_STEPS
    assert settings["overlap"] == (teams > 0)
    assert settings["teams"] == teams
    assert settings["staging_copies"] == 2 * (size > 1)
    if pipelined:
        assert (settings["pipelined"], settings["pipelined_until_step"]) == (True, until or 0)


class Broken(MpiCollective):
    """Fails at every average."""

    def allreduce(self, buffer, op="sum"):
        if op == "average":
            raise ConnectionError("rank 1 is dead")
        super().allreduce(buffer, op)


def test_an_error_of_the_collective_is_raised_as_itself(world):
    collective = Broken(world)
    trainer = _tensorflow_buckets.over(Replica(world.Get_rank()), [collective], Training())
    with pytest.raises(ConnectionError, match=r"^rank 1 is dead$"):
        trainer.step()
    trainer.close()
    collective.close()


def test_an_error_of_the_ring_keeps_its_words(world):
    ranks = ring.join(world)
    trainer = _tensorflow_buckets.over(Replica(world.Get_rank()), [ranks], Training())
    trainer.step()
    ranks.close()
    with pytest.raises(RuntimeError, match=r"^[^\n]*closed[^\n]*$"):
        trainer.step()
    trainer.close()
