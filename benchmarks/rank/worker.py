"""What every rank of a launch runs: connect, pass the gates, time the windows, spool everything.

    mpiexec -n P python -P -m dlscale.benchmarks.rank.worker SPOOL_FOLDER

The folder holds the launch's specification (`LaunchSpec`); the supervisor wrote it and will read the spools. A launch
has one backend; its cases are the real training and the controls that share it.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import time

PROCESS_START = time.perf_counter()
# Collecting garbage while a framework is imported finds none and takes a quarter of that time;
# `run_launch_on_rank` switches it on again before anything is timed.
gc.disable()

from pathlib import Path  # noqa: E402 - the clock starts first
from typing import TYPE_CHECKING, NoReturn  # noqa: E402

from dlscale.benchmarks.rank import process  # noqa: E402 - light: nothing below may start a thread before binding

if TYPE_CHECKING:
    from dlscale.benchmarks.records.spool import SpoolWriter

ABORT_DELAY_SECONDS = 2.0


def main() -> NoReturn:
    """Run the launch of the folder named on the command line.

    The exit status is 0 where the spool says how it ended, with gates that failed too: launchers end the other ranks
    of one that fails.
    """
    folder = Path(sys.argv[1])
    process.end_with_parent()
    tempfile.tempdir = str(folder.absolute())  # what a killed rank leaves goes with the spool
    # Before the specification can be read: what checks it comes with threads.
    cores = process.bind(
        int(os.environ["DLSCALE_CORES_PER_RANK"]), num_workers=int(os.environ["DLSCALE_NUM_WORKERS"])
    )

    from dlscale.benchmarks.records.spool import SPEC_FILE, Abort, RankEnd, SpoolWriter
    from dlscale.collectives.control import control_plane

    plane = control_plane(folder)
    spool = SpoolWriter(folder, plane.rank)
    try:
        from dlscale.base.files import read_regular
        from dlscale.benchmarks.rank.launch import run_launch_on_rank
        from dlscale.benchmarks.rank.spec import LaunchSpec

        spec = LaunchSpec.model_validate_json(read_regular(folder / SPEC_FILE))
        status = run_launch_on_rank(spec, spool, plane, cores=cores, process_start=PROCESS_START)
        plane.leave()
    except BaseException as error:
        _report(spool, error)
        # This may only be the echo of another rank's death (a connection that was closed). The launcher ends
        # all ranks when it sees a death, and then names the one that died; an abort now would hide it.
        time.sleep(ABORT_DELAY_SECONDS)
        spool.write(Abort(time=time.time()))
        # Otherwise the other ranks may wait for this one inside a collective: only an abort ends them all.
        plane.abort()
    spool.write(RankEnd(status=status))
    # All is written. Taking a framework's interpreter down would cost every launch another 0.6 s.
    sys.stdout.flush()
    os._exit(0)


def _report(spool: SpoolWriter, error: BaseException) -> None:
    import traceback

    from dlscale.base.errors import UsageError
    from dlscale.benchmarks.records.spool import RankError

    text = (str(error) or type(error).__name__).splitlines()[0]
    if not isinstance(error, UsageError):
        text = f"{type(error).__name__}: {text}"
    spool.write(RankError(time=time.time(), message=text, traceback=traceback.format_exc()))


if __name__ == "__main__":
    main()
