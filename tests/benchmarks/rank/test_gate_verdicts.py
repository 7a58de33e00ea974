"""What gates conclude from weights, deviations and losses, without a training."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from dlscale.benchmarks.rank.checks import training_gates
from dlscale.benchmarks.rank.gates import (
    finite_gate,
    identity_gate,
    largest_of,
    numerics_gate,
    worst_deviation,
)
from dlscale.benchmarks.rank.turns import falling_gate


def tensors(*values):
    return [np.array(value, np.float64) for value in values]


@pytest.mark.parametrize(
    ("before", "after", "expected", "largest", "worst"),
    [
        ([[0, 0]], [[-4, -1]], [[4, 0]], [4.0], 0.25),
        ([[0, 0]], [[-4, 1]], [[4, 0]], [4.0], 0.25),
        ([[0], [0]], [[-5], [-3]], [[4], [2]], [4.0, 2.0], 0.5),
        ([[0], [0]], [[-3], [-4]], [[2], [4]], [2.0, 4.0], 0.5),
        # Rounding: on the scale of FLOOR times the largest of all.
        ([[0], [0]], [[-1000], [-0.25]], [[1000], [0]], [1000.0, 0.0], 0.25),
        ([[0]], [[0]], [[0]], [0.0], 0.0),
        ([[0]], [[1]], [[0]], [0.0], math.inf),
        ([[0]], [[math.nan]], [[1]], [1.0], math.inf),
        ([[0]], [[-1]], [[1]], [math.nan], math.inf),
        ([[]], [[]], [[]], [0.0], 0.0),
        ([], [], [], [], 0.0),
    ],
)
def test_the_worst_deviation_of_all_tensors(before, after, expected, largest, worst):
    assert worst_deviation(tensors(*before), tensors(*after), tensors(*expected), largest=largest) == worst


def test_the_largest_of_a_tensor_is_an_absolute_value():
    assert largest_of(tensors([-0.5, 0.25], [], [0.125])) == [0.5, 0.0, 0.125]


def test_a_weights_last_place_is_not_counted():
    before = [np.array([0, -(2.0**24)], np.float32)]  # neighbours are 2 apart
    for error, worst in ((2, 0.0), (3, 0.25)):
        after = [np.array([-4 - error, -(2.0**24)], np.float32)]
        expected = tensors([4, 0])
        assert worst_deviation(before, after, expected, largest=[4.0]) == worst


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


def test_a_process_that_computes_in_another_way_than_at_first_is_told():
    before = {"threads": "1", "mkldnn.conv": "none"}
    good = numerics_gate(before, dict(before), control=Gathering([]))
    assert (good.passed, good.value) == (True, 0.0)
    own = numerics_gate(before, before | {"threads": "2"}, control=Gathering([]))
    assert (own.passed, own.value) == (False, 1.0)
    assert own.detail.endswith("['threads: 1 -> 2']")
    other = numerics_gate(before, before, control=Gathering(["mkldnn.conv: none -> bf16"]))
    assert not other.passed
    assert other.detail.endswith("['mkldnn.conv: none -> bf16']")


def backend(*, exchanges=True, asynchronous=False):
    return SimpleNamespace(
        capabilities=SimpleNamespace(exchanges=exchanges), asynchronous=asynchronous, num_accepted=None
    )


class Losing:
    """A trainer with one loss after the other."""

    def __init__(self, *losses):
        self.losses, self.num_steps, self.num_synchronizations = losses, 0, 0

    def step(self):
        self.num_steps += 1

    def synchronize(self):
        self.num_synchronizations += 1

    def loss(self):
        return self.losses[max(0, self.num_steps - 1)]

    def weights(self):
        return tensors([1])


@pytest.mark.parametrize(
    ("options", "first_losses", "names"),
    [
        ({}, None, ["finite_loss", "identity"]),
        ({}, [9.0], ["finite_loss", "identity"]),
        ({"exchanges": False}, [9.0], ["finite_loss"]),
        ({"asynchronous": True}, None, ["finite_loss", "identity"]),
        ({"asynchronous": True}, [9.0], ["finite_loss", "identity", "falling_loss"]),
    ],
)
def test_what_is_looked_at_after_the_windows(options, first_losses, names):
    gates = training_gates(backend(**options), Losing(1.0), control=Gathering(), first_losses=first_losses)
    assert [gate.name for gate in gates] == names
    assert all(gate.passed for gate in gates)


def test_losses_are_compared_with_those_of_as_many_further_steps():
    trainer = Losing(1.0, 3.0)
    *_, gate = training_gates(
        backend(asynchronous=True), trainer, control=Gathering(), first_losses=[3.0, 5.0]
    )
    assert trainer.num_steps == 2
    assert trainer.num_synchronizations == 1
    assert gate.value == 0.5
    # Both variances are 2: three times sqrt(2 / 2 + 2 / 2), over a mean of 4.
    assert gate.tolerance == pytest.approx(1 + 3 * math.sqrt(2) / 4)


class Drawn:
    """A control plane whose other rank has losses of its own: the first ones, then the last ones."""

    def __init__(self, *others):
        self._others = iter(others)

    def allgather(self, value):
        return [value, next(self._others)]


def test_a_rise_within_chance_is_allowed_for_losses_below_zero_too():
    gate = falling_gate([-3.0, -5.0], [-1.0, -3.0], control=Drawn([-1.0, -3.0], [-1.0, -3.0]))
    assert gate.tolerance > 1


@pytest.mark.parametrize(
    ("first", "last", "passed", "value"),
    [
        ([2.0, 1.0], [0.5, 0.4], True, 0.3),
        ([1.0, 1.0], [1.0, 1.0], True, 1.0),
        ([2.0], [2.0], True, 1.0),  # a single loss has no chance
        ([1.0, 1.1, 0.9], [1.05, 1.1, 1.0], True, 1.05),
        ([1.0, 1.1, 0.9], [1.6, 1.5, 1.7], False, 1.6),
        ([1.0, 1.0], [1.01, 1.01], False, 1.01),
        ([1.0, 1.0], [math.nan, 1.0], False, None),  # not recorded as a number
        ([1.0, 1.0], [math.inf, 1.0], False, None),
        ([0.0, 0.0], [1.0, 1.0], False, None),  # no loss to fall from
    ],
)
def test_the_loss_may_not_rise_beyond_chance(first, last, passed, value):
    gate = falling_gate(first, last, control=Drawn(first, last))
    assert (gate.passed, gate.value) == (passed, None if value is None else pytest.approx(value))


def test_all_ranks_count():
    gate = falling_gate([1.0, 1.0], [0.9, 0.9], control=Drawn([2.0, 2.0], [1.8, 1.8]))
    assert gate.value == pytest.approx(0.9)
    assert gate.tolerance > 1


def test_chance_seldom_fails_a_training_that_stands_still():
    draws = np.random.default_rng(7).lognormal(0.0, 0.4, size=(4000, 4, 5))
    passed = [falling_gate(one[0], one[1], control=Drawn(*one[2:])).passed for one in draws]
    assert np.mean(passed) > 0.99
