"""Float32 that travels as bfloat16, bit by bit against the same arithmetic in NumPy (ring/bfloat16.py)."""

import hashlib

import numpy as np
import pytest

from dlscale.base.errors import UsageError

from .conftest import narrowed, widened

LAYOUTS = (0, 1, 2)  # ranks per node; 0 leaves the node whole
COUNTS = (1, 2, 31, 32, 33, 1000, 65_537, 300_001)


@pytest.fixture
def join(world):
    from dlscale.collectives.ring import Settings, join

    rings = []

    def joined(**settings):
        rings.append(join(world, Settings(wire="bfloat16", **settings)))
        return rings[-1]

    yield joined
    for ring in rings:
        ring.close()


def to_bfloat16(values):
    """The nearest bfloat16 values, as float32."""
    return widened(narrowed(values, "bfloat16"), "bfloat16")


class Model:
    """What all ranks must end with: `rounded` of every rank's values, step by step, for one bucket."""

    def __init__(self, num_ranks, ranks_per_node, *, feedback):
        per_node = ranks_per_node or num_ranks
        ranks = list(range(num_ranks))
        self.nodes = [ranks[i : i + per_node] for i in range(0, num_ranks, per_node)]
        self.num_ranks, self.feedback = num_ranks, feedback
        self.kept = {}

    def round(self, values, place):
        with np.errstate(invalid="ignore", over="ignore"):
            if self.feedback:
                values = values + self.kept.get(place, np.zeros_like(values))
            rounded = to_bfloat16(values)
            lost = values - rounded
        self.kept[place] = np.where(np.isfinite(lost), lost, np.float32(0))
        return rounded

    def step(self, everyone, op):
        if self.num_ranks == 1:
            return everyone[0]
        parts = everyone
        if len(self.nodes) > 1:
            parts = [reduce([everyone[rank] for rank in node]) for node in self.nodes]
        total = reduce([self.round(values, place) for place, values in enumerate(parts)])
        if op == "average":
            total = total * np.float32(1 / self.num_ranks)
        return self.round(total, "result")


def reduce(parts):
    total = parts[0]
    with np.errstate(invalid="ignore", over="ignore"):
        for values in parts[1:]:
            total = total + values
    return total


def gradients(world, count, *, seed=0):
    """Every rank's values, of many magnitudes; the same list on all ranks."""
    everyone = []
    for rank in range(world.Get_size()):
        generator = np.random.default_rng([7, seed, rank, count])
        scale = 10.0 ** generator.integers(-6, 3, count)
        everyone.append((generator.standard_normal(count) * scale).astype(np.float32))
    return everyone


def digests(world, array):
    return set(world.allgather(hashlib.sha256(array.tobytes()).hexdigest()))


@pytest.mark.parametrize("ranks_per_node", LAYOUTS)
@pytest.mark.parametrize("op", ["sum", "average"])
@pytest.mark.parametrize("feedback", [False, True])
def test_every_bit_is_that_of_the_model(join, world, feedback, op, ranks_per_node):
    ring = join(ranks_per_node=ranks_per_node, error_feedback=feedback)
    found, expected = [], []
    for bucket, count in enumerate(COUNTS):
        model = Model(ring.size, ranks_per_node, feedback=feedback)
        for step in range(3):
            everyone = gradients(world, count, seed=step)
            buffer = everyone[ring.rank].copy()
            ring.allreduce(buffer, op, bucket=bucket)
            found.append(buffer)
            expected.append(model.step(everyone, op))
    same = [digests(world, buffer) for buffer in found]
    for buffer, values in zip(found, expected, strict=True):
        np.testing.assert_array_equal(buffer.view(np.uint32), values.view(np.uint32))
    assert all(len(one) == 1 for one in same)


def test_several_blocks_between_nodes(join, world):
    ring = join(ranks_per_node=1)
    count = (8 << 20) // 4 + 12_345  # a block of collectives/ring/engine.py and some more
    model = Model(ring.size, 1, feedback=True)
    found, expected = [], []
    for step in range(2):
        everyone = gradients(world, count, seed=step)
        found.append(everyone[ring.rank].copy())
        ring.allreduce(found[-1], "average", bucket=0)
        expected.append(model.step(everyone, "average"))
    for buffer, values in zip(found, expected, strict=True):
        np.testing.assert_array_equal(buffer.view(np.uint32), values.view(np.uint32))


@pytest.mark.parametrize("ranks_per_node", LAYOUTS)
def test_memory_of_its_own_is_a_bucket_by_itself(join, world, ranks_per_node):
    ring = join(ranks_per_node=ranks_per_node)
    array = ring.empty(100_000)
    models = [Model(ring.size, ranks_per_node, feedback=True) for _ in range(2)]
    parts = [array[:30_000], array[30_000:]]
    found, expected = [], []
    for step in range(3):
        for part, model in zip(parts, models, strict=True):
            everyone = gradients(world, part.size, seed=step)
            part[:] = everyone[ring.rank]
            ring.allreduce(part, "average")
            found.append(part.copy())
            expected.append(model.step(everyone, "average"))
    for buffer, values in zip(found, expected, strict=True):
        np.testing.assert_array_equal(buffer.view(np.uint32), values.view(np.uint32))


def test_of_a_buffer_that_is_no_bucket_nothing_is_kept(join, world):
    ring = join()
    everyone = gradients(world, 1000)
    buffers = [everyone[ring.rank].copy() for _ in range(2)]
    for buffer in buffers:
        ring.allreduce(buffer)
    assert ring.state() == {}
    np.testing.assert_array_equal(*buffers)


