"""Downpour's rules against NumPy in float64, and the options that are refused."""

import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.collectives.algorithms import read_algorithm
from dlscale.collectives.algorithms.downpour import BLOCK, NUM_KEPT, Options, Rule
from dlscale.collectives.backend import Setup
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


@pytest.mark.parametrize("optimizer", NUM_KEPT)
@pytest.mark.parametrize("count", [5, BLOCK + 3])
def test_a_rule_is_that_of_its_paper(optimizer, count):
    numbers = np.random.default_rng(1)
    weights, *gradients = numbers.normal(size=(4, count)).astype(np.float32)
    found, rule = weights.copy(), Rule(optimizer, count, momentum=MOMENTUM)
    for gradient in gradients:
        rule.apply(found, gradient.copy(), RATE)
    np.testing.assert_allclose(found, expected(optimizer, weights, gradients), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"fetch_every": 0}, "fetch_every"),
        ({"push_every": -1}, "push_every"),
        ({"optimizer": "nesterov"}, "choose from: sgd, momentum, adagrad, adam"),
        ({"learning_rate": -0.1}, "learning_rate"),
        ({"momentum": 1.0}, "momentum"),
        ({"masters": -1}, "masters"),
        ({"groups": 2}, "algorithm downpour has no option 'groups'"),
    ],
)
def test_what_makes_no_sense_is_refused(options, said):
    with pytest.raises(UsageError, match=said):
        read_algorithm("downpour", options)


@pytest.mark.parametrize(("masters", "num_servers"), [(4, 5), (2, 1)])
def test_masters_need_workers_and_servers(masters, num_servers):
    setup = Setup(framework="torch", num_ranks=3, num_servers=num_servers)
    with pytest.raises(UsageError, match="masters"):
        Options(masters=masters).check_setup(setup)
    Options(masters=2).check_setup(Setup(framework="torch", num_ranks=3, num_servers=3))
