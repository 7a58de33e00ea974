"""Samples split by rows in TensorFlow: the mean gradient over ranks is that of one device with whole samples."""

import numpy as np
import pytest
import tensorflow as tf

from dlscale.base.errors import UsageError
from dlscale.collectives.neighbours import MPI, connect_neighbours
from dlscale.models import load_workload
from dlscale.models.frameworks._tensorflow_layers import (
    BatchNorm,
    Convolution,
    Network,
    TransposedConvolution,
)
from dlscale.models.parallel import Part, deal_rows
from dlscale.models.parallel._tensorflow import Exchanges
from dlscale.models.workload import Execution, Input, Shard

pytestmark = pytest.mark.on_ranks(2, 3)

BATCH = 4
BLOCK_ROWS = 4
HEIGHT = 5 * BLOCK_ROWS  # 3 + 2 or 2 + 2 + 1 blocks
# Of the gradient's norm: sums in another order, one layer deep; weights' gradients are handed on in float32.
ERRORS = {"float32": 1e-5, "float64": 2e-7, "bfloat16": 3e-2}
ERROR_OF_NETWORKS = 1e-5


@pytest.fixture
def neighbours(world):
    found = connect_neighbours(MPI, control=world, split=world.Get_size())
    yield found
    found.close()


@pytest.fixture
def part(neighbours):
    """Of maps of HEIGHT rows."""
    rows = deal_rows(HEIGHT, block_rows=BLOCK_ROWS, index=neighbours.index, split=neighbours.split)
    return Part(rows=rows, neighbours=neighbours)


@pytest.fixture
def averaged(world):
    """averaged(arrays): their means over ranks, as every backend makes them."""
    return lambda arrays: [world.allreduce(np.asarray(array)) / world.Get_size() for array in arrays]


def error(found, expected):
    """Of all arrays together, relative to their norm."""
    flat, other = (
        np.concatenate([np.ravel(array).astype(np.float64) for array in arrays])
        for arrays in (found, expected)
    )
    return np.linalg.norm(flat - other) / np.linalg.norm(other)


def pooled(net):
    return lambda values: net.max_pool(tf.nn.relu(values), 3, 2, pad=(1, 1))


def normed(net):
    norm = BatchNorm(net, "norm", channels=3)

    def apply(values):
        left = []
        normalised = norm(values + tf.cast(30.0, values.dtype), left)  # far from 0, where digits are lost
        statistics = [
            net.own_rows(tf.tile(tf.cast(value, values.dtype)[None, None, None], (2, HEIGHT, 6, 1)))
            for _, value in left
        ]
        return tf.concat([normalised, *statistics], -1)

    return apply


def convolved(net, **given):
    return Convolution(net, "convolution", inputs=3, outputs=4, **given)


LAYERS = {
    "3x3": lambda net: convolved(net, size=3, pad=(1, 1)),
    "3x3 stride 2": lambda net: convolved(net, size=3, stride=2, pad=(1, 1)),
    "5x5 stride 2": lambda net: convolved(net, size=5, stride=2, pad=(2, 1)),
    "7x7 stride 2": lambda net: convolved(net, size=7, stride=2, pad=(3, 3)),
    "1x1 stride 2": lambda net: convolved(net, size=1, stride=2),
    "transposed": lambda net: TransposedConvolution(net, "layer", inputs=3, outputs=4, size=5, pad=(2, 1)),
    "pool": pooled,
    "batch norm": normed,
}


