"""Options of an exchange, and which are refused; which step applies which gradients: tests/contract."""

from dataclasses import dataclass

import pytest

from dlscale.base.errors import UsageError
from dlscale.collectives.registry import read_kinds
from dlscale.collectives.training.communication import Training


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
    with pytest.raises(
        UsageError, match=r"no option 'team' .*; choose from: segment_bytes, teams, pipelined"
    ):
        read_kinds((Engine, Training), {"team": 2}, backend="ring")
    with pytest.raises(UsageError, match="option pipelined of backend ring is 1; give true or false"):
        read_kinds((Engine, Training), {"pipelined": 1}, backend="ring")
