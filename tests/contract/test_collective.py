"""What every `Collective` promises, on however many ranks this was started.

A test communicates first and asserts last: where an assertion fails on one rank only, the others are not left
waiting, and the next test finds all ranks in step.
"""

import hashlib
import threading
import time

import numpy as np
import pytest

import dlscale.collectives

DTYPES = ("float32", "float64", "int32", "int64")
COUNTS = (0, 1, 2, 7, 1000, 65_537, "P-1", "P", "P+1")


def either(counts):
    """(count, dtype): every count in float32, and every dtype at 1000."""
    return [*((count, "float32") for count in counts), *((1000, dtype) for dtype in DTYPES[1:])]


@pytest.fixture(scope="module")
def backend(any_collective, world):
    backend = dlscale.collectives.connect(any_collective, control=world)
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def communicator(backend):
    communicator = backend.collective()
    yield communicator
    communicator.close()


def ramp(count, communicator, dtype="float32"):
    """Different on every rank and index, exact in float32: a dropped or doubled chunk cannot cancel out."""
    return (np.arange(count) * communicator.size + communicator.rank).astype(dtype)


def sum_of_ramps(count, communicator, dtype="float32"):
    p = communicator.size
    return (np.arange(count) * p**2 + p * (p - 1) // 2).astype(dtype)


def digests(world, array):
    return world.allgather(hashlib.sha256(array.tobytes()).hexdigest())


def test_rank_and_size_are_those_of_the_launch(communicator, world):
    assert (communicator.rank, communicator.size) == (world.Get_rank(), world.Get_size())


@pytest.mark.parametrize(("count", "dtype"), either(COUNTS))
def test_allreduce_sums_over_ranks(communicator, count, dtype):
    p = communicator.size
    count = {"P-1": p - 1, "P": p, "P+1": p + 1}.get(count, count)
    buffer = ramp(count, communicator, dtype)
    communicator.allreduce(buffer)
    np.testing.assert_array_equal(buffer, sum_of_ramps(count, communicator, dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", [0, 1, 2, 1000, 65_537])
def test_an_average_is_the_sum_over_the_number_of_ranks(communicator, count, dtype):
    summed, averaged = (ramp(count, communicator, dtype) for _ in range(2))
    communicator.allreduce(summed)
    communicator.allreduce(averaged, "average")
    np.testing.assert_allclose(averaged, summed / communicator.size, rtol=np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["min", "max"])
def test_the_least_and_the_largest_over_ranks(communicator, op, dtype):
    # Rank r holds i * P + r, but in every third place the order of the ranks is turned round.
    last = communicator.size - 1
    mine = np.where(np.arange(1000) % 3, communicator.rank, last - communicator.rank)
    buffer = (np.arange(1000) * communicator.size + mine).astype(dtype)
    communicator.allreduce(buffer, op)
    extreme = 0 if op == "min" else last
    np.testing.assert_array_equal(buffer, np.arange(1000) * communicator.size + extreme)


def test_an_unknown_operation_and_an_average_of_integers_are_refused(communicator):
    with pytest.raises(ValueError, match="no operation 'mean'; choose one of: sum, average, min, max"):
        communicator.allreduce(np.ones(3), "mean")
    with pytest.raises(TypeError, match="int32"):
        communicator.allreduce(np.ones(3, dtype=np.int32), "average")


@pytest.mark.parametrize(("count", "dtype"), either([0, 1, 1000, 65_537]))
def test_memory_of_its_own_is_cleared_aligned_and_can_be_reduced(communicator, count, dtype):
    buffer = communicator.empty(count, dtype)
    cleared, address = bool((buffer == 0).all()), buffer.ctypes.data
    buffer[:] = ramp(count, communicator, dtype)
    communicator.allreduce(buffer)
    communicator.allreduce(buffer[count // 4 : count // 2])
    assert cleared
    assert (buffer.shape, buffer.dtype) == ((count,), np.dtype(dtype))
    assert count == 0 or address % 64 == 0
    expected = sum_of_ramps(count, communicator, dtype)
    expected[count // 4 : count // 2] *= communicator.size
    np.testing.assert_array_equal(buffer, expected)


def test_memory_of_its_own_outlives_the_communicator(backend):
    communicator = backend.collective()
    buffer = communicator.empty(10_000)
    buffer[:] = ramp(10_000, communicator)
    communicator.allreduce(buffer)
    communicator.close()
    buffer += 1
    np.testing.assert_array_equal(buffer, sum_of_ramps(10_000, communicator) + 1)


def test_allreduce_keeps_the_shape(communicator):
    buffer = ramp(3 * 5 * 7, communicator).reshape(3, 5, 7)
    communicator.allreduce(buffer)
    np.testing.assert_array_equal(buffer, sum_of_ramps(3 * 5 * 7, communicator).reshape(3, 5, 7))


def test_allreduce_writes_nothing_beside_a_view(communicator):
    whole = ramp(1000, communicator)
    communicator.allreduce(whole[100:900])
    np.testing.assert_array_equal(whole[100:900], sum_of_ramps(1000, communicator)[100:900])
    np.testing.assert_array_equal(whole[:100], ramp(1000, communicator)[:100])
    np.testing.assert_array_equal(whole[900:], ramp(1000, communicator)[900:])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_all_ranks_get_the_same_bits(communicator, world, dtype):
    generator = np.random.default_rng([3, communicator.rank])
    values = generator.standard_normal(10_007) * 10.0 ** generator.integers(-6, 6, 10_007)
    buffer = values.astype(dtype)
    everyone = np.array(world.allgather(buffer), dtype=np.longdouble)
    communicator.allreduce(buffer)
    found = digests(world, buffer)
    assert len(set(found)) == 1, found
    # Any order of P - 1 additions is within (P - 1) u sum|x| of the exact sum.
    bound = communicator.size * np.finfo(dtype).eps * np.abs(everyone).sum(axis=0)
    assert (np.abs(buffer - everyone.sum(axis=0)) <= bound).all()


def test_not_finite_values_are_not_hidden(communicator):
    buffer = np.zeros(5, dtype=np.float32)
    if communicator.rank == 0:
        buffer[1] = np.nan
        buffer[2] = np.inf
    communicator.allreduce(buffer)
    np.testing.assert_array_equal(buffer, np.array([0, np.nan, np.inf, 0, 0], dtype=np.float32))


def test_calls_in_a_row_do_not_mix(communicator):
    buffers = [ramp(count, communicator) for count in (1, 64, 3, 1000, 2)]
    roots = [i % communicator.size for i in range(len(buffers))]
    roots_seen = [np.full(3, communicator.rank, dtype=np.int64) for _ in roots]
    for buffer, root, seen in zip(buffers, roots, roots_seen, strict=True):
        communicator.allreduce(buffer)
        communicator.broadcast(seen, root=root)
    for buffer, root, seen in zip(buffers, roots, roots_seen, strict=True):
        np.testing.assert_array_equal(buffer, sum_of_ramps(buffer.size, communicator))
        np.testing.assert_array_equal(seen, root)


@pytest.mark.parametrize(("count", "dtype"), either([0, 1, 1000, 65_537]))
def test_broadcast_from_each_root(communicator, count, dtype):
    buffers = [ramp(count, communicator, dtype) for _ in range(communicator.size)]
    for root, buffer in enumerate(buffers):
        communicator.broadcast(buffer, root=root)
    for root, buffer in enumerate(buffers):
        expected = (np.arange(count) * communicator.size + root).astype(dtype)
        np.testing.assert_array_equal(buffer, expected)


def test_barrier_waits_for_the_last(communicator, world):
    stamps = []
    for late in range(communicator.size):
        if communicator.rank == late:
            time.sleep(0.1)
        entered = time.monotonic()  # one clock per node
        communicator.barrier()
        stamps.append(world.allgather((entered, time.monotonic())))
    for ranks in stamps:
        assert max(entered for entered, _ in ranks) <= min(left for _, left in ranks)


def test_two_at_the_same_time_do_not_mix(backend):
    from mpi4py import MPI

    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        pytest.skip("this MPI grants no MPI_THREAD_MULTIPLE")
    communicators = [backend.collective() for _ in range(2)]
    buffers = [[ramp(1000, c) * (i + 1) for _ in range(5)] for i, c in enumerate(communicators)]

    def reduce_all(communicator, mine):
        for buffer in mine:
            communicator.allreduce(buffer)

    threads = [
        threading.Thread(target=reduce_all, args=(c, mine))
        for c, mine in zip(communicators, buffers, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for communicator in communicators:
        communicator.close()
    for i, communicator in enumerate(communicators):
        for buffer in buffers[i]:
            np.testing.assert_array_equal(buffer, sum_of_ramps(1000, communicator) * (i + 1))


def test_a_closed_communicator_refuses(backend):
    communicator = backend.collective()
    communicator.close()
    communicator.close()
    for use in (
        lambda: communicator.allreduce(np.ones(3)),
        lambda: communicator.broadcast(np.ones(3)),
        communicator.barrier,
    ):
        with pytest.raises(RuntimeError, match="closed"):
            use()


def read_only():
    buffer = np.ones(4)
    buffer.flags.writeable = False
    return buffer


REFUSED = [
    pytest.param(lambda: np.ones(4, dtype=np.uint8), TypeError, "uint8", id="uint8"),
    pytest.param(lambda: np.ones(4, dtype=np.complex64), TypeError, "complex64", id="complex64"),
    pytest.param(lambda: np.ones(4, dtype=">f8"), TypeError, ">f8", id="other byte order"),
    pytest.param(lambda: [1.0, 2.0], TypeError, "list; give a NumPy array", id="list"),
    pytest.param(lambda: np.ones(8)[::2], ValueError, "not C-contiguous", id="strided"),
    pytest.param(lambda: np.ones((3, 4)).T, ValueError, "not C-contiguous", id="transposed"),
    pytest.param(read_only, ValueError, "read-only", id="read-only"),
    pytest.param(
        lambda: np.frombuffer(bytearray(17), np.float64, offset=1), ValueError, "aligned", id="odd address"
    ),
]


@pytest.mark.parametrize("operation", ["allreduce", "broadcast"])
@pytest.mark.parametrize(("make", "error", "text"), REFUSED)
def test_what_cannot_be_reduced_is_refused(communicator, operation, make, error, text):
    with pytest.raises(error, match=text):
        getattr(communicator, operation)(make())


ODD_ARGUMENTS = [
    pytest.param("broadcast", (np.ones(3), -1), ValueError, "root is -1; give", id="negative root"),
    pytest.param("broadcast", (np.ones(3), 99), ValueError, "root is 99; give", id="root outside"),
    pytest.param("broadcast", (np.ones(3), 1.5), ValueError, "root is 1.5; give", id="half a root"),
    pytest.param("allreduce", (np.ones(3), None), ValueError, "no operation None", id="no operation"),
    pytest.param("empty", (-1,), ValueError, "count is -1; give", id="negative count"),
    pytest.param("empty", (1.5,), ValueError, "count is 1.5; give", id="half an element"),
    pytest.param("empty", (3, "float33"), TypeError, "no dtype 'float33' here; give float", id="no dtype"),
    pytest.param(
        "empty", (3, "complex64"), TypeError, "no dtype 'complex64' here; give", id="unusable dtype"
    ),
]


@pytest.mark.parametrize(("operation", "arguments", "error", "text"), ODD_ARGUMENTS)
def test_odd_arguments_are_refused_in_one_line(communicator, operation, arguments, error, text):
    with pytest.raises(error, match=f"^{text}.*$"):
        getattr(communicator, operation)(*arguments)
