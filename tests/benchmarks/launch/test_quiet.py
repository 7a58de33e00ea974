"""Waiting until other programs leave the machine alone."""

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.launch import quiet
from dlscale.benchmarks.launch.quiet import OtherLoad, read_other_load, wait_until_quiet

BUSY = OtherLoad(share=0.4, num_cores=2, waiting=0.24)
QUIET = OtherLoad(share=0.01, num_cores=2, waiting=0.0)


def readings(*loads):
    left = list(loads)
    return lambda *, gpus: left.pop(0)  # noqa: ARG005


def test_a_load_in_words():
    assert (
        BUSY.text == "other programs use 0.8 of 2 cores, some process waited for a core 24 % of the last 10 s"
    )
    assert not OtherLoad(share=0.0, num_cores=2, waiting=None, num_gpu_processes=3).quiet
    assert QUIET.quiet


def test_it_is_quiet_after_three_quiet_readings_in_a_row():
    told: list[str] = []
    read = readings(QUIET, QUIET, BUSY, QUIET, QUIET, QUIET)
    wait_until_quiet(60, gpus=False, tell=told.append, read=read)
    assert told == [BUSY.text]
    with pytest.raises(IndexError):
        read(gpus=False)


def test_a_machine_that_stays_busy_is_an_error_with_a_remedy():
    with pytest.raises(
        UsageError, match=r"not quiet within 0 s: other programs use 0\.8 of 2 cores.*wait_quiet"
    ):
        wait_until_quiet(0, gpus=False, tell=lambda _: None, read=readings(*[BUSY] * 3))


def test_a_reading_of_this_machine(monkeypatch):
    monkeypatch.setattr(quiet, "READING_SECONDS", 0.05)
    load = read_other_load(gpus=True)
    assert 0 <= load.share <= 1.5
    assert load.num_cores > 0
