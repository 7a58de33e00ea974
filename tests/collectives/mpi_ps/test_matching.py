"""Gradient energy matching against the paper's algorithm 1 in float64, with workers and servers in one process."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.rank.turns import change_in_turn, first_update, num_turn_steps
from dlscale.collectives.algorithms.gem import Matching, Options
from dlscale.collectives.algorithms.registry import read_algorithm
from dlscale.collectives.mpi_ps.energy_matching import SERVER_RULES, MatchingTrainer
from dlscale.collectives.mpi_ps.messages import FlatLayout
from dlscale.collectives.mpi_ps.sessions import DownpourSession

RATE, SIZE = 0.125, 6
FIRST = np.linspace(-1, 1, SIZE).astype(np.float32)


def gradient(worker, weights, number):
    """Of a quadratic, with noise by worker and step."""
    noise = np.random.default_rng((worker, number)).normal(size=SIZE)
    return (weights * np.arange(1, SIZE + 1) / 4 + noise).astype(np.float32)


class Replica:
    def __init__(self, worker):
        self.worker, self.number, self.held = worker, 0, FIRST.copy()

    def weights(self):
        return [self.held.copy()]

    def load(self, weights):
        (self.held,) = (weight.copy() for weight in weights)

    def gradients(self):
        self.number += 1
        return [gradient(self.worker, self.held, self.number - 1)]

    def losses(self):
        return [0.0]

    def learning_rate(self):
        return RATE


def trained(options, turns):
    """(the servers' weights after each turn, the session) of workers that step in the order of `turns`."""
    answers = {}
    rules = {name: value for name, value in SERVER_RULES.items() if name != "algorithm"}
    session = DownpourSession(
        num_elements=SIZE, reply=lambda worker, *what: answers.update({worker: what}), **rules
    )
    session.load(FIRST)

    def links_of(worker):
        def fetch(into):
            session.fetch(worker)
            into[:], links.steps[0], _ = answers[worker]

        def push(values, *, count):
            session.push(worker, values.copy(), step=links.steps[0], count=count)

        links = SimpleNamespace(steps=[0], fetch=fetch, push=push)
        return links

    trainers = [
        MatchingTrainer(Replica(worker), FlatLayout([FIRST]), links_of(worker), options)
        for worker in range(max(turns) + 1)
    ]
    found = []
    for worker in turns:
        trainers[worker].step()
        session.fetch(99)
        found.append(answers[99][0].copy())
    return found, session


@pytest.mark.parametrize(
    "options", [Options(), Options(momentum=0.5, amplification=2.0, learning_rate=0.25), Options(limit=0.0)]
)
def test_workers_follow_algorithm_1(options):
    turns = [0, 1, 1, 0, 2, 0, 1, 2, 2, 0]
    found, session = trained(options, turns)
    rate = options.learning_rate or RATE
    theta, starts, moments, numbers = FIRST.astype(float), [FIRST.astype(float)] * 3, [0.0] * 3, [0] * 3
    begun, staleness = [0] * 3, Counter()  # own pushes count: gradients are of before the worker's last one
    for place, (after, worker) in enumerate(zip(found, turns, strict=True)):
        staleness[str(place - begun[worker])] += 1
        begun[worker] = place
        s = starts[worker]
        delta = -rate * gradient(worker, s.astype(np.float32), numbers[worker])
        numbers[worker] += 1
        moments[worker] = options.momentum * moments[worker] + delta
        pi = (options.amplification * np.abs(moments[worker]) - np.abs(theta - s)) / (np.abs(delta) + 1e-16)
        pi = np.clip(pi, 0, options.limit) if options.limit else pi
        starts[worker] = theta
        theta = theta + pi * delta
        np.testing.assert_allclose(after, theta, rtol=1e-4, atol=1e-5)
    counts = session.counts()
    assert (counts["applied"], counts["updates"]) == (10, 10)
    assert counts["staleness"] == staleness


def test_alone_a_first_push_is_plain_sgd_and_none_makes_up_for_what_does_not_depend_on_a_weight():
    (after,), _ = trained(Options(), [0])
    np.testing.assert_allclose(after, FIRST - RATE * gradient(0, FIRST, 0), rtol=1e-6)
    nothing = np.zeros(3, np.float32)
    Matching(Options(), 3, rate=RATE).scale(nothing, start=nothing + 1, fetched=nothing + 3)
    assert nothing.tolist() == [0, 0, 0]


def test_a_turn_of_the_gate_is_a_first_push():
    options = Options(momentum=0.5).for_gate()
    assert (options.learning_rate, options.momentum, num_turn_steps(options)) == (1.0, 0.5, 1)
    found, _ = trained(options, [0, 1])
    replica = Replica(1)
    (change,) = change_in_turn(options, replica, [found[0]], own=[FIRST], num_ranks=2)
    np.testing.assert_allclose(found[0] - found[1], change, rtol=1e-5, atol=1e-6)
    (first,) = first_update(Options(), Replica(0), settings={"learning_rate": 0.5})
    np.testing.assert_allclose(first, 0.5 * gradient(0, FIRST, 0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"learning_rate": -1.0},
            "learning_rate of algorithm gem is -1.0; give a positive number, or 0 for that of",
        ),
        ({"limit": -1.0}, "limit of algorithm gem is -1.0; give a positive number, or 0 for none"),
        ({"momentum": 1.0}, "momentum of algorithm gem is 1.0; give at least 0 and less than 1"),
        ({"amplification": 0.0}, "amplification of algorithm gem is 0.0; give more than 0, 1 for none"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        read_algorithm("gem", options)
