"""Starts ranks whose launcher does not notice when one of them dies, and watches what they tell."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
START_SECONDS = 60  # to start Python and MPI on a busy machine

# A launcher ends all ranks when one dies. Between it and each rank stands a shell that lives on, so that here
# the others are left to find out by themselves.
KEEPER = 'trap "" USR1; "$@"; sleep 600'


def mpiexec():
    beside = Path(sys.prefix) / "bin" / "mpiexec"
    program = str(beside) if beside.exists() else shutil.which("mpiexec")
    assert program, "the mark lets no test come here without an mpiexec"
    if not is_open_mpi(program):
        return [program]
    return [program, "--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]


def is_open_mpi(program):
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return "Open MPI" in version or "open-mpi" in version


class Launch:
    """Ranks of `ranks.py` that play one scenario.

    `before` is put before the launcher, `around` before each rank's command, which is run by `python`;
    `environment` is added.
    """

    def __init__(
        self,
        folder,
        scenario,
        *,
        num_ranks,
        python=sys.executable,
        before=(),
        around=(),
        environment=None,
        **settings,
    ):
        self.folder, self.num_ranks = folder, num_ranks
        keeper = ["sh", "-c", KEEPER, "keeper", *around]
        program = [python, str(HERE / "ranks.py"), str(folder), scenario, json.dumps(settings)]
        self._output = (folder / "mpiexec.txt").open("w")
        self._process = subprocess.Popen(
            [*before, *mpiexec(), "-n", str(num_ranks), *keeper, *program],
            env=os.environ | (environment or {}),
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def events(self, rank, kind=None):
        """What a rank told so far; of one kind if asked."""
        path = self.folder / f"{rank}.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        events = [json.loads(line) for line in lines if line.endswith("\n")]
        return [event for event in events if kind in (None, event["event"])]

    def wait_for(self, kind, ranks=None, *, seconds=START_SECONDS):
        """The latest event of that kind of each of `ranks`, all if none are named, once all have one."""
        ranks = range(self.num_ranks) if ranks is None else ranks
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = [self.events(rank, kind) for rank in ranks]
            if all(found):
                return [events[-1] for events in found]
            if kind != "error":
                for rank in ranks:
                    assert not self.events(rank, "error"), self.story()
            time.sleep(0.02)
        raise AssertionError(f"no {kind} from all of {list(ranks)} in {seconds} s\n{self.story()}")

    def story(self):
        """What everybody said last, for the message of a failure."""
        ends = [f"rank {rank}: {self.events(rank)[-2:]}" for rank in range(self.num_ranks)]
        return "\n".join([*ends, (self.folder / "mpiexec.txt").read_text()[-2000:]])

    def pid(self, rank):
        (hello,) = self.events(rank, "hello")
        return hello["pid"]

    def signal(self, rank, number):
        """Returns when it was sent, by the clock of the events."""
        os.kill(self.pid(rank), number)
        return time.monotonic()

    def is_gone(self, rank):
        try:
            return Path(f"/proc/{self.pid(rank)}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:  # gone, before it was opened or since
            return True

    def close(self):
        """End all of them."""
        for rank in range(self.num_ranks):
            with contextlib.suppress(ValueError, ProcessLookupError):
                self.signal(rank, signal.SIGKILL)
        for blow, patience_seconds in ((signal.SIGTERM, 5), (signal.SIGKILL, 5)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, blow)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience_seconds)
        self._output.close()


@pytest.fixture
def launch(tmp_path):
    """launch("scenario", num_ranks=2, ...): a started `Launch`."""
    launches = []

    def start(scenario, *, num_ranks=2, **more):
        folder = tmp_path / str(len(launches))
        folder.mkdir()
        launches.append(Launch(folder, scenario, num_ranks=num_ranks, **more))
        return launches[-1]

    yield start
    for started in launches:
        started.close()


@pytest.fixture
def open_mpi():
    """Whether this environment's MPI is Open MPI."""
    return is_open_mpi(mpiexec()[0])
