"""The reference of ranks that take turns on servers, on a loss whose gradient is the weight less a constant."""

import numpy as np
import pytest

from dlscale.benchmarks.rank.turns import change_in_turn, num_turn_steps
from dlscale.collectives.algorithms import easgd
from dlscale.collectives.algorithms.downpour import Options


class Replica:
    """The gradient at x is x / 2 - 1; rate 1."""

    def __init__(self):
        self.held = [np.float32([4])]

    def load(self, weights):
        self.held = [weight.copy() for weight in weights]

    def weights(self):
        return [weight.copy() for weight in self.held]

    def gradients(self):
        return [weight / 2 - 1 for weight in self.held]

    def apply(self, gradients):
        self.held = [weight - gradient for weight, gradient in zip(self.held, gradients, strict=True)]


@pytest.mark.parametrize(
    ("algorithm", "num_steps", "change"),
    [
        (None, 1, 1),
        (Options(), 1, 1),
        (Options(push_every=2), 2, 1 + 1),  # twice the gradient at the servers' weights
        (Options(fetch_every=2), 2, 1 + 0.5),  # the second at its own
        (Options(fetch_every=2, push_every=2), 2, 1 + 0.5),
        (Options(fetch_every=3, push_every=2), 6, None),
    ],
)
def test_a_turn_changes_the_weights_by_what_was_pushed(algorithm, num_steps, change):
    assert num_turn_steps(algorithm) == num_steps
    (found,) = change_in_turn(algorithm, Replica(), [np.float32([4])], own=[], num_ranks=1)
    if change is None:  # x: 4 3 2.5 | fetch of 4 - 1.5: 2.5 2.25 2.125; pushes of 2 steps each
        change = 1 + 0.5 + 0.25 + 0.25 + 0.125 + 0.0625
    assert found.tolist() == [change]


def test_elastic_ranks_move_the_centre_by_their_part_of_the_distance():
    """x: 4 3 2.5; with momentum 1/2: 4 3, then from 3 - 1/2 by 1/4 to 2.25. The centre is at 1."""
    for momentum, last in ((0.0, 2.5), (0.5, 2.25)):
        algorithm = easgd.Options(interval=2, moving_rate=0.5, momentum=momentum)
        (found,) = change_in_turn(algorithm, Replica(), [np.float32([1])], own=[np.float32([4])], num_ranks=2)
        assert found.tolist() == [0.25 * (1 - last)]
