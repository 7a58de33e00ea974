"""Messages from rank to rank over the ring, inside a node and between nodes, on however many ranks this was started."""

import threading
import time

import numpy as np
import pytest

pytestmark = pytest.mark.on_ranks(1, 2, 3)

PLACES = {
    "one node": {},
    "staged": {"single_copy": False},
    "a node per rank": {"ranks_per_node": 1},
    "two nodes": {"ranks_per_node": 2},
}
LENGTHS = (0, 1, 63, 8192, 8193, 65_536, 1_000_001)


@pytest.fixture(scope="module", params=PLACES)
def ring(request, world):
    from dlscale.collectives.ring import Settings, join

    joined = join(world, Settings(timeout_seconds=60, **PLACES[request.param]))
    yield joined
    joined.close()


def bits(length, *seed):
    return np.random.default_rng(seed).integers(0, 256, length, dtype=np.uint8)


def shift(ring, length, *, tag=0, distance=1):
    """Send to the next rank, and what came from the one before."""
    received = np.zeros(length, np.uint8)
    coming = ring.irecv(received, (ring.rank - distance) % ring.size, tag=tag)
    going = ring.isend(bits(length, ring.rank, length, tag), (ring.rank + distance) % ring.size, tag=tag)
    assert coming.wait()
    assert going.wait()
    assert coming.source == (ring.rank - distance) % ring.size
    return received


@pytest.mark.parametrize("length", LENGTHS)
def test_every_bit_arrives_from_every_rank(ring, length):
    for distance in range(ring.size):  # 0: to itself
        received = shift(ring, length, distance=distance)
        np.testing.assert_array_equal(received, bits(length, (ring.rank - distance) % ring.size, length, 0))


@pytest.mark.parametrize("length", LENGTHS)
def test_blocking_messages_go_round(ring, length):
    """Odd ranks receive first."""
    if ring.size == 1:
        pytest.skip("one rank sends itself nothing that it waits for")
    before, after = (ring.rank - 1) % ring.size, (ring.rank + 1) % ring.size
    received = np.zeros(length, np.uint8)
    for step in range(2):
        if (ring.rank + step) % 2 == 0:
            ring.send(bits(length, ring.rank), after)
        else:
            assert ring.recv(received, before) == before
    np.testing.assert_array_equal(received, bits(length, before))


@pytest.mark.parametrize("dtype", ["float32", "complex128", "bool", "int8", "float16"])
def test_any_dtype_and_shape_travels(ring, dtype):
    def of(rank):
        return (np.arange(48) % 5 + rank).astype(dtype).reshape(6, 8)

    received = np.zeros_like(of(0))
    message = ring.irecv(received, (ring.rank - 1) % ring.size)
    ring.isend(of(ring.rank), (ring.rank + 1) % ring.size).wait()
    message.wait()
    np.testing.assert_array_equal(received, of((ring.rank - 1) % ring.size))


@pytest.mark.parametrize("length", [100, 100_000])
def test_messages_are_matched_by_tag_and_in_order(ring, length):
    """Every rank to every rank, three of each tag, received in the opposite order of tags."""
    tags, copies = (5, 0, 2**40), range(3)
    going = [
        ring.isend(bits(length, ring.rank, to, tag, copy), to, tag=tag)
        for to in range(ring.size)
        for copy in copies
        for tag in tags
    ]
    for tag in reversed(tags):
        for source in range(ring.size):
            for copy in copies:
                received = np.zeros(length, np.uint8)
                message = ring.irecv(received, source, tag=tag)
                assert message.wait()
                np.testing.assert_array_equal(received, bits(length, source, ring.rank, tag, copy))
    assert all(message.wait() for message in going)


