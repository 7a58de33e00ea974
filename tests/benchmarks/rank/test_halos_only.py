"""The control that exchanges what a training did: the same calls and bytes, and a gate that sees a wrong row."""

import pytest

from dlscale.benchmarks.rank.halos_only import HalosOnly
from dlscale.collectives.neighbours import Call, CarriedNeighbours
from tests.replica_threads import in_threads

# Of three ranks: halos of other sizes up and down, statistics, and a gather of uneven rows.
CALLS = [
    [Call("exchange", (0, 600)), Call("sum", (48,)), Call("sum", (12,)), Call("gather", (30,))],
    [Call("exchange", (300, 600)), Call("sum", (48,)), Call("sum", (12,)), Call("gather", (20,))],
    [Call("exchange", (300, 0)), Call("sum", (48,)), Call("sum", (12,)), Call("gather", (20,))],
]


class OverThreads:
    """A carrier over what all ranks tell each other, which may leave out a row."""

    takes_tensors = False

    def __init__(self, neighbours, *, wrong=""):
        self.index, self._neighbours, self._wrong = neighbours.index, neighbours, wrong

    def exchange(self, sends, receives):
        up, down = (dict(sends).get(self.index + way) for way in (-1, 1))
        from_up, from_down = (dict(receives).get(self.index + way) for way in (-1, 1))
        self._neighbours.exchange(up, down, from_up, from_down)
        if self._wrong == "exchange" and from_up is not None:
            from_up[-1] += 1

    def sum(self, values):
        own = values.copy()
        self._neighbours.sum(values)
        values[...] = own if self._wrong == "sum" else values

    def gather(self, own, whole, counts):
        self._neighbours.gather(own, whole, counts)
        whole[0] += self._wrong == "gather"

    def settings(self):
        return {}

    def close(self):
        pass


class Alone:
    def allgather(self, value):
        return [value]


def run(wrong=""):
    def work(neighbours):
        carried = CarriedNeighbours(OverThreads(neighbours, wrong=wrong), split=3)
        halos = HalosOnly(carried, CALLS)
        halos.step()
        first = carried.last_calls()
        return first, halos.gate(Alone())

    return in_threads(3, work)


def test_a_step_makes_the_calls_of_the_training_in_order_and_bytes():
    found = run()
    assert [calls for calls, _ in found] == CALLS
    assert all(gate.passed and gate.name == "halos" for _, gate in found)


@pytest.mark.parametrize("wrong", ["exchange", "sum", "gather"])
def test_rows_that_are_not_the_other_ranks_fail_the_gate(wrong):
    assert not all(gate.passed for _, gate in run(wrong))


def test_ranks_that_do_not_do_the_same_are_told():
    def work(neighbours):
        HalosOnly(neighbours, [CALLS[0], CALLS[1][::-1], CALLS[2]])

    with pytest.raises(ValueError, match="call 0 is exchange and gather on ranks of one replica"):
        in_threads(3, work)
