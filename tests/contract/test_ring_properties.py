"""What holds for every buffer: bits against a reduction in NumPy, and laws that tie the operations to each other.

All ranks draw the same examples, and all learn whether any of them found a mistake: so all shrink it alike.
"""

import hashlib
import os

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from .conftest import narrowed, widened

pytestmark = pytest.mark.on_ranks(2, 3, 4)

DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64")
OPS = ("sum", "average", "min", "max")
LIMITS = (48, 4096, 32 * 1024, 64 * 1024, 256 * 1024, 1024 * 1024)  # bytes where another path may begin

# More ranks than this are slow on the two cores that a test may have, and of them only the number is new.
FEW_RANKS = int(os.environ.get("DLSCALE_UNDER_MPIEXEC", 1)) <= 2
COMMON = {"derandomize": True, "database": None, "deadline": None, "print_blob": False}
COMMON["suppress_health_check"] = list(HealthCheck)


def examples(most):
    return settings(max_examples=most if FEW_RANKS else most // 3, **COMMON)


# ---- numbers ----


def storage(dtype):
    """The NumPy type that holds it."""
    return np.dtype("uint16" if dtype == "bfloat16" else dtype)


def draw_values(dtype, count, seed, rank, *, wild):
    """What `rank` brings, on every rank that asks; `wild`: any bits, so also NaN, infinities, denormals."""
    generator = np.random.default_rng([seed, rank])
    kind = storage(dtype)
    if wild or kind.kind == "i":
        return np.frombuffer(generator.bytes(count * kind.itemsize), kind).copy()
    values = generator.standard_normal(count) * 2.0 ** generator.integers(-6, 6, count)
    return narrowed(values.astype(np.float32), dtype) if kind.itemsize == 2 else values.astype(kind)


def reduced(inputs, dtype, op):
    """One after the other in this order, halves in float32 and rounded once, an average scaled at the end."""
    with np.errstate(all="ignore"):
        result = widened(inputs[0], dtype)
        for values in inputs[1:]:
            other = widened(values, dtype)
            if op in ("sum", "average"):
                result = result + other
            else:  # a NaN on either side stays
                takes = other < result if op == "min" else other > result
                result = np.where(takes | (other != other), other, result)
        if op == "average":
            result = result * result.dtype.type(1.0 / len(inputs))
        return narrowed(result, dtype)


def same_bits(found, expected, dtype, *, or_equal=False):
    """Equal bits, or with `or_equal` equal numbers (zeros differ in sign); one NaN is as good as another."""
    unsigned = np.dtype(f"u{found.dtype.itemsize}")
    same = found.view(unsigned) == expected.view(unsigned)
    with np.errstate(all="ignore"):
        there, wanted = widened(found, dtype), widened(expected, dtype)
        same |= np.isnan(there) & np.isnan(wanted)
        if or_equal:
            same |= there == wanted
    return bool(same.all())


# ---- rings ----


@pytest.fixture(scope="module")
def rings(world):
    """rings(communicator, **settings): one of each kind, joined when first asked for."""
    from dlscale.collectives.ring import Settings, join

    joined = {}

    def get(communicator=world, **chosen):
        key = (communicator.handle, *sorted(chosen.items()))
        if key not in joined:
            joined[key] = join(communicator, Settings(timeout_seconds=30, **chosen))
        return joined[key]

    yield get
    for ring in joined.values():
        ring.close()


@pytest.fixture(scope="module")
def arrays(rings):
    """arrays(ring): memory that its node shares."""
    made = {}

    def get(ring):
        if ring not in made:
            made[ring] = ring.empty(4 * 2**20, "int64")
        return made[ring]

    return get


def agree(world, checks):
    """Fails on all ranks if `checks`, which returns a list of complaints, has any on one."""
    try:
        mine = checks()
    except Exception as error:  # told to all: nobody may be left waiting
        mine = [f"{type(error).__name__}: {error}"]
    complaints = [
        f"rank {rank}: {text}" for rank, texts in enumerate(world.allgather(mine)) for text in texts
    ]
    assert not complaints, complaints


def placed(ring, arrays, values, offset, *, shared):
    """A copy of `values` that begins `offset` elements after a cache line, in shared or ordinary memory."""
    memory = arrays(ring).view(np.uint8) if shared else np.zeros(values.nbytes + 4096, np.uint8)
    begin = (-memory.ctypes.data % 64) + offset * values.itemsize
    buffer = memory[begin : begin + values.nbytes].view(values.dtype)
    buffer[:] = values
    return buffer


@st.composite
def counts(draw, itemsize=8):
    limit = draw(st.sampled_from(LIMITS)) // itemsize
    near = st.integers(-2, 2).map(lambda step: max(limit + step, 0))
    return draw(st.one_of(st.integers(0, 10), near, st.integers(0, 3000), st.integers(0, 150_000)))


shapes = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(DTYPES),
        "count": counts(4),
        "offset": st.integers(0, 20),
        "seed": st.integers(0, 2**31),
        "wild": st.booleans(),
    }
)