@pytest.mark.parametrize("length", [100, 100_000])
def test_a_receive_from_any_rank_says_whose_message_it_was(ring, length):
    tag = 9 + length  # of this test alone: others may be ahead
    going = [ring.isend(bits(length, ring.rank, to), to, tag=tag) for to in range(ring.size)]
    sources = []
    for _ in range(ring.size):
        received = np.zeros(length, np.uint8)
        message = ring.irecv(received, tag=tag)
        message.wait()
        np.testing.assert_array_equal(received, bits(length, message.source, ring.rank))
        sources.append(message.source)
    assert sorted(sources) == list(range(ring.size))
    for message in going:
        message.wait()


def test_short_messages_may_all_be_sent_first(ring):
    others = [rank for rank in range(ring.size) if rank != ring.rank]
    for other in others:
        for number in range(5):
            ring.send(bits(8000, ring.rank, number), other)
    for other in others:
        for number in range(5):
            received = np.zeros(8000, np.uint8)
            ring.recv(received, other)
            np.testing.assert_array_equal(received, bits(8000, other, number))


@pytest.mark.parametrize("waits", [False, True])
def test_a_rank_in_another_operation_holds_up_no_message(ring, world, waits):
    """The first sends and then reduces, over the same ring or a smaller one; the others receive before that."""
    from dlscale.collectives.ring import Settings, join

    other = join(world, Settings(timeout_seconds=60)) if waits else ring
    length = 1_000_001
    if ring.rank == 0:
        going = [ring.isend(bits(length, 0), to) for to in range(1, ring.size)]
    else:
        received = np.zeros(length, np.uint8)
        ring.recv(received, 0)
        np.testing.assert_array_equal(received, bits(length, 0))
    total = np.ones(3, np.float32)
    other.allreduce(total)
    assert total.tolist() == [ring.size] * 3
    if ring.rank == 0:
        assert all(message.wait() for message in going)
    if waits:
        other.close()


def test_threads_share_a_ring_for_messages(ring):
    results = {}

    def work(tag):
        results[tag] = [shift(ring, length, tag=tag) for length in LENGTHS]

    threads = [threading.Thread(target=work, args=(tag,)) for tag in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for tag in (1, 2):
        for length, received in zip(LENGTHS, results[tag], strict=True):
            np.testing.assert_array_equal(received, bits(length, (ring.rank - 1) % ring.size, length, tag))


def test_a_message_is_done_without_being_waited_for(ring):
    received = np.zeros(100_000, np.uint8)
    messages = [
        ring.irecv(received, (ring.rank - 1) % ring.size),
        ring.isend(bits(100_000, ring.rank), (ring.rank + 1) % ring.size),
    ]
    end = time.monotonic() + 30
    while any(message.under_way for message in messages) and time.monotonic() < end:
        time.sleep(0.001)
    assert all(message.done for message in messages)
    np.testing.assert_array_equal(received, bits(100_000, (ring.rank - 1) % ring.size))


def test_a_wait_may_have_a_limit(ring, world):
    received = np.zeros(10, np.uint8)
    message = ring.irecv(received, ring.rank)
    assert not message.wait(0.01)
    assert message.under_way
    ring.isend(bits(10, 1), ring.rank)
    assert message.wait(30)


# ---- operations made of messages ----

DTYPES = ("float32", "complex128", "int8")


def part(count, dtype, *seed):
    return bits(count * 16, *seed).view(np.uint8)[: count * np.dtype(dtype).itemsize].view(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [0, 1, 1000, 50_001])
def test_all_to_all_of_equal_parts(ring, count, dtype):
    mine = np.concatenate([part(count, dtype, ring.rank, to) for to in range(ring.size)])
    output = np.zeros_like(mine)
    ring.all_to_all(mine, output)
    expected = np.concatenate([part(count, dtype, source, ring.rank) for source in range(ring.size)])
    assert output.tobytes() == expected.tobytes()


@pytest.mark.parametrize("unit", [1, 30_000])
def test_all_to_all_of_uneven_parts(ring, unit):
    def count(source, to):  # some are empty
        return (source * 2 + to) % 3 * unit

    ranks = range(ring.size)
    mine = np.concatenate([part(count(ring.rank, to), "int32", ring.rank, to) for to in ranks])
    expected = np.concatenate(
        [part(count(source, ring.rank), "int32", source, ring.rank) for source in ranks]
    )
    output = np.zeros_like(expected)
    ring.all_to_all(
        mine, output, [count(ring.rank, to) for to in ranks], [count(s, ring.rank) for s in ranks]
    )
    assert output.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [0, 1, 1000, 50_001])
