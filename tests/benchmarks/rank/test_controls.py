"""Controls without computation: buckets, calls, clocks and gates."""

import time
from types import SimpleNamespace

import numpy as np
import pytest

from dlscale.benchmarks.rank.case import bucket_sizes
from dlscale.benchmarks.rank.controls import ExchangeOnly, HalosOnly
from dlscale.collectives.neighbours import Call, CarriedNeighbours
from tests.benchmarks.rank.threads import ALONE
from tests.replica_threads import in_threads

MIB = 1 << 20


class Pair:
    """A collective of two ranks of which this is the first; the other one's values are one larger."""

    rank, size = 0, 2

    def __init__(self, seconds_per_byte=0.0, error=0.0, sends=lambda call: True):  # noqa: ARG005
        self.seconds_per_byte, self.error, self.sends = seconds_per_byte, error, sends
        self.calls = []

    def empty(self, count, dtype="float32"):
        return np.zeros(count, dtype)

    def allreduce(self, buffer, op):
        self.calls.append((buffer.nbytes, op))
        if self.sends(len(self.calls)):
            buffer += 0.5 + self.error
        time.sleep(self.seconds_per_byte * buffer.nbytes)


@pytest.mark.parametrize(
    ("settings", "num_bytes", "sizes"),
    [
        ({"bucket_bytes": "100,24", "overlap": True}, 124, [100, 24]),
        ({"bucket_bytes": 4096}, 4096, [4096]),
        ({}, 124, [124]),
        ({"fusion_threshold_bytes": "100"}, 250, [100, 100, 50]),
        ({"fusion_threshold_bytes": "0"}, 250, [250]),
        ({"bucket_bytes": "100,24", "staging_bytes": 64}, 124, [64, 36, 24]),
        ({"bucket_bytes": "128", "staging_bytes": 64}, 128, [64, 64]),
    ],
)
def test_the_sizes_are_those_of_the_trainers_messages(settings, num_bytes, sizes):
    assert bucket_sizes(settings, num_bytes) == sizes


def test_a_setting_that_is_no_list_of_sizes_is_an_error():
    with pytest.raises(ValueError, match="invalid literal"):
        bucket_sizes({"bucket_bytes": "100 | 24"}, 124)


def test_each_bucket_has_its_own_seconds():
    collective = Pair(seconds_per_byte=1e-8)
    meetings = []
    exchange = ExchangeOnly(collective, [2 * MIB, MIB], lambda: time.sleep(meetings.append(0) or 0.02))
    for _ in range(3):
        exchange.step()
    assert collective.calls == [(2 * MIB, "average"), (MIB, "average")] * 3
    large, small = exchange.take_seconds()
    assert large >= 3 * 2e-8 * MIB
    assert small >= 3e-8 * MIB
    assert len(meetings) == 6
    assert large + small < 0.5 * 6 * 0.02 + 3 * 3e-8 * MIB, "meeting is not on a bucket's clock"
    assert exchange.take_seconds() == [0.0, 0.0]


@pytest.mark.parametrize(("error", "passed"), [(0.0, True), (0.01, False), (float("nan"), False)])
def test_the_gate_sees_a_wrong_mean(error, passed):
    exchange = ExchangeOnly(Pair(error=error), [1000, 24], ALONE.Barrier)
    for _ in range(4):
        exchange.step()
    gate = exchange.gate(ALONE)
    assert (gate.name, gate.passed) == ("exchange", passed)


@pytest.mark.parametrize("num_steps", [4, 5])
@pytest.mark.parametrize("sends", [lambda call: call == 1, lambda call: call % 2, lambda call: call % 2 == 0])
def test_a_collective_that_sends_in_some_steps_only_is_seen(num_steps, sends):
    exchange = ExchangeOnly(Pair(sends=sends), [1024], ALONE.Barrier)
    for _ in range(num_steps):
        exchange.step()
    assert not exchange.gate(ALONE).passed


def test_what_an_earlier_step_brought_is_not_taken_for_this_one_s():
    class Keeping(Pair):
        def allreduce(self, buffer, op):
            super().allreduce(buffer, op)
            self.kept = getattr(self, "kept", buffer.copy())
            buffer[:] = self.kept

    exchange = ExchangeOnly(Keeping(), [1024], ALONE.Barrier)
    exchange.step()
    assert not exchange.gate(ALONE).passed


def test_before_the_first_step_no_bucket_holds_a_mean():
    assert not ExchangeOnly(Pair(), [4000], ALONE.Barrier).gate(ALONE).passed


# Of three ranks: halos of other sizes up and down, and statistics.
CALLS = [
    [Call("exchange", (0, 600)), Call("sum", (48,)), Call("sum", (12,))],
    [Call("exchange", (300, 600)), Call("sum", (48,)), Call("sum", (12,))],
    [Call("exchange", (300, 0)), Call("sum", (48,)), Call("sum", (12,))],
]
NOTHING = np.empty(0, np.uint8)


class OverThreads(CarriedNeighbours):
    """Over what all ranks tell each other."""

    def __init__(self, neighbours):
        place = SimpleNamespace(Get_rank=lambda: neighbours.index)
        super().__init__(place, neighbours.split)
        self._add, self._neighbours = neighbours.sum, neighbours

    def _move(self, sends, receives):
        arrays = [
            dict(parts).get(self.index + way, NOTHING) for parts in (sends, receives) for way in (-1, 1)
        ]
        self._neighbours.exchange(*arrays)


def test_a_step_makes_the_calls_of_the_training_in_order_and_bytes():
    def work(neighbours):
        carried = OverThreads(neighbours)
        HalosOnly(carried, CALLS).step()
        return carried.last_calls()

    assert in_threads(3, work) == CALLS


def test_ranks_that_do_not_do_the_same_are_told():
    def work(neighbours):
        HalosOnly(neighbours, [CALLS[0], CALLS[1][::-1], CALLS[2]])

    with pytest.raises(ValueError, match="call 0 is exchange and sum on ranks of one replica"):
        in_threads(3, work)
