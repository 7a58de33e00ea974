"""TensorFlow's gradients of a GPU: they are exchanged on the host, and TensorFlow copies them there and back.

Graphs are looked at, not run: their devices need not be here.
"""

import importlib.util
import types

import pytest

tf = pytest.importorskip("tensorflow")

from dlscale.collectives.servers._tensorflow import local_statistics, on_servers, own_gpu, session_config  # noqa: E402
from dlscale.collectives.training._tensorflow_buckets import NativeExchange  # noqa: E402
from dlscale.collectives.training.collective_backend import OPERATIONS_MODULE  # noqa: E402

GPU = "/device:GPU:0"
WORKER_GPU = "/job:worker/task:1/device:GPU:0"


def devices_of(function, kinds):
    """Where the operations of those kinds are, of a function that is traced on a GPU; the others are there."""

    def on_gpu(gradient):
        with tf.device(GPU):
            return function([gradient * 2])

    graph = tf.function(on_gpu).get_concrete_function(tf.TensorSpec((3, 4))).graph
    found = {operation.type: operation.device for operation in graph.get_operations()}
    assert found["Mul"].endswith(GPU)
    return {kind: device for kind, device in found.items() if kind.startswith(kinds)}


@pytest.mark.skipif(not importlib.util.find_spec(OPERATIONS_MODULE), reason="the operations were not built")
@pytest.mark.parametrize("threads", [False, True])
def test_our_operations_are_on_the_host(threads, of_two):
    exchange = NativeExchange([of_two], threads=threads, computed_on_gpu=True)

    def pipelined(gradients):
        exchange.send(gradients)
        return exchange.collect(gradients)

    found = devices_of(exchange.average, "Dlscale") | devices_of(pipelined, "Dlscale")
    assert len(found) == (2 if threads else 3)
    assert all(device.endswith("CPU:0") for device in found.values()), found
    settings = exchange.settings()
    assert (settings["staging_copies"], settings["staged_through"]) == (4, "host memory")
    exchange.close()


def test_a_worker_of_servers_computes_on_its_gpu_and_its_variables_are_on_servers():
    spec = tf.train.ClusterSpec({"ps": ["a:1"], "worker": ["b:1", "b:2"]})
    with tf.Graph().as_default(), on_servers(spec, device=WORKER_GPU, placement="size"):
        with tf.variable_creator_scope(local_statistics(WORKER_GPU)):
            weight = tf.compat.v1.get_variable("weight", (2, 2), use_resource=True)
            statistic = tf.compat.v1.get_variable("mean", (2,), trainable=False, use_resource=True)
        product = tf.matmul(weight, weight)
    assert weight.device.startswith("/job:ps/task:0")
    assert statistic.device == product.device == WORKER_GPU


def test_sessions_of_servers_take_the_workers_own_gpu(monkeypatch):
    gpu = types.SimpleNamespace(name="/physical_device:GPU:3")
    job = types.SimpleNamespace(is_server=False, index=1)
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda _: [gpu])
    config = session_config(job, 2, gpu=own_gpu())
    assert config.gpu_options.visible_device_list == "3"
    assert config.gpu_options.allow_growth
    assert config.allow_soft_placement
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda _: [])
    config = session_config(job, 2, gpu=own_gpu())
    assert dict(config.device_count) == {"GPU": 0}