def test_gather_and_scatter(ring, count, dtype):
    for root in range(ring.size):
        mine = part(count, dtype, ring.rank)
        whole = np.zeros(ring.size * count, dtype) if ring.rank == root else None
        ring.gather(mine, whole, root)
        if whole is not None:  # in place, too
            mine = whole.reshape(ring.size, -1)[root]
        ring.gather(mine, whole, root)
        piece = np.zeros(count, dtype)
        ring.scatter(whole, piece, root)
        assert piece.tobytes() == mine.tobytes()
        if whole is not None:
            expected = np.concatenate([part(count, dtype, rank) for rank in range(ring.size)])
            assert whole.tobytes() == expected.tobytes()


@pytest.mark.parametrize("count", [0, 1, 1000, 50_001])
def test_reduce(ring, count):
    p = ring.size
    for root in range(p):
        buffer = (np.arange(count) * p + ring.rank).astype(np.float32)
        ring.reduce(buffer, "max", root)
        if ring.rank == root:
            np.testing.assert_array_equal(buffer, (np.arange(count) * p + p - 1).astype(np.float32))


def test_exchanges_and_messages_do_not_meet(ring):
    """A receive from any rank that is under way leaves the parts of an exchange alone."""
    received, output = np.zeros(4, np.int64), np.zeros(ring.size, np.int64)
    message = ring.irecv(received)
    ring.all_to_all(np.full(ring.size, ring.rank), output)
    np.testing.assert_array_equal(output, np.arange(ring.size))
    ring.isend(np.full(4, 7), (ring.rank + 1) % ring.size)
    message.wait()
    assert received.tolist() == [7] * 4


def read_only():
    array = np.zeros(4)
    array.flags.writeable = False
    return array


REFUSED = {
    "no array": (lambda ring: ring.isend([1, 2], 0), TypeError, "is a list; give a NumPy array"),
    "objects": (lambda ring: ring.isend(np.array([{}]), 0), TypeError, "Python objects"),
    "strided": (lambda ring: ring.isend(np.zeros((4, 4)).T, 0), ValueError, "not C-contiguous"),
    "read-only": (lambda ring: ring.irecv(read_only(), 0), ValueError, "read-only"),
    "rank": (lambda ring: ring.isend(np.zeros(4), ring.size), ValueError, r"rank is \d; give 0 .. "),
    "no rank": (lambda ring: ring.recv(np.zeros(4), -1), ValueError, "rank is -1; give 0 .. "),
    "tag": (lambda ring: ring.isend(np.zeros(4), 0, tag=-1), ValueError, "tag is -1; give 0 or more"),
    "unequal parts": (
        lambda ring: ring.all_to_all(np.zeros(7), np.zeros(7), [6] * ring.size),
        ValueError,
        "counts",
    ),
    "overlap": (lambda ring: ring.all_to_all(*[np.zeros(6)] * 2), ValueError, "overlap"),
    "other dtypes": (lambda ring: ring.all_to_all(np.zeros(6), np.zeros(6, "f4")), TypeError, "one dtype"),
    "no root": (
        lambda ring: ring.gather(np.zeros(4), None, ring.size),
        ValueError,
        r"rank is \d; give 0 .. ",
    ),
    "root's array": (
        lambda ring: ring.gather(np.zeros(4), None if ring.rank == 0 else np.zeros(4)),
        ValueError,
        "root is rank 0; it gives an array for all pieces, the other ranks None",
    ),
    "root's length": (
        lambda ring: ring.scatter(np.zeros(5 * ring.size), np.zeros(4), ring.rank),
        ValueError,
        r"do not hold \d pieces of 4 float64",
    ),
    "itself": (
        lambda ring: ring.send(np.zeros(4), ring.rank),
        ValueError,
        "would wait for itself; begin with",
    ),
}


