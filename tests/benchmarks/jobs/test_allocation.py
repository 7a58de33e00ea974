"""What a job starts in the time that it has left."""

import time
from types import SimpleNamespace

import pytest

from dlscale.benchmarks.jobs import allocation

LONG, SHORT = SimpleNamespace(full=7200.0, least=60.0), SimpleNamespace(full=30.0, least=30.0)


class Job:
    """A campaign whose launches take as long as planned, times `slower`, on a clock of its own."""

    def __init__(self, folder, launches, *, slower=1.0):
        self.now, self.started, self._launches, self._slower = 1000.0, [], launches, slower
        self.spool_folder = folder / "spool"
        self.store = SimpleNamespace(summaries=list)
        self.plan = SimpleNamespace(
            seconds=lambda launches: sum(one.full for one in launches),
            least_seconds=lambda launches: sum(one.least for one in launches),
        )

    def todo(self, _):
        return self._launches

    def run(self, _, launch):
        self.started.append(launch)
        self.now += self._slower * launch.full
        return []


@pytest.fixture
def left(monkeypatch, tmp_path):
    """left(launches, seconds): (launches that were started, how many were not) in a job of so many seconds."""

    def run(launches, seconds, **options):
        job = Job(tmp_path, launches, **options)
        monkeypatch.setattr(allocation.parity_gate, "missing", lambda _: [])
        monkeypatch.setattr(allocation, "run_launch", job.run)
        monkeypatch.setattr(allocation, "_say", lambda *_: None)
        monkeypatch.setattr(allocation.time, "monotonic", lambda: job.now)
        return job.started, allocation._run(job, time.time() + allocation.RESERVE_SECONDS + seconds)

    return run


def test_what_cannot_end_is_not_started(left):
    assert left([SHORT, SHORT, SHORT], 70) == ([SHORT, SHORT], 1)


def test_a_job_keeps_its_own_pace_in_mind(left):
    assert left([SHORT, SHORT, SHORT], 130, slower=2.0) == ([SHORT, SHORT], 1)


def test_a_saved_training_starts_if_it_reaches_a_checkpoint(left):
    assert left([LONG], 100) == ([LONG], 0)
    assert left([LONG], 50) == ([], 1)


def test_a_long_training_does_not_make_the_job_look_slow(left):
    assert left([LONG, SHORT], 7300) == ([LONG, SHORT], 0)
