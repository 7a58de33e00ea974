"""What the ring promises beyond the common contract, on however many ranks this was started."""

import ctypes
import mmap
import os

import numpy as np
import pytest

from dlscale.base.errors import UsageError

MEMFD_SECRET = 447  # the system call's number, on all machines


@pytest.fixture
def ring(world):
    from dlscale.collectives.ring import Settings, join

    return lambda world, **settings: join(world, Settings(**settings))


@pytest.mark.parametrize("segment_bytes", [1, 4, 60, 1000, 2**30])
@pytest.mark.parametrize("count", [1, 5, 1000])
def test_any_segment_size_gives_the_same_bits(ring, world, count, segment_bytes):
    mine = np.random.default_rng([5, world.Get_rank()]).standard_normal(count).astype(np.float32)
    whole, cut = mine.copy(), mine.copy()
    for buffer, limit in ((whole, ring(world)), (cut, ring(world, segment_bytes=segment_bytes))):
        limit.allreduce(buffer)
        limit.close()
    np.testing.assert_array_equal(whole, cut)


def test_any_switch_points_give_the_right_sums(ring, world):
    """A schedule between nodes for every size, and the default ones."""
    points = ("one_shot_bytes", "recursive_doubling_bytes", "halving_doubling_bytes")
    for limits in ((2**40, 0, 0), (0, 2**40, 0), (0, 0, 2**40), (0, 0, 0), (-1, -1, -1)):
        communicator = ring(world, ranks_per_node=1, **dict(zip(points, limits, strict=True)))
        p = communicator.size
        buffer = (np.arange(5_003) * p + communicator.rank).astype(np.float32)
        communicator.allreduce(buffer)
        communicator.close()
        np.testing.assert_array_equal(buffer, (np.arange(5_003) * p**2 + p * (p - 1) // 2).astype(np.float32))


@pytest.mark.parametrize("operation", ["allreduce", "allgather", "broadcast to it", "broadcast from it"])
def test_memory_that_the_kernel_does_not_copy_is_staged(ring, world, operation):
    """On one rank: secret memory (memfd_secret) stands for what a driver maps."""
    rank, size = world.Get_rank(), world.Get_size()
    count = 50_000 * size
    file = ctypes.CDLL(None).syscall(MEMFD_SECRET, 0) if rank == 0 else -1
    if world.bcast(file) < 0:
        pytest.skip("this kernel has no secret memory")
    buffer = np.zeros(count, np.float32)
    if rank == 0:
        os.ftruncate(file, buffer.nbytes)
        buffer = np.frombuffer(mmap.mmap(file, buffer.nbytes), np.float32)
        os.close(file)
    communicator = ring(world)
    root = size - 1 if operation == "broadcast to it" else 0
    parts = buffer.reshape(size, -1)
    for number in range(20):
        buffer[:] = rank + number
        if operation == "allreduce":
            communicator.allreduce(buffer)
            assert (buffer == size * number + size * (size - 1) // 2).all()
        elif operation == "allgather":
            communicator.allgather(parts[rank], buffer)
            assert (parts == np.arange(number, number + size)[:, None]).all()
        else:
            communicator.broadcast(buffer, root)
            assert (buffer == root + number).all()
    communicator.close()


def test_calls_and_bytes_are_counted(ring, world):
    communicator = ring(world, debug=True)  # whose own calls do not count
    size, part = communicator.size, np.ones(3)
    for _ in range(2):
        communicator.allreduce(part)
    communicator.reduce_scatter(np.ones(3 * size), part)
    communicator.allgather(part, np.ones(3 * size))
    communicator.broadcast(part)
    with pytest.raises(ValueError, match="product"):
        communicator.allreduce(part, "product")
    communicator.close()
    assert communicator.counts() == {
        "allreduce": (2, 48),
        "reduce_scatter": (1, 24 * size),
        "allgather": (1, 24 * size),
        "broadcast": (1, 24),
        "barrier": (0, 0),
    }


def test_crowded_means_more_ranks_than_cpus_of_the_node(ring, world):
    communicator = ring(world)
    crowded = communicator.settings()["crowded"]
    communicator.close()
    cpus = set().union(*world.allgather(os.sched_getaffinity(0)))
    assert crowded == (world.Get_size() > len(cpus))


def test_a_communicator_that_is_none_is_refused(ring):
    from mpi4py import MPI

    with pytest.raises(RuntimeError, match="MPI_COMM_NULL"):
        ring(MPI.COMM_NULL)
    with pytest.raises(UsageError, match=r"was given a int; give MPI\.COMM_WORLD"):
        ring(3)


@pytest.mark.parametrize("settings", [3, 0, "fast", {"timeout_seconds": 1}])
def test_settings_of_another_kind_are_refused(world, settings):
    from dlscale.collectives.ring import join

    with pytest.raises(UsageError, match=r"settings are .*; give ring\.Settings"):
        join(world, settings)


@pytest.mark.on_ranks(3)
def test_nodes_of_different_sizes_are_refused(ring, world):
    with pytest.raises(UsageError, match="from 1 to 2 ranks"):
        ring(world, ranks_per_node=2)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segment_bytes", -1),
        ("segment_bytes", 2**30 + 1),
        ("halving_doubling_bytes", -2),
        ("halving_doubling_bytes", 2**64),
        ("timeout_seconds", 0.0),
        ("timeout_seconds", "x"),
        ("timeout_seconds", True),
        ("segment_bytes", 1.5),
        ("ranks_per_node", -1),
    ],
)
def test_a_setting_outside_the_limits_is_refused(ring, world, name, value):
    with pytest.raises(UsageError, match=name):
        ring(world, **{name: value})


@pytest.mark.parametrize(
    ("settings", "num_bytes", "found"),
    [
        ({}, 3 << 20, ("yes", "the pool of huge pages cannot give 4096 KiB: No space left on device")),
        ({}, 1 << 20, ("smaller than one",)),
        ({"huge_pages": False}, 3 << 20, ("not wanted",)),
    ],
)
def test_own_memory_lies_on_huge_pages_where_there_are_free_ones(ring, world, settings, num_bytes, found):
    communicator = ring(world, **settings)
    assert communicator.settings()["huge_pages"] == "no own memory was made"
    own = communicator.empty(num_bytes // 4)
    own[:] = communicator.rank
    communicator.allreduce(own)
    assert communicator.settings()["huge_pages"] in found
    assert own[0] == own[-1] == sum(range(communicator.size))
    del own
    communicator.close()


@pytest.mark.parametrize("operation", ["allreduce", "reduce_scatter", "allgather", "broadcast"])
def test_single_copies_give_the_same_bits(ring, world, operation):
    """Often enough that every variant of moving a message has its turn."""
    rank, size = world.Get_rank(), world.Get_size()
    communicators = [ring(world, single_copy=allowed) for allowed in (False, True)]
    part = np.random.default_rng([9, rank]).standard_normal(25_003).astype(np.float32)
    for _ in range(20):
        results = []
        for communicator in communicators:
            whole = np.tile(part, size)
            if operation == "allreduce":
                communicator.allreduce(whole, "average")
            elif operation == "reduce_scatter":
                whole, contributions = np.empty_like(part), whole
                communicator.reduce_scatter(contributions, whole)
            elif operation == "allgather":
                communicator.allgather(part, whole)
            else:
                communicator.broadcast(whole, size - 1)
            results.append(whole)
        np.testing.assert_array_equal(*results)
    for communicator in communicators:
        communicator.close()
