"""Downpour's rules against NumPy in float64, and its sessions without MPI."""

import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.collectives.algorithms.downpour import BLOCK, RULES
from dlscale.collectives.algorithms.registry import read_algorithm
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


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"fetch_every": 0}, "fetch_every of algorithm downpour is 0; give 1 or more"),
        ({"push_every": -1}, "push_every"),
        ({"optimizer": "nesterov"}, "choose from: sgd, momentum, adagrad, adam"),
        ({"learning_rate": -0.1}, "learning_rate"),
        ({"momentum": 1.0}, "momentum"),
        ({"interval": 4}, "algorithm downpour has no option 'interval'"),
    ],
)
def test_what_makes_no_sense_is_refused(options, said):
    with pytest.raises(UsageError, match=said):
        read_algorithm("downpour", options)
