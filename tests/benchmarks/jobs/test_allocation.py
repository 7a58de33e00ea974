"""What a job starts in the time that it has left."""

import time
from types import SimpleNamespace

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.jobs import allocation
from dlscale.benchmarks.jobs.jobs import JobFiles

CELL = SimpleNamespace(num_ranks=1, num_nodes=1, workload="", framework="", method="", control="")
LONG = SimpleNamespace(full=7200.0, least=60.0, cell=CELL)
SHORT = SimpleNamespace(full=30.0, least=30.0, cell=CELL)


class Job:
    """A campaign whose launches take as long as planned, times `slower`, on a clock of its own."""

    def __init__(self, launches, *, slower):
        self.now, self.started, self._launches, self._slower = 1000.0, [], launches, slower
        self.plan = SimpleNamespace(
            seconds=lambda launches, to_end=True: sum(one.full if to_end else one.least for one in launches),
        )

    def collect_leftovers(self):
        pass

    def todo(self):
        return self._launches

    def run(self, launch):
        self.started.append(launch)
        self.now += self._slower * launch.full
        return []


@pytest.fixture
def left(monkeypatch):
    """left(launches, seconds): (launches that were started, how many were not) in a job of so many seconds."""

    def run(launches, seconds, *, slower):
        job = Job(launches, slower=slower)
        monkeypatch.setattr(allocation.time, "monotonic", lambda: job.now)
        return job.started, allocation.run_until(time.time() + allocation.RESERVE_SECONDS + seconds, job)

    return run


@pytest.mark.parametrize(
    ("launches", "seconds", "slower", "num_started"),
    [
        ([SHORT, SHORT, SHORT], 70, 1.0, 2),  # what cannot end is not started
        ([SHORT, SHORT, SHORT], 130, 2.0, 2),  # a job keeps its own pace in mind
        ([LONG], 100, 1.0, 1),  # a saved training starts if it reaches a checkpoint
        ([LONG], 50, 1.0, 0),
        ([LONG, SHORT], 7300, 1.0, 2),  # a long training does not make the job look slow
    ],
)
def test_what_is_started_in_the_time_that_is_left(left, launches, seconds, slower, num_started):
    expected = (launches[:num_started], len(launches) - num_started)
    assert left(launches, seconds, slower=slower) == expected


def test_a_program_that_finds_no_nodes_says_so(tmp_path, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    monkeypatch.setattr(JobFiles, "read", lambda _: SimpleNamespace(num_nodes=1))
    study = SimpleNamespace(system=SimpleNamespace(scheduler="slurm"))
    monkeypatch.setattr(allocation, "read_study_file", lambda _: study)
    (tmp_path / "jobs").mkdir()
    with pytest.raises(UsageError, match=r"no job of slurm .* dlscale resume submits it"):
        allocation.run(tmp_path, "job-000")


@pytest.mark.parametrize("content", [b"", b"\xff\n", b"--all\n", b"1 2\n"])
def test_a_damaged_number_of_a_job_is_told(tmp_path, content):
    files = JobFiles(tmp_path, "job-000")
    assert files.id is None
    files.path("id").parent.mkdir()
    files.path("id").write_bytes(content)
    with pytest.raises(UsageError, match=r"job-000.id has no number of a job"):
        _ = files.id
    files.accepted("123.server")
    assert files.id == "123.server"
