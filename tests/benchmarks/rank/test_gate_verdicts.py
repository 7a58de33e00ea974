"""What gates conclude from weights, deviations and losses, without a training."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from dlscale.benchmarks.rank.deviation import worst_element
from dlscale.benchmarks.rank.gates import finite_gate, identity_gate, training_gates


def tensors(*values):
    return [np.array(value, np.float64) for value in values]


def named(tensors_of):
    return {f"weight.{place}": tensor for place, tensor in enumerate(tensors_of)}


@pytest.mark.parametrize(
    ("before", "after", "expected", "worst"),
    [
        ([[0, 0]], [[-4, -1]], [[-4, 0]], 0.25),
        ([[0, 0]], [[-4, 1]], [[-4, 0]], 0.25),
        ([[0], [0]], [[-5], [-3]], [[-4], [-2]], 0.5),
        ([[0], [0]], [[-3], [-4]], [[-2], [-4]], 0.5),
        # Rounding: on the scale of FLOOR times the largest of all.
        ([[0], [0]], [[-1000], [-0.25]], [[-1000], [0]], 0.25),
        ([[0]], [[0]], [[0]], 0.0),
        ([[0]], [[1]], [[0]], math.inf),
        ([[0]], [[math.nan]], [[-1]], math.inf),
        ([[0]], [[-1]], [[math.nan]], math.inf),
        ([[]], [[]], [[]], 0.0),
        ([], [], [], 0.0),
    ],
)
def test_the_worst_element_of_all_tensors(before, after, expected, worst):
    assert worst_element(*(named(tensors(*given)) for given in (before, after, expected))) == worst


def test_a_weights_last_place_is_not_counted():
    before = {"weight.0": np.array([0, -(2.0**24)], np.float32)}  # neighbours are 2 apart
    expected = {"weight.0": np.array([-4, -(2.0**24)])}
    for error, worst in ((2, 0.0), (3, 0.25)):
        after = {"weight.0": np.array([-4 - error, -(2.0**24)], np.float32)}
        assert worst_element(before, after, expected) == worst


class Gathering:
    """A control plane that gives what each rank has, whatever this one does."""

    def __init__(self, *values):
        self.values = values

    def allgather(self, value):
        return [value, *self.values]


def test_ranks_whose_weights_differ_from_rank_0s_are_named():
    weights = tensors([1, 2], [3])
    alike = identity_gate(weights, control=Gathering())
    assert (alike.name, alike.passed, alike.value, alike.tolerance) == ("identity", True, 0.0, 0.0)
    own = []
    identity_gate(weights, control=SimpleNamespace(allgather=lambda value: own.append(value) or own))
    other = identity_gate(weights, control=Gathering("another", *own, "a third"))
    assert (other.passed, other.value) == (False, 2.0)
    assert other.detail.endswith("[1, 3]")


def test_ranks_whose_loss_is_not_finite_are_named():
    trainer = SimpleNamespace(loss=lambda: 1.5)
    good = finite_gate(trainer, control=Gathering(2.0))
    assert (good.passed, good.value, good.tolerance) == (True, 0.0, 0.0)
    assert good.detail.endswith("none")
    bad = finite_gate(trainer, control=Gathering(math.nan, 2.0, math.inf))
    assert (bad.passed, bad.value) == (False, 2.0)
    assert bad.detail.endswith("[1, 3]")


def backend(*, exchanges=True, asynchronous=False):
    return SimpleNamespace(
        capabilities=SimpleNamespace(exchanges=exchanges), asynchronous=asynchronous, num_accepted=None
    )


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ["finite_loss", "identity"]),
        ({"exchanges": False}, ["finite_loss"]),
        ({"asynchronous": True}, ["finite_loss", "identity"]),
    ],
)
def test_what_is_looked_at_after_the_windows(options, names):
    trainer = SimpleNamespace(loss=lambda: 1.0, weights=lambda: tensors([1]))
    gates = training_gates(backend(**options), trainer, control=Gathering())
    assert [gate.name for gate in gates] == names
    assert all(gate.passed for gate in gates)
