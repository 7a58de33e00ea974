"""Whose clock says how long a step took."""

import pytest

from dlscale.benchmarks.rank.measure import DeviceEvents, StepTimer, step_timer_for, time_window
from tests.benchmarks.rank.threads import ALONE
from tests.made_records import make_record


class Device:
    """A GPU whose work takes known times, far behind the host that hands it out."""

    def __init__(self) -> None:
        self.milliseconds = 0.0  # of the work handed out so far
        self.num_events = 0
        self.idle = False

    def work(self, milliseconds: float) -> None:
        self.milliseconds += milliseconds
        self.idle = False

    def event(self) -> "Event":
        self.num_events += 1
        return Event(self)


class Event:
    def __init__(self, device: Device) -> None:
        self.device, self.reached_at = device, None

    def record(self) -> None:
        self.reached_at = self.device.milliseconds

    def elapsed_time(self, end_event: "Event") -> float:
        assert self.device.idle, "asked for a mark that the device has not reached"
        return end_event.reached_at - self.reached_at


class Trainer:
    """The host returns at once from a step that takes the device a long time."""

    def __init__(self, device: Device, step_milliseconds: list[float]) -> None:
        self.device, self.left = device, list(step_milliseconds)

    def step(self) -> None:
        self.device.work(self.left.pop(0))

    def synchronize(self) -> None:
        self.device.idle = True


def window(trainer, step_timer, num_steps):
    return time_window(trainer, ALONE, phase="steady", num_steps=num_steps, step_timer=step_timer)


def test_a_devices_own_clock_sees_what_the_hosts_does_not():
    device = Device()
    trainer = Trainer(device, [4000.0, 1000.0, 2500.0] * 2)
    by_device = window(trainer, DeviceEvents(device.event), 3)
    assert by_device.step_seconds == [4.0, 1.0, 2.5]
    by_host = window(trainer, StepTimer(), 3)
    assert max(by_host.step_seconds) < 0.1


def test_events_serve_again_and_what_came_before_a_window_is_not_in_it():
    device = Device()
    step_timer = DeviceEvents(device.event)
    trainer = Trainer(device, [10.0, 20.0, 30.0, 40.0, 50.0, 60.0])
    assert window(trainer, step_timer, 2).step_seconds == [0.01, 0.02]
    device.work(7000.0)
    assert window(trainer, step_timer, 3).step_seconds == [0.03, 0.04, 0.05]
    assert window(trainer, step_timer, 1).step_seconds == [0.06]
    assert device.num_events == 4


def test_a_host_clock_serves_again_and_without_one_there_are_no_stamps():
    step_timer, trainer = StepTimer(), Trainer(Device(), [0.0] * 6)
    assert len(window(trainer, step_timer, 4).step_seconds) == 4
    assert len(window(trainer, step_timer, 1).step_seconds) == 1
    assert window(trainer, None, 1).step_seconds is None


@pytest.mark.parametrize(
    ("changes", "exchanges", "kind"),
    [
        ({}, False, StepTimer),
        ({}, True, None),
        ({"control": "synthetic"}, False, None),
        ({"device": "gpu"}, False, DeviceEvents),
        ({"device": "gpu"}, True, None),
        ({"device": "gpu", "framework": "tensorflow"}, False, None),
        ({"framework": "tensorflow"}, False, StepTimer),
    ],
)
def test_who_stamps_what(changes, exchanges, kind):
    found = step_timer_for(make_record().case.cell.model_copy(update=changes), exchanges=exchanges)
    assert found is None if kind is None else type(found) is kind
