"""The time from a launch to the end of a rank's start-up, on clocks that nobody sets."""

import time
from threading import Barrier, Thread

import pytest

from dlscale.benchmarks.rank import launch
from dlscale.benchmarks.rank.launch import LaunchSpec, seconds_since_launch
from dlscale.benchmarks.rank.lifeline import boot_id
from dlscale.benchmarks.study.rules import Rules


@pytest.fixture
def spec(make_record):
    """spec(num_nodes): a launch 5 s ago, on this machine."""

    def make(num_nodes):
        case = make_record().case
        case = case.model_copy(update={"cell": case.cell.model_copy(update={"num_nodes": num_nodes})})
        return LaunchSpec(
            cases=[case], rules=Rules(), launched_at=time.monotonic() - 5, boot_id=boot_id(), seconds=1, data=None,
            seed=1,
        )  # fmt: skip

    return make


class Ranks:
    """Threads as ranks, each with the two operations that are needed."""

    def __init__(self, count):
        self._barrier, self._values = Barrier(count), []

    def Barrier(self):  # noqa: N802 - mpi4py's name
        self._barrier.wait()

    def allgather(self, value):
        self._values.append(value)
        self._barrier.wait()
        return self._values


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_a_step_of_the_clock_that_people_set_changes_nothing(spec, monkeypatch, step):
    spec, now = spec(1), time.time
    monkeypatch.setattr(time, "time", lambda: now() + step)
    assert 5.0 <= seconds_since_launch(spec, None) < 60.0


def test_ranks_on_other_machines_have_the_time_of_the_supervisors(spec, monkeypatch):
    """Rank 1 is on another machine, whose clock began long ago, and ready 0.3 s before rank 0."""
    spec, ranks, found = spec(2), Ranks(2), {}
    clock = time.monotonic

    def rank(number):
        time.sleep(0.3 * (number == 0))
        found[number] = seconds_since_launch(spec, ranks)

    machines = {}
    monkeypatch.setattr(launch, "boot_id", lambda: machines.get(_name(), boot_id()))
    monkeypatch.setattr(time, "monotonic", lambda: clock() + 86400 * (_name() in machines))
    threads = [Thread(target=rank, args=(number,), name=f"rank {number}") for number in range(2)]
    machines["rank 1"] = "another"
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert 5.0 <= found[1] < found[0] < 60.0


def _name():
    from threading import current_thread

    return current_thread().name


@pytest.mark.parametrize("num_nodes", [1, 2])
def test_without_a_common_clock_there_is_no_time(spec, num_nodes):
    elsewhere = spec(num_nodes).model_copy(update={"boot_id": "another"})
    assert seconds_since_launch(elsewhere, Ranks(1)) is None