def everyones(ring, shape):
    return [
        draw_values(shape["dtype"], shape["count"], shape["seed"], rank, wild=shape["wild"])
        for rank in range(ring.size)
    ]


def digest(array):
    return hashlib.sha256(array.tobytes()).hexdigest()


LARGE = {"dtype": "float32", "count": 3_000_001, "offset": 3, "seed": 1, "wild": False}


# ---- one node ----


@given(shape=shapes, op=st.sampled_from(OPS), shared=st.booleans())
@example(shape=LARGE, op="sum", shared=False)
@example(shape=LARGE | {"dtype": "bfloat16"}, op="average", shared=True)
@examples(150)
def test_allreduce_is_the_reduction_in_order_of_rank(world, rings, arrays, shape, op, shared):
    dtype = shape["dtype"]
    if op == "average" and storage(dtype).kind == "i":
        op = "sum"
    ring = rings()
    inputs = everyones(ring, shape)
    buffer = placed(ring, arrays, inputs[ring.rank], shape["offset"], shared=shared)
    bfloat16 = dtype == "bfloat16"

    def checks():
        ring.allreduce(buffer, op, bfloat16=bfloat16)
        same = same_bits(buffer, reduced(inputs, dtype, op), dtype)
        return [] if same else ["other bits than the reduction"]

    agree(world, checks)
    assert len(set(world.allgather(digest(buffer)))) == 1


