"""One rank of a contract run: pytest with its output and exit status in a file of the rank's own.

python rank_pytest.py <folder> <arguments of pytest ...>
"""

import faulthandler
import gc
import os
import signal
import sys
import tempfile
from pathlib import Path

gc.disable()  # while frameworks are imported it finds none; `world` in tests/contract switches it on

import pytest  # noqa: E402

RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")


def serve(num_servers):
    """Serve one backend after the other, as the tests of the workers say."""
    from mpi4py import MPI

    from dlscale.collectives.job import split
    from dlscale.collectives.registry import serve

    job = split(MPI.COMM_WORLD, num_servers=num_servers)
    while (order := job.next_order()).pop("do") == "serve":
        serve(order.pop("backend"), job=job, **order)
    return 0


def main():
    folder, *arguments = sys.argv[1:]
    rank = next(os.environ[name] for name in RANK_VARIABLES if name in os.environ)
    with (Path(folder) / f"rank-{rank}.txt").open("w") as output:
        for stream in (sys.stdout, sys.stderr):  # below Python too: a crash in C++ is heard
            stream.flush()
            os.dup2(output.fileno(), stream.fileno())
    # The launcher ends the others when one rank is timed out: where they were then is told without Python's lock, and
    # past pytest, which has standard error for itself while a test runs.
    faulthandler.register(signal.SIGTERM, file=os.dup(sys.stderr.fileno()), chain=True)
    num_servers = int(os.environ.get("DLSCALE_CONTRACT_SERVERS", "0"))
    num_workers = int(os.environ["DLSCALE_UNDER_MPIEXEC"])
    tempfile.tempdir = folder  # what a killed rank leaves goes with the launch
    # A folder of its own: ranks that clear pytest's common one at the same time get into each other's way.
    arguments.append(f"--basetemp={folder}/rank-{rank}-tmp")
    status = serve(num_servers) if int(rank) >= num_workers else pytest.main(arguments)
    (Path(folder) / f"rank-{rank}.status").write_text(f"{int(status)}")
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
