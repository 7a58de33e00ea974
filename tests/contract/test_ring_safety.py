"""The ring refuses what it cannot do, on all ranks and by name, and leaks nothing."""

import gc
import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.on_ranks(2, 4)


@pytest.fixture
def join(world):
    """join(communicator, **settings): a ring, closed at the end of the test unless it failed."""
    from dlscale.collectives.ring import Settings
    from dlscale.collectives.ring import join as join_ring

    rings = []

    def get(communicator=world, **settings):
        rings.append(join_ring(communicator, Settings(**settings)))
        return rings[-1]

    yield get
    for ring in rings:
        ring.close()


def values(ring, count=1000):
    return np.arange(count, dtype=np.float32) + ring.rank


def total(size, count=1000):
    return (np.arange(count) * size + size * (size - 1) // 2).astype(np.float32)


def refusals(world, call):
    """What every rank's `call` raised: kind and text, or None."""
    try:
        call()
    except Exception as error:
        mine = (type(error).__name__, str(error))
    else:
        mine = None
    return world.allgather(mine)


def is_open_mpi():
    from mpi4py import MPI

    return MPI.get_vendor()[0] == "Open MPI"


# ---- several rings ----


def test_shared_memory_of_one_ring_is_ordinary_memory_for_another(join, world):
    first, second = join(), join()
    buffer = first.empty(1000)
    buffer[:] = values(second)
    second.allreduce(buffer)
    np.testing.assert_array_equal(buffer, total(second.size))


# ---- what must be equal on all ranks ----


def other_on_the_last(world, usual, other):
    """`other` on the last rank, `usual` on the rest."""
    return other if world.Get_rank() == world.Get_size() - 1 else usual


DIFFERENCES = {
    "count": (
        lambda ring: ring.allreduce(np.ones(10)),
        lambda ring: ring.allreduce(np.ones(11)),
        "allreduce of 10 float64, sum",
        "allreduce of 11 float64, sum",
    ),
    "dtype": (
        lambda ring: ring.allreduce(np.ones(10)),
        lambda ring: ring.allreduce(np.ones(10, np.int64)),
        "10 float64",
        "10 int64",
    ),
    "op": (
        lambda ring: ring.allreduce(np.ones(10)),
        lambda ring: ring.allreduce(np.ones(10), "max"),
        "float64, sum",
        "float64, max",
    ),
    "memory": (lambda ring: ring.empty(10), lambda ring: ring.empty(11), "empty of 40", "empty of 44"),
    "operation": (
        lambda ring: ring.broadcast(np.ones(10)),
        lambda ring: ring.allgather(np.ones(10), np.ones(10 * ring.size)),
        "broadcast of 80",
        "allgather of 10",
    ),
    "root": (
        lambda ring: ring.broadcast(np.ones(10), 0),
        lambda ring: ring.broadcast(np.ones(10), ring.size - 1),
        "root 0",
        "root ",
    ),
    "nothing": (
        lambda ring: ring.allreduce(np.ones(10)),
        lambda ring: ring.allreduce(np.ones(0)),
        "of 10",
        "of 0",
    ),
}


@pytest.mark.parametrize("what", DIFFERENCES)
def test_debug_names_what_the_ranks_called(join, world, what):
    ring = join(debug=True)
    usual, other, said_first, said_last = DIFFERENCES[what]
    found = refusals(world, lambda: other_on_the_last(world, usual, other)(ring))
    for kind, text in found:
        assert kind == "ValueError", found
        assert f"rank 0 called {text.split('rank 0 called ')[1][:3]}" in text
        assert said_first in text.split(";")[0]
        assert f"rank {world.Get_size() - 1} called" in text
        assert said_last in text.split(";")[1]
    buffer = values(ring)  # nothing was sent: it goes on
    ring.allreduce(buffer)
    np.testing.assert_array_equal(buffer, total(ring.size))


@pytest.mark.parametrize(
    ("count", "other"), [(5, 6), (500, 600), (5, 500), (100_000, 100_001), (500, 100_000), (100_000, 300_000)]
)
@pytest.mark.parametrize("ranks_per_node", [0, 1])
def test_lengths_that_differ_are_an_error_on_all_ranks(join, world, count, other, ranks_per_node):
    if ranks_per_node and is_open_mpi():
        # Between processes of one machine it copies a message that is too long as a whole, and then complains.
        pytest.skip("Open MPI 5 writes beyond the end of a receive that is too short")
    # Some of these lengths are noticed only by a rank that waits in vain.
    ring = join(timeout_seconds=0.3, ranks_per_node=ranks_per_node)
    buffer = np.ones(other_on_the_last(world, count, other), np.float32)

    def reduce_twice():
        ring.allreduce(buffer)
        ring.barrier()  # whoever got through hears of it here

    found = refusals(world, reduce_twice)
    assert all(found), found
    assert {kind for kind, _ in found} <= {"RuntimeError"}, found


def test_shared_memory_of_different_sizes_is_refused_on_all_ranks(join, world):
    ring = join()
    found = refusals(world, lambda: ring.empty(other_on_the_last(world, 1_000, 100_000)))
    assert {kind for kind, _ in found} == {"MemoryError"}, found
    assert all("different amounts" in text for _, text in found), found
    buffer = values(ring)
    ring.allreduce(buffer)
    np.testing.assert_array_equal(buffer, total(ring.size))


@pytest.mark.parametrize("ranks_per_node", [0, 2])
def test_different_parts_of_shared_memory_are_refused_on_all_ranks(join, world, ranks_per_node):
    ring = join(ranks_per_node=ranks_per_node, timeout_seconds=1)
    array = ring.empty(100_000)
    begin = 64 if world.Get_rank() == 0 else 0
    found = refusals(world, lambda: ring.allreduce(array[begin : begin + 90_000]))
    assert all(found), found
    if ring.settings()["num_nodes"] == 1:
        assert {kind for kind, _ in found} == {"ValueError"}, found
        array[:] = values(ring, 100_000)
        ring.allreduce(array)
        np.testing.assert_array_equal(array, total(ring.size, 100_000))
    else:  # the other nodes had begun: nothing more may be sent
        assert {kind for kind, _ in found} == {"RuntimeError"}, found
        assert {kind for kind, _ in refusals(world, ring.barrier)} == {"RuntimeError"}


def test_a_negative_count_and_one_beyond_all_memory_are_refused(join):
    ring = join()
    with pytest.raises(ValueError, match="count is -1"):
        ring.empty(-1)
    for count in (2**50, 2**62, 2**70):
        with pytest.raises(MemoryError, match="KiB of shared memory each"):
            ring.empty(count)


def test_overlapping_input_and_output_are_refused_but_in_place(join):
    ring = join()
    p, whole = ring.size, np.ones(10 * ring.size + 5)
    buffer, own = whole[: 10 * p], slice(10 * ring.rank, 10 * ring.rank + 10)
    ring.reduce_scatter(buffer, buffer[own])
    ring.allgather(buffer[own], buffer)
    np.testing.assert_array_equal(buffer, p)
    beside = whole[10 * ring.rank + 5 : 10 * ring.rank + 15]
    for call in (lambda: ring.reduce_scatter(buffer, beside), lambda: ring.allgather(beside, buffer)):
        with pytest.raises(ValueError, match="overlap"):
            call()


# ---- a ring's end ----


def test_nothing_can_be_done_over_a_closed_ring(join, world):
    ring = join()
    array = ring.empty(10)
    ring.close()
    calls = [
        lambda: ring.allreduce(np.ones(3)),
        lambda: ring.allreduce(array),
        lambda: ring.reduce_scatter(np.ones(3 * ring.size), np.ones(3)),
        lambda: ring.allgather(np.ones(3), np.ones(3 * ring.size)),
        lambda: ring.broadcast(np.ones(3)),
        lambda: ring.empty(3),
        ring.barrier,
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match="this ring communicator is closed"):
            call()
    ring.close()


def in_a_child(work):
    """What `work` says in a forked child; the child ends at once."""
    parent_end, child_end = multiprocessing.Pipe()
    pid = os.fork()
    if pid == 0:
        try:
            child_end.send(work())
        except BaseException as error:
            child_end.send(f"{type(error).__name__}: {error}")
        finally:
            os._exit(0)
    child_end.close()
    try:
        return parent_end.recv() if parent_end.poll(30) else "nothing"
    except EOFError:
        return "it crashed"
    finally:
        os.waitpid(pid, 0)


def test_a_forked_child_is_refused_and_the_parent_goes_on(join, world):
    ring = join()
    array = ring.empty(1000)

    def work():
        said = []
        for call in (lambda: ring.allreduce(np.ones(3)), ring.barrier, lambda: ring.empty(3)):
            try:
                call()
            except RuntimeError as error:
                said.append(str(error))
        return said

    said = in_a_child(work)
    array[:] = values(ring)
    ring.allreduce(array)
    np.testing.assert_array_equal(array, total(ring.size))
    assert len(said) == 3, said
    for text in said:
        assert "belongs to the parent process; start helper processes by spawn or forkserver" in text


def test_a_forked_child_that_frees_the_ring_harms_nobody(join, world):
    held = {"ring": join(), "array": None}
    held["array"] = held["ring"].empty(10_000_000)
    address, num_bytes = held["array"].ctypes.data, held["array"].nbytes

    def work():
        # What the child allocates may come to lie where the parent has its shared memory.
        mine = [np.ones(num_bytes // 8) for _ in range(4)]
        overlapping = any(
            m.ctypes.data < address + num_bytes and address < m.ctypes.data + m.nbytes for m in mine
        )
        held["ring"].close()
        held.clear()
        gc.collect()
        return overlapping, all(float(m.sum()) == num_bytes // 8 for m in mine)

    gc.collect()  # what earlier tests left of the frameworks, which do not bear being freed in a child
    said = in_a_child(work)
    world.Barrier()
    buffer = values(held["ring"])
    held["ring"].allreduce(buffer)
    np.testing.assert_array_equal(buffer, total(held["ring"].size))
    assert isinstance(said, tuple), said
    assert said[1]


def resources():
    """Descriptors and mappings of this process."""
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir())), len(Path("/proc/self/maps").read_text().splitlines())


def test_joining_and_closing_leaks_nothing(world):
    from dlscale.collectives.ring import join as join_ring

    def once():
        ring = join_ring(world)
        array = ring.empty(1000)
        ring.allreduce(array)
        ring.close()

    for _ in range(10):  # MPI itself takes some at first
        once()
    before = resources()
    for _ in range(20):
        once()
    after = resources()
    assert after[0] <= before[0] + 2, (before, after)
    assert after[1] <= before[1] + 10, (before, after)
