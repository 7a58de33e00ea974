"""Which step applies which gradients, and what options of an exchange are refused."""

from dataclasses import dataclass

import pytest

from dlscale.base.errors import UsageError
from dlscale.collectives.registry import read_kinds
from dlscale.collectives.training.communication import Training


def applied(training, num_steps):
    """For each step, the steps whose gradients it applies."""
    found, left_over = [], None
    for step in range(num_steps):
        now = []
        if training.drains(step):
            now.append(left_over)
        if training.is_delayed(step):
            now += [left_over] if step > 0 else []
            left_over = step
        else:
            now.append(step)
        found.append(now)
    return found


def test_a_synchronous_step_applies_its_own_gradients():
    assert applied(Training(), 4) == [[0], [1], [2], [3]]


def test_a_pipelined_step_applies_those_of_the_step_before():
    assert applied(Training(pipelined=True), 4) == [[], [0], [1], [2]]


@pytest.mark.parametrize("until", [1, 2, 3, 7])
def test_the_cool_down_applies_every_gradient_once(until):
    found = applied(Training(pipelined=True, pipelined_until_step=until), 6)
    if until < 6:
        assert found[until] == [until - 1, until]
        assert sorted(step for now in found for step in now) == list(range(6))
    assert found[until + 1 :] == [[step] for step in range(until + 1, 6)]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"teams": -2}, "option teams is -2; give -1 or more"),
        ({"check_every": -1}, "option check_every is -1; give 0 or more"),
        ({"pipelined_until_step": -1, "pipelined": True}, "give 0 or more"),
        ({"pipelined_until_step": 5}, "pipelined was not asked for"),
    ],
)
def test_impossible_options_are_refused(options, text):
    with pytest.raises(UsageError, match=text):
        Training(**options)


@dataclass(frozen=True)
class Engine:
    segment_bytes: int = 0


def test_options_of_two_kinds_are_told_apart():
    options = {"segment_bytes": 7, "teams": 2}
    assert read_kinds((Engine, Training), options, backend="ring") == (Engine(7), Training(teams=2))
    assert read_kinds((Engine, Training), {}, backend="ring") == (Engine(), Training())
    with pytest.raises(UsageError, match="no option 'team'; choose from: segment_bytes, teams, pipelined"):
        read_kinds((Engine, Training), {"team": 2}, backend="ring")
    with pytest.raises(UsageError, match="option pipelined of backend ring is 1; give a bool"):
        read_kinds((Engine, Training), {"pipelined": 1}, backend="ring")
