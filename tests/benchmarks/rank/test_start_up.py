"""The time from a launch to the end of a rank's start-up, on clocks that nobody sets."""

import threading
import time

import pytest

from dlscale.benchmarks.rank import launch
from dlscale.benchmarks.rank.launch import seconds_since_launch
from dlscale.benchmarks.rank.process import boot_id
from dlscale.benchmarks.rank.spec import LaunchSpec
from dlscale.benchmarks.study.rules import Rules
from tests.benchmarks.rank.threads import on_ranks


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


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_a_step_of_the_clock_that_people_set_changes_nothing(spec, monkeypatch, step):
    spec, now = spec(1), time.time
    monkeypatch.setattr(time, "time", lambda: now() + step)
    assert 5.0 <= seconds_since_launch(spec, None) < 60.0


def test_ranks_on_other_machines_have_the_time_of_the_supervisors(spec, monkeypatch):
    """Rank 1 is on another machine, whose clock began long ago, and ready 0.3 s before rank 0."""
    spec, clock, elsewhere = spec(2), time.monotonic, set()

    def rank(world):
        if world.rank == 1:
            elsewhere.add(threading.get_ident())
        else:
            time.sleep(0.3)
        return seconds_since_launch(spec, world)

    def is_elsewhere():
        return threading.get_ident() in elsewhere

    monkeypatch.setattr(launch, "boot_id", lambda: "another" if is_elsewhere() else boot_id())
    monkeypatch.setattr(time, "monotonic", lambda: clock() + 86400 * is_elsewhere())
    late, early = on_ranks(2, rank)
    assert 5.0 <= early < late < 60.0


@pytest.mark.parametrize("num_nodes", [1, 2])
def test_without_a_common_clock_there_is_no_time(spec, num_nodes):
    elsewhere = spec(num_nodes).model_copy(update={"boot_id": "another"})
    assert on_ranks(1, lambda world: seconds_since_launch(elsewhere, world)) == [None]
