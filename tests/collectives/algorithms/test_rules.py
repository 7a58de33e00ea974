"""Elastic averaging against a NumPy reference, with ranks as threads; options of algorithms."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.collectives import NAMES as BACKENDS
from dlscale.collectives import capabilities, check_algorithm
from dlscale.collectives.algorithms import NAMES, SYNC, read_algorithm
from dlscale.collectives.algorithms.easgd import Elastic

NUM_RANKS, SIZE, RATE = 3, 5, 0.25


class Weights:
    """What a rule is given of a replica: its flat weights (`rounds.FlatWeights`)."""

    def __init__(self, values):
        self.values = values.astype(np.float32)

    def buffer(self):
        return np.zeros(SIZE, np.float32)

    def read(self, buffer):
        buffer[:] = self.values

    def write(self, buffer):
        self.values = buffer.astype(np.float32)


def gradient(rank, weights, step):
    """Of a quadratic that each rank has at another place, with noise that depends on rank and step."""
    noise = np.random.default_rng((rank, step)).normal(size=SIZE)
    return (weights - rank) * np.arange(1, SIZE + 1) / 4 + noise


START = np.linspace(-1, 1, SIZE)


class Rank:
    """A collective of threads."""

    size = NUM_RANKS

    def __init__(self, average):
        self._average = average

    def allreduce(self, buffer, op):
        assert op == "average"
        self._average(buffer)


def trained(num_steps, **options):
    """Of each rank: (its weights after every step, the centre then), by the rule over threads."""
    chosen = read_algorithm("easgd", options)
    barrier, shared = threading.Barrier(NUM_RANKS, timeout=10), [None] * NUM_RANKS

    def train(rank):
        weights, own, centres = Weights(START), [], []

        def average(buffer):
            shared[rank] = buffer.copy()
            barrier.wait()
            total = np.mean(shared, axis=0)
            barrier.wait()
            buffer[:] = total

        rule = Elastic(chosen, weights, Rank(average))
        for step in range(num_steps):
            rule.before(step)
            weights.values = (weights.values - RATE * gradient(rank, weights.values, step)).astype(np.float32)
            rule.after(step)
            own.append(weights.values.copy())
            centres.append(rule.centre.copy())
        return np.array(own), np.array(centres), rule.num_exchanges

    with ThreadPoolExecutor(NUM_RANKS) as ranks:
        return list(ranks.map(train, range(NUM_RANKS)))


@pytest.mark.parametrize("interval", [1, 3])
def test_elastic_averaging_follows_the_papers_equations(interval):
    """Section 3 of arXiv:1412.6651; all exchange in the same steps."""
    moving_rate = 0.6
    found = trained(10, interval=interval, moving_rate=moving_rate)
    own, centre = np.array([START] * NUM_RANKS), START
    share = moving_rate / NUM_RANKS
    for step in range(10):
        before = own.copy()
        own = own - RATE * np.array([gradient(rank, own[rank], step) for rank in range(NUM_RANKS)])
        if step % interval == 0:
            own = own - share * (before - centre)
            centre = centre + share * (before - centre).sum(axis=0)
        for rank, (weights, learnt, _) in enumerate(found):
            np.testing.assert_allclose(weights[step], own[rank], atol=2e-5)
            np.testing.assert_allclose(learnt[step], centre, atol=2e-5)
    assert {num for _, _, num in found} == {9 // interval}
    assert all(np.array_equal(found[0][1], learnt) for _, learnt, _ in found), "one centre, bit for bit"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("easgd", {"tau": 3}, "algorithm easgd has no option 'tau'; choose from: interval, moving_rate"),
        (
            "easgd",
            {"interval": "x"},
            "option interval of algorithm easgd is 'x'; give a whole number",
        ),
        ("easgd", {"interval": 0}, "interval of algorithm easgd is 0"),
        (
            "easgd",
            {"moving_rate": 0.0},
            "moving_rate of algorithm easgd is 0.0; give more than 0 and at most",
        ),
        ("easgd", {"moving_rate": 1.5}, "moving_rate of algorithm easgd is 1.5"),
        ("sync", {"interval": 2}, "algorithm sync has no option 'interval'; it has none"),
        ("nix", {}, "no algorithm 'nix'; choose one of: sync, easgd"),
    ],
)
def test_options_that_make_no_sense_are_refused(name, options, message):
    with pytest.raises(UsageError, match=message):
        read_algorithm(name, options)


def test_every_algorithm_is_carried_and_named_like_no_backend():
    assert not set(NAMES) & set(BACKENDS), "options are named ALGORITHM.OPTION as they are BACKEND.OPTION"
    for name in NAMES:
        assert any(name in capabilities(backend).algorithms for backend in BACKENDS)


@pytest.mark.parametrize(
    ("backend", "framework", "options", "message"),
    [
        (
            "nccl",
            "torch",
            {},
            "backend nccl does not carry algorithm easgd; choose from: mpi, gloo, ring, h",
        ),
        (
            "horovod",
            "tensorflow",
            {},
            "needs operations on host buffers, which horovod has in torch, not in ten",
        ),
        ("mpi", "torch", {"pipelined": True}, "mpi.pipelined=True with algorithm easgd"),
    ],
)
def test_what_cannot_carry_it_is_refused(backend, framework, options, message):
    with pytest.raises(UsageError, match=message):
        check_algorithm(backend, options, framework=framework, algorithm="easgd")
    check_algorithm(backend, options, framework=framework, algorithm=SYNC)
