"""Whether there is a core for a communication thread, from what ranks are bound to."""

import pytest

from dlscale.collectives.training import communication
from dlscale.collectives.training.communication import Demand, decide, has_spare_core


def demand(cpus, num_threads=1, host=1):
    return Demand(host=host, num_threads=num_threads, cpus=frozenset(cpus))


@pytest.mark.parametrize(
    ("everyone", "spare"),
    [
        pytest.param([demand({0, 1})], True, id="one rank, two cores"),
        pytest.param([demand({0, 1}, num_threads=2)], False, id="one rank computes on both"),
        pytest.param([demand({0}), demand({1})], False, id="bound to one core each"),
        pytest.param([demand({0, 1}), demand({2, 3})], True, id="bound to two cores each"),
        pytest.param([demand({0, 1}), demand({0, 1})], False, id="two ranks share two cores"),
        pytest.param([demand({0, 1, 2, 3})] * 2, True, id="two ranks share four cores"),
        pytest.param([demand({0, 1, 2, 3}, 2), demand({0, 1, 2, 3}, 2)], False, id="all four compute"),
        pytest.param([demand({0, 1}), demand({0, 1}, host=2)], True, id="the other is on another host"),
        pytest.param([demand({0, 1}), demand({1, 2})], False, id="they share one of three"),
    ],
)
def test_ranks_that_share_cores_must_all_have_room(everyone, spare):
    assert decide(everyone[0], everyone) is spare


class Together:
    """A collective of one rank, which is given what the others would have written."""

    rank, size = 1, 3

    def __init__(self, others):
        self._others = others

    def allreduce(self, buffer, op="sum"):
        assert op == "sum"
        for rank, row in self._others.items():
            buffer[rank] += row


def test_what_ranks_write_is_what_they_are_asked_for(monkeypatch):
    """A row goes through the sum unharmed, also for the highest CPU and beside others'."""
    monkeypatch.setattr(communication.os, "sched_getaffinity", lambda _: {0, 61, 62, 4000})
    rows = {}

    class Recorder(Together):
        def allreduce(self, buffer, op="sum"):
            rows["mine"] = buffer[self.rank].copy()
            super().allreduce(buffer, op)

    assert has_spare_core(Recorder({}), num_threads=3)
    assert not has_spare_core(Recorder({}), num_threads=4)
    has_spare_core(Recorder({}), num_threads=1)
    # Another rank of this host that is bound to the same four: 1 + 1 + 1 + 1 fit, 2 + 1 + 1 + 1 do not.
    assert has_spare_core(Together({0: rows["mine"]}), num_threads=1)
    assert not has_spare_core(Together({0: rows["mine"]}), num_threads=2)
    assert not has_spare_core(Together({0: rows["mine"], 2: rows["mine"]}), num_threads=1)
