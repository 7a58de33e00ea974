"""What TensorFlow's servers update with: gradients come from workers, weights lie there already."""

import pytest
import tensorflow as tf

from dlscale.collectives.servers._tensorflow import local_statistics, on_servers
from dlscale.models.frameworks._tensorflow_optimizers import MomentumSgd, named_optimizer
from dlscale.models.optimizers import optimizer_rule

SERVER, WORKER = "/job:ps/task:0/device:CPU:0", "/job:worker/task:0/device:CPU:0"
CLUSTER = tf.train.ClusterSpec({"ps": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"]})


def origins(operation):
    """All operations that this one depends on."""
    found, waiting = set(), [operation]
    while waiting:
        current = waiting.pop()
        for before in (*(tensor.op for tensor in current.inputs), *current.control_inputs):
            if before not in found:
                found.add(before)
                waiting.append(before)
    return found


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: MomentumSgd(learning_rate=0.1, momentum=0.9, weight_decay=0.1),
        lambda: named_optimizer(optimizer_rule("sgd", momentum=0.9), (), learning_rate=0.1),
        lambda: named_optimizer(optimizer_rule("adam"), (), learning_rate=0.1),
    ],
)
def test_an_update_takes_no_weights_from_a_worker(optimizer):
    """Weight decay took the worker's copy: all weights went from the server to a worker and back at every update."""
    with tf.Graph().as_default(), on_servers(CLUSTER, device=WORKER, placement="size"):
        with tf.variable_creator_scope(local_statistics(WORKER)):
            weight = tf.Variable(tf.ones((4, 5)), name="layer.weight")
        (gradient,) = tf.gradients(tf.reduce_sum(tf.matmul(tf.ones((2, 4)), weight) ** 2), [weight])
        with tf.device(SERVER):
            received = tf.compat.v1.ConditionalAccumulator(tf.float32, shape=(4, 5)).take_grad(1)
            update = optimizer().apply_gradients([(received, weight)])
    assert [
        op.device for op in origins(gradient.op) if op.type == "Identity" and op.device == WORKER
    ]  # its copy
    assert not [op.name for op in origins(update) if op.device == WORKER]
