"""Random operations from two threads at once, on rings of overlapping communicators, compared bit for bit.

`make test-nightly` does 20,000 of them. Values are small whole numbers, so that every order of additions gives the
same bits.
"""

import os
import threading
from dataclasses import dataclass

import numpy as np
import pytest

from .conftest import narrowed

pytestmark = pytest.mark.on_ranks(4)

NUM_OPERATIONS = int(os.environ.get("DLSCALE_STRESS", "300"))
LIMIT_SECONDS = 60 + NUM_OPERATIONS / 10
DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64")
KINDS = ("allreduce", "reduce_scatter", "allgather", "broadcast")
OPS = {"sum": np.sum, "average": np.sum, "min": np.min, "max": np.max}
LARGEST_BYTES = 2**20


@dataclass(frozen=True)
class Operation:
    number: int
    kind: str
    op: str
    dtype: str
    count: int  # elements of a part, or of the whole where there are no parts
    offset: int  # elements after a cache line
    root: int
    shared: bool
    fewer: int  # which of the smaller communicators


def operations(generator, count):
    """The same on all ranks."""
    for number in range(count):
        dtype = str(generator.choice(DTYPES))
        op = str(generator.choice(list(OPS)))
        size = int(2 ** generator.uniform(0, np.log2(LARGEST_BYTES))) // 8
        yield Operation(
            number=number,
            kind=str(generator.choice(KINDS)),
            op="sum" if op == "average" and dtype.startswith("int") else op,
            dtype=dtype,
            count=size,
            offset=int(generator.integers(0, 20)),
            root=int(generator.integers(0, 3)),
            shared=bool(generator.integers(0, 2)),
            fewer=int(generator.integers(0, 2)),
        )


def stored(numbers, dtype):
    return narrowed(numbers.astype(np.float32), dtype) if dtype == "bfloat16" else numbers.astype(dtype)


def numbers_of(operation, rank, count):
    """What a rank brings: -20 to 20, another sequence in every operation, on every rank and at every place."""
    return (np.arange(count) * 7 + rank * 13 + operation.number) % 41 - 20


def expected(operation, size, count):
    everyones = np.array([numbers_of(operation, rank, count) for rank in range(size)])
    result = OPS[operation.op](everyones, axis=0)
    if operation.op != "average":
        return stored(result, operation.dtype)
    wide = np.float64 if operation.dtype == "float64" else np.float32
    return stored(result.astype(wide) * wide(1.0 / size), operation.dtype)


def complaint(ring, memory, operation):
    """Do it; what is wrong with its result, if anything."""
    size, rank, dtype = ring.size, ring.rank, operation.dtype
    whole_count = operation.count * (1 if operation.kind in ("allreduce", "broadcast") else size)
    brought = operation.count if operation.kind == "allgather" else whole_count
    mine = stored(numbers_of(operation, rank, brought), dtype)
    place = memory if operation.shared else np.zeros(mine.nbytes + 4096, np.uint8)
    begin = (-place.ctypes.data % 64) + operation.offset * mine.itemsize
    buffer = place[begin : begin + mine.nbytes].view(mine.dtype)
    buffer[:] = mine
    half = {"bfloat16": dtype == "bfloat16"}
    if operation.kind == "allreduce":
        ring.allreduce(buffer, operation.op, **half)
        found, wanted = buffer, expected(operation, size, whole_count)
    elif operation.kind == "broadcast":
        ring.broadcast(buffer, operation.root)
        found, wanted = buffer, stored(numbers_of(operation, operation.root, whole_count), dtype)
    elif operation.kind == "reduce_scatter":
        found = np.zeros(operation.count, mine.dtype)
        ring.reduce_scatter(buffer, found, operation.op, **half)
        own = slice(rank * operation.count, (rank + 1) * operation.count)
        wanted = expected(operation, size, whole_count)[own]
    else:
        found = np.zeros(whole_count, mine.dtype)
        ring.allgather(buffer, found, **half)
        wanted = np.concatenate([stored(numbers_of(operation, r, brought), dtype) for r in range(size)])
    return None if found.tobytes() == wanted.tobytes() else f"{operation} on {size} ranks: other bits"


@pytest.mark.timeout(LIMIT_SECONDS + 60)
def test_every_bit_of_random_operations_from_two_threads_on_overlapping_rings(world):
    from dlscale.collectives.ring import Settings, join

    last = world.size - 1
    fewer = [world.Split(0 if world.rank < last else 1), world.Split(0 if world.rank > 0 else 1)]
    members = (world.rank < last, world.rank > 0)
    long = {"timeout_seconds": 30}
    everyones = join(world, Settings(ranks_per_node=2, **long))
    smaller = [
        join(fewer[0], Settings(**long)) if members[0] else None,  # on one node
        join(fewer[1], Settings(ranks_per_node=1, **long)) if members[1] else None,  # a node each
    ]
    complaints = []

    def work(seed, rings_of):
        try:
            memories = {}
            for operation in operations(np.random.default_rng(seed), NUM_OPERATIONS // 2):
                ring = rings_of(operation)
                if ring is None:
                    continue
                if ring not in memories:
                    memories[ring] = ring.empty(LARGEST_BYTES // 2, "int64").view(np.uint8)
                if found := complaint(ring, memories[ring], operation):
                    complaints.append(found)
                    return
        except Exception as error:
            complaints.append(f"{type(error).__name__}: {error}")

    threads = [
        threading.Thread(target=work, args=(1, lambda _: everyones), daemon=True),
        threading.Thread(target=work, args=(2, lambda operation: smaller[operation.fewer]), daemon=True),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_SECONDS)
    if any(thread.is_alive() for thread in threads):
        complaints.append(f"not done after {LIMIT_SECONDS:g} s")
    everybodys = world.allgather(complaints)
    assert not any(everybodys), everybodys
    for ring in (everyones, *filter(None, smaller)):
        ring.close()
    for communicator in fewer:
        communicator.Free()