@pytest.mark.parametrize(
    ("name", "last", "kind"),
    [
        *((name, "gathered", "float32") for name in LAYERS),
        ("3x3", "global_mean", "float32"),
        *((name, "gathered", "bfloat16") for name in ("5x5 stride 2", "batch norm")),
        ("batch norm", "gathered", "float64"),
    ],
)
def test_layers_compute_their_rows_of_whole_maps(name, last, kind, part, averaged):
    rng = np.random.default_rng(3)
    images = tf.cast(rng.standard_normal((2, HEIGHT, 6, 3), dtype=np.float32), kind)

    def differentiated(exchanges):
        net = Network()
        net.exchanges = exchanges
        layer = LAYERS[name](net)
        draw = np.random.default_rng(4)
        for variable in net.ordered:
            variable.assign(draw.standard_normal(variable.shape))

        @tf.function
        def gradients(images):
            with tf.GradientTape() as tape:
                tape.watch(images)
                maps = layer(net.own_rows(images))
                outputs = getattr(net, last)(maps)
                weights = tf.linspace(0.0, 1.0, tf.size(outputs))
                loss = tf.reduce_sum(
                    tf.cast(tf.sin(outputs), tf.float32) * tf.reshape(weights, outputs.shape)
                )
            trained = [variable for variable in net.ordered if variable.trainable]
            return outputs, tape.gradient(loss, [images, *trained])

        return gradients(images)

    outputs, own = differentiated(Exchanges(part))
    expected_outputs, expected = differentiated(None)
    assert error([outputs], [expected_outputs]) < ERRORS[kind]
    assert error(averaged(own), expected) < ERRORS[kind]


def replicas(name, neighbours):
    """(one that has its rows, one device), of equal weights; batch norm's shifts are raised as for parity."""
    factory = load_workload(name).factory(
        framework="tensorflow", preset="tiny", local_batch=BATCH, source=Input()
    )
    pair = [factory(shard=shard, seed=1) for shard in (Shard(neighbours=neighbours), Shard())]
    weights = [
        weight + np.float32(3) if "norm" in name and name.endswith("bias") else weight
        for weight, name in zip(pair[1].weights(), pair[1].names(), strict=True)
    ]
    for replica in pair:
        replica.load(weights)
    return pair


NETWORKS = [
    pytest.param("hep_cnn", marks=pytest.mark.on_ranks(3)),
    pytest.param("cosmogan", marks=pytest.mark.on_ranks(2)),  # two blocks
]


@pytest.mark.parametrize("name", NETWORKS)
def test_the_mean_gradient_is_that_of_one_device(name, neighbours, averaged):
    """With dropout, and both losses of CosmoGAN; what all ranks have the same of is the same."""
    own, whole = replicas(name, neighbours)
    gradients = own.gradients()
    assert error(averaged(gradients), whole.gradients()) < ERROR_OF_NETWORKS
    np.testing.assert_allclose(own.losses(), whole.losses(), rtol=1e-5)
    for mine, expected in zip(own.outputs(), whole.outputs(), strict=True):
        assert error([mine], [expected]) < ERROR_OF_NETWORKS


@pytest.mark.on_ranks(2)
def test_whole_samples_are_predicted_by_each_rank_alone(neighbours, world):
    own, whole = replicas("hep_cnn", neighbours)
    images = np.random.default_rng(7).random((3, 64, 64, 3), dtype=np.float32)
    if world.Get_rank() == 0:  # without the other
        np.testing.assert_allclose(own.predict(images), whole.predict(images), rtol=1e-5)


@pytest.mark.on_ranks(2)
def test_what_cannot_exchange_rows_is_refused(neighbours, part):
    with pytest.raises(UsageError, match=r"split 2 leaves a rank 8 rows .* need 9"):
        Exchanges(part).halo(tf.zeros((1, 12 - 4 * neighbours.index, 3, 1)), above=9, below=0)
    with tf.Graph().as_default(), pytest.raises(UsageError, match="graph of TensorFlow 1"):
        Exchanges(part)
    factory = load_workload("hep_cnn").factory(
        framework="tensorflow",
        preset="tiny",
        local_batch=2,
        source=Input(),
        execution=Execution(compiled=True),
    )
    with pytest.raises(UsageError, match="XLA"):
        factory(shard=Shard(neighbours=neighbours), seed=1)
