"""The ranks of one replica as threads of this process."""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor

from dlscale.collectives.neighbours import GatheringNeighbours


def in_threads(split, work):
    """What `work` gives on each of the ranks of one replica, which are threads of this process.

    What one of them raises is raised here.
    """
    barrier, values = threading.Barrier(split), [None] * split

    def run(index):
        def allgather(value):
            values[index] = copy.deepcopy(value)  # this rank's own may change while others look
            barrier.wait()
            everyone = list(values)
            barrier.wait()  # nobody gives the next one before all have seen this one
            return everyone

        try:
            return work(GatheringNeighbours(allgather, index=index, split=split))
        except BaseException:
            barrier.abort()  # the others would wait for ever
            raise

    with ThreadPoolExecutor(split) as pool:
        futures = [pool.submit(run, index) for index in range(split)]
        failed = [future.exception() for future in futures]
    for error in sorted(
        filter(None, failed), key=lambda error: isinstance(error, threading.BrokenBarrierError)
    ):
        raise error
    return [future.result() for future in futures]
