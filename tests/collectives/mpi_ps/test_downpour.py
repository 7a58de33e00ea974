"""Downpour's rules against NumPy in float64, and its sessions without MPI."""

import itertools

import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.collectives.algorithms.downpour import BLOCK, RULES, Options
from dlscale.collectives.algorithms.registry import read_algorithm
from dlscale.collectives.backend import Setup
from dlscale.collectives.mpi_ps.sessions import DownpourSession
from dlscale.models.optimizers import ADAM_EPSILON, BETAS

RATE, MOMENTUM = 0.1, 0.8


def expected(optimizer, weights, gradients):
    """The rules of the module's page, in float64."""
    w, u, s, m, v = weights.astype(float), 0.0, 0.0, 0.0, 0.0
    for n, g in enumerate((gradient.astype(float) for gradient in gradients), start=1):
        match optimizer:
            case "sgd":
                w = w - RATE * g
            case "momentum":
                u = MOMENTUM * u + g
                w = w - RATE * u
            case "adagrad":
                s = s + g**2
                w = w - RATE * g / np.sqrt(s)
            case "adam":
                m = BETAS[0] * m + (1 - BETAS[0]) * g
                v = BETAS[1] * v + (1 - BETAS[1]) * g**2
                root = np.sqrt(v / (1 - BETAS[1] ** n)) + ADAM_EPSILON
                w = w - RATE * m / (1 - BETAS[0] ** n) / root
    return w


@pytest.mark.parametrize("optimizer", RULES)
@pytest.mark.parametrize("count", [5, BLOCK + 3])
def test_a_rule_is_that_of_its_paper(optimizer, count):
    numbers = np.random.default_rng(1)
    weights, *gradients = numbers.normal(size=(4, count)).astype(np.float32)
    found, rule = weights.copy(), RULES[optimizer](count, momentum=MOMENTUM)
    for gradient in gradients:
        rule.apply(found, gradient.copy(), RATE)
    np.testing.assert_allclose(found, expected(optimizer, weights, gradients), rtol=2e-5, atol=1e-6)


@pytest.fixture
def sent():
    return []


def session(sent, **options):
    rules = {
        "optimizer": "sgd",
        "rate": 0.5,
        "momentum": 0.0,
        "divide_by_staleness": False,
        "num_collected": 1,
    }
    made = DownpourSession(
        num_elements=1,
        reply=lambda *what: sent.append((what[0], what[1].tolist(), what[2])),
        **rules | options,
    )
    made.load(np.float32([8]))
    return made


def push(made, worker, value, *, step, count=1):
    made.push(worker, np.float32([value]), step=step, count=count)


def weights_of(made, sent):
    made.fetch(0)
    return sent[-1][1:]


def test_pushes_are_applied_as_they_come_and_their_staleness_is_counted(sent):
    made = session(sent)
    push(made, 0, 2, step=0)
    push(made, 0, 2, step=1, count=3)
    push(made, 1, 4, step=0)
    assert weights_of(made, sent) == ([4.0], 3)
    assert made.counts() == {"applied": 5, "updates": 3, "staleness": {"0": 2, "2": 1}}


def test_the_rate_is_divided_by_the_staleness(sent):
    made = session(sent, divide_by_staleness=True)
    push(made, 0, 2, step=0)  # staleness 0
    push(made, 1, 2, step=0)  # 1
    push(made, 1, 4, step=0)  # 2
    assert weights_of(made, sent) == ([8 - 1 - 1 - 1.0], 3)


def test_an_update_is_by_the_mean_of_what_was_collected(sent):
    made = session(sent, num_collected=2)
    push(made, 0, 2, step=0)
    assert weights_of(made, sent) == ([8.0], 0)
    push(made, 1, 6, step=0)
    assert weights_of(made, sent) == ([6.0], 1)
    assert made.counts()["applied"] == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"fetch_every": 0}, "fetch_every of algorithm downpour is 0; give 1 or more"),
        ({"push_every": -1}, "push_every"),
        ({"optimizer": "lars"}, "choose from: sgd, momentum, adagrad, adam"),
        ({"learning_rate": -0.1}, "learning_rate"),
        ({"momentum": 1.0}, "momentum"),
        ({"softsync": -1}, "softsync"),
        ({"mitigate_momentum": True}, "with optimizer sgd, which has no momentum to lower"),
        ({"mitigate_momentum": True, "optimizer": "momentum", "push_every": 2}, "intervals of 1"),
        ({"interval": 4}, "algorithm downpour has no option 'interval'"),
    ],
)
def test_what_makes_no_sense_is_refused(options, said):
    with pytest.raises(UsageError, match=said):
        read_algorithm("downpour", options)


def test_softsync_collects_the_pushes_of_a_part_of_the_workers():
    assert [Options(softsync=n).num_collected(8) for n in (0, 1, 3, 8)] == [1, 8, 2, 1]
    with pytest.raises(UsageError, match="softsync of algorithm downpour is 9 on 8 ranks"):
        Options(softsync=9).check_setup(Setup(framework="torch", num_ranks=8))


def test_the_momentum_of_asynchrony_is_taken_off_what_was_asked_for():
    asked = {"optimizer": "momentum", "momentum": 0.9}
    assert Options(**asked).explicit_momentum(4) == 0.9
    options = Options(**asked, mitigate_momentum=True)
    assert [options.explicit_momentum(n) for n in (1, 2, 4, 20)] == pytest.approx([0.9, 0.4, 0.15, -0.05])
    collected = Options(**asked, mitigate_momentum=True, softsync=2)
    assert collected.explicit_momentum(8) == pytest.approx(0.9 - 0.5)


def test_asynchrony_adds_the_momentum_that_is_taken_off(sent):
    """The mean of all orders in which 2 workers may push, on the quadratic w^2 / 2, and the recursion of the page."""
    num_updates, rate, explicit, implicit = 7, 0.5, 0.3, Options().implicit_momentum(2)
    means = np.zeros(num_updates + 1)
    for order in itertools.product((0, 1), repeat=num_updates):
        made = session(sent, optimizer="momentum", momentum=explicit, rate=rate)
        held, path = [(8.0, 0)] * 2, [8.0]
        for worker in order:
            push(made, worker, *held[worker][:1], step=held[worker][1])
            (value,), step = weights_of(made, sent)
            held[worker] = value, step
            path.append(value)
        means += np.array(path) / 2**num_updates
    steps = np.diff(means)
    total = (explicit + implicit) * steps[1:-1] - explicit * implicit * steps[:-2]
    np.testing.assert_allclose(steps[2:], total - rate / 2 * means[2:-1], rtol=1e-4, atol=1e-5)


def test_no_more_is_collected_than_there_are_workers_left(sent):
    made = session(sent, num_collected=2)
    assert made.without(1, num_left=1)
    push(made, 0, 2, step=0)
    assert weights_of(made, sent) == ([7.0], 1)
