"""What audits cost: seconds of a rank inside them, in a launch as the default studies make them.

    python -m tests.benchmark.audits [backend ...]

prints, for timed launches of HEP-CNN `small` and trainings of `tiny` to the target of the study time-to-solution, the
seconds of audits on the slowest rank and their share of all that the rank trained, evaluated and was audited.
"""

import itertools
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from dlscale.benchmarks.study.rules import Rules
from dlscale.collectives.capabilities import capabilities
from tests.faults.test_planted import launched
from tests.made_records import TARGET

GOAL = TARGET | {"threshold": 0.993, "evaluate_every": 120, "max_seconds": 60.0, "learning_rate": 1e-3}
CASES = {
    "timed": {"preset": "small", "local_batch": 2, "seconds": 8.0},
    "to a target": {"preset": "tiny", "local_batch": 16, "seconds": 90.0, "target": GOAL},
}


def measured(fields):
    """(seconds of audits on the slowest rank, their share of them and of windows and evaluations)."""
    with TemporaryDirectory() as folder:
        os.environ["AUDITS_TIMED"] = folder
        record = launched(Path(folder) / "study", "audits_timed", rules=Rules(), **fields)
        if record.failure:
            sys.exit(f"{fields}: {record.failure.message}")
        seconds = max(float(file.read_text()) for file in Path(folder).glob("*.txt"))
    others = sum(max(window.seconds) for window in record.windows)
    others += record.solution.evaluations[-1].evaluating_seconds if record.solution else 0
    return seconds, seconds / (seconds + others)


def main(backends):
    for (name, case), backend, num_ranks in itertools.product(CASES.items(), backends, (1, 2)):
        fields = {**case, "backend": backend, "num_ranks": num_ranks}
        fields["global_batch"] = fields["local_batch"] * num_ranks
        if capabilities(backend).servers:
            fields["num_servers"] = 1
        seconds, share = measured(fields)
        print(f"{backend:8} {name:12} {num_ranks} ranks  {seconds:.2f} s  {share:.1%}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or ["none", "mpi", "grpc_ps", "mpi_ps"])