@pytest.mark.parametrize(("use", "error", "text"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_travel_is_refused_and_the_ring_goes_on(ring, use, error, text):
    with pytest.raises(error, match=text):
        use(ring)
    np.testing.assert_array_equal(shift(ring, 10), bits(10, (ring.rank - 1) % ring.size, 10, 0))


# ---- what goes wrong ----


def raised(world, call):
    """What every rank's `call` raised: kind and text, or None."""
    try:
        call()
    except Exception as error:
        return world.allgather((type(error).__name__, str(error)))
    return world.allgather(None)


@pytest.fixture(params=PLACES)
def failing(request, world):
    from dlscale.collectives.ring import Settings, join

    if world.Get_size() == 1:
        pytest.skip("needs two ranks")
    joined = join(world, Settings(timeout_seconds=0.5, **PLACES[request.param]))
    yield joined
    joined.close()


@pytest.mark.parametrize("length", [10, 100_000])
def test_lengths_that_differ_are_an_error_on_both_ranks(failing, world, length):
    def use():
        if failing.rank == 0:
            failing.send(np.zeros(length, np.uint8), 1)
        elif failing.rank == 1:
            failing.recv(np.zeros(20, np.uint8), 0)
        failing.barrier()  # whoever got through hears of it here

    for kind, text in raised(world, use):
        assert kind == "RuntimeError"
        assert f"rank 0 sent {length} bytes to rank 1, which expected 20" in text


def test_a_rank_that_does_not_send_is_named(failing, world):
    def use():
        if failing.rank == 0:
            failing.recv(np.zeros(20, np.uint8), 1, tag=4)
        else:
            time.sleep(1)  # the others are told
            failing.barrier()

    found = raised(world, use)
    assert {kind for kind, _ in found} == {"RuntimeError"}
    assert all(
        "rank 1 is late: it did not send a message with tag 4 to rank 0" in text for _, text in found
    ), found


def test_parts_that_differ_are_an_error_on_all_ranks(failing, world):
    counts = [1] * failing.size
    mine = [2, *counts[1:]] if failing.rank == 1 else counts  # for rank 0, which expects 1

    def use():
        failing.all_to_all(np.zeros(sum(mine)), np.zeros(failing.size), mine, counts)
        failing.barrier()

    for kind, text in raised(world, use):
        assert kind == "RuntimeError"
        assert (
            "rank 1 sent 16 bytes to rank 0, which expected 8; give lengths that agree on all ranks" in text
        )


def test_debug_names_operations_that_differ(world):
    from dlscale.collectives.ring import Settings, join

    if world.Get_size() == 1:
        pytest.skip("needs two ranks")
    ring = join(world, Settings(debug=True))
    whole = np.zeros(ring.size)

    def use():
        if ring.rank == 1:
            ring.scatter(None, whole[:1])
        else:
            ring.all_to_all(whole, whole.copy())

    for kind, text in raised(world, use):
        assert kind == "ValueError"
        assert "rank 0 called all_to_all" in text
        assert "rank 1 called scatter" in text
    ring.barrier()
    ring.close()


def test_nothing_can_be_sent_over_a_closed_ring(world):
    from dlscale.collectives.ring import join

    ring = join(world)
    message = ring.irecv(np.zeros(4), ring.rank)
    ring.close()
    for call in (lambda: ring.isend(np.zeros(4), ring.rank), lambda: ring.irecv(np.zeros(4)), message.wait):
        with pytest.raises(RuntimeError, match="this ring communicator is closed"):
            call()
    assert not message.under_way
