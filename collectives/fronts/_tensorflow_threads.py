"""Whether gradients travel by threads in TensorFlow, the same on all ranks."""

from __future__ import annotations

import os

import numpy as np
import tensorflow as tf

from dlscale.collectives.backend import Collective
from dlscale.collectives.fronts.spare_cores import has_spare_core
from dlscale.collectives.fronts.teams import threads_may_communicate
from dlscale.collectives.training import AUTOMATIC
from dlscale.models.errors import UsageError


def with_threads(collective: Collective, teams: int) -> bool:
    """Whether threads communicate, for `Training.teams`; collective.

    One rank without a core to spare is enough to exchange in line on all: buckets would be others than without
    threads. Raises UsageError if there must be threads and MPI does not allow any.
    """
    if teams == AUTOMATIC:
        # TensorFlow's 0 stands for as many threads as there are CPUs.
        num_threads = tf.config.threading.get_intra_op_parallelism_threads() or len(os.sched_getaffinity(0))
        spare = np.array([has_spare_core(collective, num_threads=num_threads)], dtype=np.int64)
        collective.allreduce(spare, "min")
        return threads_may_communicate() and bool(spare[0])
    if teams and not threads_may_communicate():
        raise UsageError(
            f"teams={teams} was asked for, but this MPI does not grant MPI_THREAD_MULTIPLE; "
            "initialise it so (mpi4py does unless told otherwise), or give teams=0"
        )
    return teams > 0
