"""What the timed loop costs by itself: windows of a trainer that does nothing, with the real control and spool.

    python tests/benchmark/harness_cost.py        prints microseconds per step and per window

The loop runs as in a launch: one rank, mpi4py's barrier, one line of JSON per window into a file. Allowed are 20 us
per step and 100 us per window.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

from mpi4py import MPI

from dlscale.benchmarks.rank.measure import HostClock, MpiBarrierControl, StepTimer, time_window
from dlscale.benchmarks.records.spool import SpoolWriter

NUM_WINDOWS = 2000
ALLOWED_STEP_MICROSECONDS, ALLOWED_WINDOW_MICROSECONDS = 20.0, 100.0


class Nothing:
    def step(self) -> None: ...

    def synchronize(self) -> None: ...


def window_microseconds(num_steps: int, *, step_timer: StepTimer | None) -> float:
    """Median time of a whole window, emission included."""
    control = MpiBarrierControl(MPI.COMM_WORLD.Dup())
    with tempfile.TemporaryDirectory() as folder:
        spool = SpoolWriter(Path(folder), 0)
        seconds = []
        for _ in range(NUM_WINDOWS):
            begin = time.perf_counter()
            window = time_window(
                Nothing(), control, phase="steady", num_steps=num_steps, step_timer=step_timer
            )
            spool.write(window, case=0)
            seconds.append(time.perf_counter() - begin)
        spool.close()
    return statistics.median(seconds) * 1e6


def main() -> int:
    failed = False
    for step_timer in (None, HostClock()):
        one, many = (window_microseconds(n, step_timer=step_timer) for n in (1, 101))
        step = (many - one) / 100
        failed |= step > ALLOWED_STEP_MICROSECONDS or one > ALLOWED_WINDOW_MICROSECONDS
        what = "with host stamps" if step_timer else "without host stamps"
        print(f"{what}: {step:.2f} us per step, {one:.1f} us per window of one step")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
