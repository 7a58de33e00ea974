"""Gradients averaged by TensorFlow operations of our own: the bits, the memory, the order, and what goes wrong."""

import numpy as np
import pytest
import tensorflow as tf

from dlscale.base.errors import UsageError
from dlscale.collectives import ring
from dlscale.collectives.mpi import MpiCollective
from dlscale.collectives.training._tensorflow_buckets import NODE_STAGING_BYTES, NativeExchange

pytestmark = pytest.mark.on_ranks(1, 2, 3)

# Nothing, a scalar, odd lengths, a piece that is cut at the staging's end, one longer than the staging.
SHAPES = [(0,), (), (3, 5), (7,), (NODE_STAGING_BYTES // 4 - 5,), (11,), (NODE_STAGING_BYTES // 4 + 3,), (2,)]


@pytest.fixture(scope="module", params=["ring", "mpi"])
def collectives(request, world):
    make = ring.join if request.param == "ring" else MpiCollective
    made = [make(world), make(world)]
    yield made
    for collective in made:
        collective.close()


@pytest.fixture(scope="module")
def ranks(world):
    joined = ring.join(world)
    yield joined
    joined.close()


@pytest.fixture
def make():
    """Exchanges that are closed when the test ends."""
    made = []

    def make(collectives, **arguments):
        made.append(NativeExchange(collectives, **arguments))
        return made[-1]

    yield make
    for exchange in made:
        exchange.close()


def whole_numbers(world, dtype="float32"):
    """Their sums are exact in any order, and differ on every rank and index."""
    return [
        (np.arange(np.prod(shape)) % 1000 + world.Get_rank()).reshape(shape).astype(dtype) for shape in SHAPES
    ]


def means_of_whole_numbers(world, dtype="float32"):
    p = world.Get_size()
    total = [
        (np.arange(np.prod(shape)) % 1000 * p + p * (p - 1) // 2).reshape(shape).astype(dtype)
        for shape in SHAPES
    ]
    return [(array / p).astype(dtype) for array in total]


@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.parametrize("in_graph", [False, True])
def test_means_over_ranks(make, collectives, world, threads, in_graph, monkeypatch):
    monkeypatch.setattr("dlscale.collectives.training.communication.FIRST_BUCKET_BYTES", 60)
    exchange = make(collectives, threads=threads)
    average = tf.function(exchange.average) if in_graph else exchange.average
    found = [
        [mean.numpy() for mean in average([tf.constant(a) for a in whole_numbers(world)])] for _ in range(3)
    ]
    for means in found:
        for mean, expected in zip(means, means_of_whole_numbers(world), strict=True):
            np.testing.assert_array_equal(mean, expected)
    settings = exchange.settings()
    assert settings["overlap"] == threads
    assert settings["teams"] == (2 if threads else 0)
    sizes = [int(size) for size in settings["bucket_bytes"].split(",")]
    assert sum(sizes) == sum(4 * int(np.prod(shape)) for shape in SHAPES)
    assert len(sizes) == (2 if threads else 1)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
def test_other_types(make, ranks, world, dtype):
    p = world.Get_size()
    mine = tf.cast((tf.range(1000) % 64 + world.Get_rank()) * 2, dtype)  # all exact, also in bfloat16
    (first, second) = make([ranks], threads=False).average([mine, tf.ones((3,), tf.float32)])
    assert first.dtype == dtype
    np.testing.assert_array_equal(first.numpy(), tf.cast(tf.range(1000) % 64 * 2 + p - 1, dtype).numpy())
    np.testing.assert_array_equal(second.numpy(), np.ones(3, dtype=np.float32))


def test_what_others_still_hold_is_not_written(make, ranks, world):
    """Variables, constants and tensors with a second reader keep their values; only the means are new."""
    exchange = make([ranks], threads=False)
    variable = tf.Variable(tf.fill((1000,), float(world.Get_rank())))
    constant = tf.fill((1000,), float(world.Get_rank()))

    @tf.function
    def step(given):
        made = given * 2.0
        means = exchange.average([variable, given, made, made, tf.ones((5,))])
        return means, made + 0.0, variable + 0.0, given + 0.0

    means, made, of_variable, of_given = step(constant)
    rank, mean = world.Get_rank(), (world.Get_size() - 1) / 2
    for found, value in zip(means, (mean, mean, 2 * mean, 2 * mean, 1.0), strict=True):
        assert np.unique(found.numpy()) == value
    for found, value in (
        (made, 2 * rank),
        (of_variable, rank),
        (of_given, rank),
        (variable, rank),
        (constant, rank),
    ):
        assert np.unique(found.numpy()) == value


def test_calls_in_one_graph_keep_their_order(make, ranks, world):
    """Nothing but the order of the program says which comes first: their results do not depend on each other."""
    exchange = make([ranks], threads=False)
    p, rank = world.Get_size(), world.Get_rank()

    @tf.function
    def step(values):
        return [exchange.average([values[: i + 1] * float(i)])[0] for i in range(8)]

    for i, mean in enumerate(step(tf.fill((8,), float(rank)))):
        np.testing.assert_array_equal(mean.numpy(), np.full(i + 1, i * (p - 1) / 2, dtype=np.float32))


def test_a_step_that_breaks_off_leaves_memory_in_peace(make, ranks):
    """What was sent goes on being exchanged, and must not be freed under the thread's hands."""
    exchange = make([ranks], threads=True)
    many = 1 << 20

    @tf.function
    def step(values):
        exchange.send([values * float(i) for i in range(8)])
        tf.debugging.Assert(tf.reduce_sum(values) < 0.0, ["the step breaks off"])

    with pytest.raises(tf.errors.InvalidArgumentError, match="the step breaks off"):
        step(tf.ones((many,)))
    taken_again = [tf.fill((many,), 7.0) for _ in range(8)]
    exchange.synchronize()
    assert all(np.unique(values.numpy()) == 7.0 for values in taken_again)
    with pytest.raises(tf.errors.InternalError, match="an earlier step broke off"):
        step(tf.ones((many,)))


@pytest.mark.filterwarnings("ignore:Gradients do not exist")  # Keras
def test_an_optimizer_in_a_loop_of_ones_own_applies_means(ranks, world):
    """A gradient that is None changes nothing; what embeddings give comes back dense."""
    import keras

    table, unused = tf.Variable(tf.ones((4, 3))), tf.Variable(1.0)
    rank, p = world.Get_rank(), world.Get_size()
    optimizer = ring.keras_optimizer(keras.optimizers.SGD(1.0), ranks)
    optimizer.build([table, unused])

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, [rank % 4, 3]))
        optimizer.apply(tape.gradient(loss, [table, unused]), [table, unused])

    step()
    assert unused.numpy() == 1
    counts = np.bincount([r % 4 for r in range(p)] + [3] * p, minlength=4) / p
    np.testing.assert_allclose(table.numpy(), 1 - np.repeat(counts[:, None], 3, axis=1), rtol=1e-6)
    with pytest.raises(UsageError, match="jit_compile=True"):
        tf.function(lambda x: optimizer.apply([x], [unused]), jit_compile=True)(1.0)
    with pytest.raises(UsageError, match="other teams or threads"):
        ring.keras_optimizer(keras.optimizers.SGD(), ranks, threads=True)


def test_types_that_have_no_mean_are_refused(make, collectives, world):
    if world.Get_size() == 1:
        pytest.skip("one rank exchanges nothing")
    for dtype in ("int32", *(["bfloat16"] if isinstance(collectives[0], MpiCollective) else [])):
        exchange = make(collectives, threads=False)
        with pytest.raises(tf.errors.OpError, match="float"):
            exchange.average([tf.ones((3,), dtype)])