@pytest.mark.parametrize("ranks_per_node", LAYOUTS)
def test_rounded_and_plain_operations_take_turns(join, world, ranks_per_node):
    """They share staging areas and counters: ranks overtake each other as far as these let them."""
    ring = join(ranks_per_node=ranks_per_node)
    generator = np.random.default_rng(11)
    kinds = generator.choice(["rounded", "plain", "broadcast", "barrier", "int"], size=60)
    counts = generator.choice([1, 40, 5_000, 200_000], size=60)
    found, expected = [], []
    for step, (kind, count) in enumerate(zip(kinds, counts, strict=True)):
        everyone = gradients(world, count, seed=step)
        buffer = everyone[ring.rank].copy()
        if kind == "rounded":
            ring.allreduce(buffer, bucket=step)
            expected.append(Model(ring.size, ranks_per_node, feedback=True).step(everyone, "sum"))
        elif kind == "plain":
            ring.allreduce(buffer, "max")
            expected.append(np.max(everyone, axis=0))
        elif kind == "broadcast":
            ring.broadcast(buffer, step % ring.size)
            expected.append(everyone[step % ring.size])
        elif kind == "int":
            buffer = (buffer * 1000).astype(np.int64)
            ring.allreduce(buffer)
            expected.append(np.sum([(values * 1000).astype(np.int64) for values in everyone], axis=0))
        else:
            ring.barrier()
            expected.append(buffer.copy())
        found.append(buffer)
    for buffer, values in zip(found, expected, strict=True):
        np.testing.assert_array_equal(buffer, values)


@pytest.mark.parametrize("ranks_per_node", LAYOUTS)
def test_what_is_not_finite_passes_and_leaves_nothing_behind(join, ranks_per_node):
    ring = join(ranks_per_node=ranks_per_node)
    largest = np.finfo(np.float32).max  # rounds to infinity
    poison = np.array([np.nan, np.inf, -np.inf, largest, 1.0], dtype=np.float32)
    first = poison.copy() if ring.rank == 0 else np.zeros(5, dtype=np.float32)
    second = np.full(5, 1.0, dtype=np.float32)
    ring.allreduce(first, bucket=0)
    ring.allreduce(second, bucket=0)
    largest_seen = largest if ring.size == 1 else np.inf
    np.testing.assert_array_equal(first, np.array([np.nan, np.inf, -np.inf, largest_seen, 1], np.float32))
    np.testing.assert_array_equal(second, np.full(5, ring.size, dtype=np.float32))


def test_a_bucket_of_another_length_begins_anew(join, world):
    ring = join()
    buffers = []
    for count in (1000, 999, 1000):
        everyone = gradients(world, count)
        buffers.append(everyone[ring.rank].copy())
        ring.allreduce(buffers[-1], bucket=3)
    np.testing.assert_array_equal(buffers[0], buffers[2])
    if ring.size > 1:
        assert {kept.size for kept in ring.state().values()} == {1000}


@pytest.mark.parametrize("ranks_per_node", LAYOUTS)
def test_a_restored_state_goes_on_as_if_nothing_had_been(join, world, ranks_per_node):
    whole, before, after = (join(ranks_per_node=ranks_per_node) for _ in range(3))
    arrays = [ring.empty(4000) for ring in (whole, before, after)]

    def step(ring, array, number):
        results = []
        for bucket, buffer in ((None, array), (5, np.empty(777, dtype=np.float32))):
            buffer[:] = gradients(world, buffer.size, seed=number)[ring.rank]
            ring.allreduce(buffer, "average", bucket=bucket)
            results.append(buffer.copy())
        return results

    expected = [step(whole, arrays[0], number) for number in range(4)]
    for number in range(2):
        step(before, arrays[1], number)
    after.load_state(before.state())
    found = [step(after, arrays[2], number) for number in (2, 3)]
    for one, other in zip(expected[2:], found, strict=True):
        for buffer, values in zip(one, other, strict=True):
            np.testing.assert_array_equal(buffer, values)


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({"0.offers": np.zeros(3)}, "no float32 residual"),
        ({"zero.offers": np.zeros(3, dtype=np.float32)}, "no float32 residual"),
        ({"0.elsewhere": np.zeros(3, dtype=np.float32)}, "no float32 residual"),
        ({"0.offers": np.zeros(3, dtype=np.float32)}, "is incomplete"),
        ({"0.offers": np.zeros(3, np.float32), "0.results": np.zeros(4, np.float32)}, "is incomplete"),
    ],
)
def test_a_state_of_another_kind_is_refused(join, state, text):
    ring = join()
    with pytest.raises(UsageError, match=text):
        ring.load_state(state)


def test_a_number_beyond_the_limit_is_refused_on_all_ranks(join):
    ring = join()
    with pytest.raises(ValueError, match="bucket is"):
        ring.allreduce(np.ones(3, dtype=np.float32), bucket=2**44)
    buffer = np.ones(3, dtype=np.float32)
    ring.allreduce(buffer, bucket=2**44 - 1)
    np.testing.assert_array_equal(buffer, ring.size)


@pytest.mark.on_ranks(2, 3, 4)
def test_debug_compares_the_arguments_of_rounded_operations_too(join, world):
    ring = join(debug=True)
    with pytest.raises(ValueError, match="ranks disagree: rank 0 called rounded allreduce of 10"):
        ring.allreduce(np.ones(10 + ring.rank, dtype=np.float32), bucket=0)
    buffer = np.ones(10, dtype=np.float32)
    ring.allreduce(buffer, bucket=0)
    np.testing.assert_array_equal(buffer, ring.size)


@pytest.mark.on_ranks(2, 3, 4)
def test_lengths_that_differ_raise_instead_of_giving_wrong_sums(join, world):
    ring = join()
    error = None
    try:
        ring.allreduce(np.ones(100 * (ring.rank + 1), dtype=np.float32))
    except RuntimeError as caught:
        error = str(caught)
    world.Barrier()
    assert error is not None