@given(shape=shapes, op=st.sampled_from(OPS), in_place=st.booleans())
@examples(60)
def test_reduce_scatter_is_a_part_of_the_reduction_and_allgather_puts_parts_together(
    world, rings, shape, op, in_place
):
    dtype = shape["dtype"]
    if op == "average" and storage(dtype).kind == "i":
        op = "max"
    ring = rings()
    shape = shape | {"count": shape["count"] // ring.size * ring.size}
    inputs = everyones(ring, shape)
    part = shape["count"] // ring.size
    own = slice(ring.rank * part, (ring.rank + 1) * part)
    buffer = inputs[ring.rank].copy()
    output = buffer[own] if in_place else np.zeros(part, buffer.dtype)
    whole = np.zeros_like(buffer)
    expected = reduced(inputs, dtype, op)

    def checks():
        bfloat16 = dtype == "bfloat16"
        ring.reduce_scatter(buffer, output, op, bfloat16=bfloat16)
        ring.allgather(output, whole, bfloat16=bfloat16)
        complaints = []
        if not same_bits(output, expected[own], dtype):
            complaints.append("part differs from the reduction")
        if not same_bits(whole, expected, dtype):
            complaints.append("parts do not make the reduction")
        if not in_place and not same_bits(buffer, inputs[ring.rank], dtype):
            complaints.append("the input was changed")
        return complaints

    agree(world, checks)


@given(shape=shapes, op=st.sampled_from(OPS))
@examples(30)
def test_the_order_is_that_of_the_communicator(world, rings, reversed_world, shape, op):
    dtype = shape["dtype"]
    if op == "average" and storage(dtype).kind == "i":
        op = "sum"
    ring = rings(reversed_world)
    inputs = [
        draw_values(dtype, shape["count"], shape["seed"], rank, wild=shape["wild"])
        for rank in range(ring.size)
    ]
    buffer = inputs[world.Get_rank()].copy()

    def checks():
        ring.allreduce(buffer, op, bfloat16=dtype == "bfloat16")
        same = same_bits(buffer, reduced(inputs[::-1], dtype, op), dtype)
        return [] if same else ["other bits than the reduction in reverse"]

    agree(world, checks)


@pytest.fixture(scope="module")
def reversed_world(world):
    communicator = world.Split(0, -world.Get_rank())
    yield communicator
    communicator.Free()


# ---- laws, also over several nodes ----

# Nodes have the same number of ranks: on 3, pieces of 2 are none.
NODES = st.sampled_from([0, 1, *([2] if int(os.environ.get("DLSCALE_UNDER_MPIEXEC", 1)) % 2 == 0 else [])])
PAIRS = 2 if int(os.environ.get("DLSCALE_UNDER_MPIEXEC", 1)) % 2 == 0 else 1


@given(shape=shapes, op=st.sampled_from(OPS), shared=st.booleans(), ranks_per_node=NODES)
@example(shape=LARGE, op="average", shared=False, ranks_per_node=PAIRS)
@example(shape=LARGE, op="sum", shared=True, ranks_per_node=PAIRS)
@example(shape=LARGE, op="sum", shared=False, ranks_per_node=1)
@examples(120)
def test_all_ranks_get_the_same_bits_and_they_are_near(
    world, rings, arrays, shape, op, shared, ranks_per_node
):
    dtype = shape["dtype"]
    if op == "average" and storage(dtype).kind == "i":
        op = "sum"
    ring = rings(ranks_per_node=ranks_per_node)
    inputs = everyones(ring, shape)
    buffer = placed(ring, arrays, inputs[ring.rank], shape["offset"], shared=shared)

    def checks():
        ring.allreduce(buffer, op, bfloat16=dtype == "bfloat16")
        if storage(dtype).kind == "i" or op in ("min", "max"):
            near = same_bits(buffer, reduced(inputs, dtype, op), dtype, or_equal=True)
        else:
            near = shape["wild"] or is_near(buffer, inputs, dtype, op)
        return [] if near else ["far from the exact result"]

    agree(world, checks)
    assert len(set(world.allgather(digest(buffer)))) == 1


EPSILON = {"float32": 2.0**-23, "float64": 2.0**-52, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def is_near(found, inputs, dtype, op):
    """Within the bound of any order of additions; halves are rounded on each node and between them."""
    exact = np.array([widened(values, dtype) for values in inputs], np.longdouble)
    scale = 1 / len(inputs) if op == "average" else 1
    smallest = 2.0**-24 if dtype == "float16" else 0
    bound = (len(inputs) + 1) * EPSILON[dtype] * (np.abs(exact).sum(axis=0) + smallest)
    return (np.abs(widened(found, dtype) - exact.sum(axis=0) * scale) <= bound * max(scale, 0.5)).all()


@given(shape=shapes, ranks_per_node=NODES, root=st.integers(0, 100))
@example(shape=LARGE, ranks_per_node=PAIRS, root=3)
@examples(60)
def test_broadcast_and_allgather_move_bits_as_they_are(world, rings, shape, ranks_per_node, root):
    ring = rings(ranks_per_node=ranks_per_node)
    dtype, root = shape["dtype"], root % ring.size
    inputs = everyones(ring, shape | {"wild": True})
    sent = inputs[ring.rank].copy()
    gathered = np.zeros(shape["count"] * ring.size, sent.dtype)

    def checks():
        ring.broadcast(sent, root)
        ring.allgather(inputs[ring.rank], gathered, bfloat16=dtype == "bfloat16")
        complaints = [] if sent.tobytes() == inputs[root].tobytes() else ["broadcast changed bits"]
        if gathered.tobytes() != b"".join(values.tobytes() for values in inputs):
            complaints.append("allgather changed bits")
        return complaints

    agree(world, checks)


# ---- what is refused ----


def test_lengths_and_dtypes_that_do_not_fit_are_refused(rings):
    ring = rings()
    with pytest.raises(ValueError, match="one output's length per rank"):
        ring.reduce_scatter(np.ones(3 * ring.size + 1), np.ones(3))
    with pytest.raises(ValueError, match="one input's length per rank"):
        ring.allgather(np.ones(3), np.ones(3 * ring.size + 1))
    with pytest.raises(TypeError, match="differ in dtype"):
        ring.allgather(np.ones(3), np.ones(3 * ring.size, np.float32))
    with pytest.raises(TypeError, match="differ in dtype"):
        ring.reduce_scatter(np.ones(3 * ring.size, np.int32), np.ones(3, np.float32))


@pytest.mark.parametrize("operation", ["reduce_scatter", "allgather"])
def test_buffers_that_cannot_be_read_or_written_are_refused(rings, operation):
    ring = rings()
    size = ring.size
    lengths = {"reduce_scatter": (4 * size, 4), "allgather": (4, 4 * size)}[operation]
    call = getattr(ring, operation)
    strided, plain = (np.ones(2 * length)[::2] for length in lengths), [np.ones(n) for n in lengths]
    for i, buffer in enumerate(strided):
        pair = [buffer, plain[1]] if i == 0 else [plain[0], buffer]
        with pytest.raises(ValueError, match="not C-contiguous"):
            call(*pair)
    read_only = plain[1].copy()
    read_only.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        call(plain[0], read_only)
    with pytest.raises(TypeError, match="complex64"):
        call(plain[0].astype(np.complex64), plain[1])


def test_uint16_is_taken_for_bfloat16_only_when_told(rings):
    ring = rings()
    with pytest.raises(TypeError, match="bfloat16"):
        ring.allreduce(np.ones(3, np.uint16))
