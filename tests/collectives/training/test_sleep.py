"""Steps of TensorFlow that sleep: when gradients are ready in them, and what waits for which."""

import types

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from dlscale.collectives.grpc_ps._tensorflow_server import session_config  # noqa: E402
from dlscale.collectives.training import _tensorflow_native  # noqa: E402
from dlscale.collectives.training._tensorflow import TensorFlowTrainer  # noqa: E402
from dlscale.collectives.training._tensorflow_native import NativeExchange, is_built  # noqa: E402
from dlscale.collectives.training._tensorflow_stamps import stamped  # noqa: E402
from dlscale.collectives.training.sleep import sleep_operations  # noqa: E402
from dlscale.models import load_workload  # noqa: E402
from dlscale.models.frameworks import framework_module  # noqa: E402
from dlscale.models.slept import Slept  # noqa: E402
from dlscale.models.workload import Execution, Input, Shard  # noqa: E402

pytestmark = pytest.mark.skipif(not is_built(), reason="TensorFlow's operations were not built")

FORWARD, BACKWARD = 0.02, 0.06


def make_replica(workload):
    slept = Slept(forward_seconds=FORWARD, backward_seconds=BACKWARD)
    factory = load_workload(workload).factory(
        framework="tensorflow",
        preset="tiny",
        local_batch=2,
        source=Input(),
        execution=Execution(slept=slept, sleep=sleep_operations("tensorflow")),
    )
    return factory(shard=Shard(), seed=1)


@pytest.mark.parametrize("workload", ["hep_cnn", "cosmogan"])  # of one objective and of two
def test_gradients_are_ready_one_after_the_other_last_layer_first(workload):
    """None before its time; how much later a stamp comes is the business of TensorFlow's threads."""
    replica = make_replica(workload)
    trainer = stamped(replica)
    trainer.stamped_step()  # traced
    stamps = trainer.stamped_step()
    assert FORWARD <= stamps.forward[0] <= min(stamps.ready)
    numbers = [len(objective.parameters) for objective in replica.objectives]
    ready, begin = [], 0
    for number in numbers:
        ready += reversed(stamps.ready[begin : begin + number])
        begin += number
    each = [BACKWARD / len(numbers) / number for number in numbers for _ in range(number)]
    for moment, expected in zip(ready, np.cumsum(each), strict=True):
        assert moment >= FORWARD + expected - 0.0001  # of the wall clock, which is read apart


def test_gradients_are_the_mean_of_the_batch_in_their_sizes():
    replica = make_replica("hep_cnn")
    expected = replica.next_batch()[0].numpy().astype(np.float64).mean()
    for gradient, weight in zip(replica.gradients(), replica.weights(), strict=True):
        np.testing.assert_array_equal(gradient, np.full_like(weight, expected))
    assert replica.losses() == [pytest.approx(expected)]


def test_an_exchange_waits_for_its_own_gradients_alone(of_two, monkeypatch):
    """An operation with state would put every sleep of a step before the first exchange."""
    monkeypatch.setattr(_tensorflow_native, "FIRST_BUCKET_BYTES", 60)
    replica = make_replica("hep_cnn")
    exchange = NativeExchange([of_two], threads=True)
    trainer = TensorFlowTrainer(replica, exchange)
    graph = trainer._step.get_concrete_function(*replica.next_batch()).graph
    trainer.close()
    sent = [operation for operation in graph.get_operations() if operation.type == "DlscaleSend"]
    sleeps = [sum(before.type == "DlscaleSleep" for before in awaited(each)) for each in sent]
    number = len(replica.names())
    assert sleeps[-1] == 2 * number  # each layer's forward pass, and each gradient
    assert sleeps[0] < 2 * number - 1


def awaited(operation):
    """All that must run before an operation does."""
    found, left = set(), [operation]
    while left:
        one = left.pop()
        before = {tensor.op for tensor in one.inputs} | set(one.control_inputs)
        left += before - found
        found |= before
    return found


@pytest.mark.parametrize(("slept", "number"), [(False, 1), (True, 2)])
def test_a_thread_is_left_while_one_sleeps(monkeypatch, slept, number):
    asked = []
    monkeypatch.setattr(tf.config.threading, "set_inter_op_parallelism_threads", asked.append)
    monkeypatch.setattr(tf.config.threading, "set_intra_op_parallelism_threads", lambda _: None)
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda *_: None)
    framework_module("tensorflow").prepare(1, slept=slept)
    assert asked == [number]


def test_sessions_of_servers_have_the_thread_that_sleeps(monkeypatch):
    job = types.SimpleNamespace(is_server=False, index=0)
    assert session_config(job, 1, gpu=None).inter_op_parallelism_threads == 1
    monkeypatch.setattr(
        tf.config.threading, "get_inter_op_parallelism_threads", lambda: 2
    )  # as `prepare` has it
    assert session_config(job, 1, gpu=None).inter_op_parallelism_threads == 2


def test_a_graph_cannot_sleep_without_the_operation():
    execution = Execution(slept=Slept(forward_seconds=0.1, backward_seconds=0.1))
    factory = load_workload("hep_cnn").factory(
        framework="tensorflow", preset="tiny", local_batch=2, source=Input(), execution=execution
    )
    with pytest.raises(ValueError, match=r"Execution\.sleep is missing"):
        factory(shard=Shard(), seed=1)
