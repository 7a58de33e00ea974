"""More than 2^31 bytes: nightly, since it needs 6 GiB of memory per rank and a while."""

import os

import numpy as np
import pytest

COUNT = 2**29 + 3  # of float32
STEP = 2**24
NEEDED_GIB_PER_RANK = 6

pytestmark = [
    pytest.mark.skipif("DLSCALE_LARGE" not in os.environ, reason="make test-nightly runs these"),
    pytest.mark.timeout(900),
]


def available_gib():
    with open("/proc/meminfo") as file:
        lines = dict(line.split(":") for line in file)
    return int(lines["MemAvailable"].split()[0]) / 2**20


def pattern(begin, end):
    return (np.arange(begin, end) % 4093).astype(np.float32)


def fill(buffer, rank):
    for begin in range(0, COUNT, STEP):
        end = min(begin + STEP, COUNT)
        buffer[begin:end] = pattern(begin, end) + rank


def wrong_elements(buffer, factor, constant):
    """How many differ from factor * pattern + constant; sums of small integers are exact."""
    wrong = 0
    for begin in range(0, COUNT, STEP):
        end = min(begin + STEP, COUNT)
        wrong += int((buffer[begin:end] != pattern(begin, end) * factor + constant).sum())
    return wrong


@pytest.mark.parametrize("ranks_per_node", [0, 1])
@pytest.mark.parametrize("memory", ["ordinary", "shared"])
def test_more_bytes_than_an_int_can_count(world, memory, ranks_per_node):
    from dlscale.collectives.ring import Settings, join

    if min(world.allgather(available_gib())) < NEEDED_GIB_PER_RANK * world.Get_size():
        pytest.skip(f"needs {NEEDED_GIB_PER_RANK} GiB of free memory per rank")
    ring = join(world, Settings(ranks_per_node=ranks_per_node))
    p = ring.size
    buffer = ring.empty(COUNT) if memory == "shared" else np.empty(COUNT, np.float32)
    fill(buffer, ring.rank)
    ring.allreduce(buffer)
    wrong = [wrong_elements(buffer, p, p * (p - 1) // 2)]
    fill(buffer, ring.rank)
    ring.broadcast(buffer, p - 1)
    wrong.append(wrong_elements(buffer, 1, p - 1))
    del buffer
    ring.close()
    assert wrong == [0, 0]
