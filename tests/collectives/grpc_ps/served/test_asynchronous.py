"""Workers that do not wait for each other."""

from threading import Barrier

import numpy as np
import pytest
import torch

pytestmark = pytest.mark.requires("grpc_ps-torch")


@pytest.fixture
def make_replica(tools):
    def make(worker):
        network = tools.perceptron(seed=5 + worker)
        return tools.Replica(network, torch.optim.Adam(network.parameters(), lr=0.01), index=worker)

    return make


def test_one_worker_trains_as_torch_does(make_cluster, make_replica, tools):
    counts = []
    (weights,) = make_cluster(num_workers=1, asynchronous=True).train(
        make_replica, num_steps=6, before_close=lambda trainer: counts.append(trainer.num_applied())
    )
    assert counts == [6]
    tools.assert_close(weights, tools.plain(make_replica, num_workers=1, num_steps=6))


def two_workers(cluster, make_replica, tools):
    """Trainers of two workers, the first of which has made four steps."""
    replicas = [make_replica(worker) for worker in range(2)]
    trainers = tools.together(lambda worker: cluster.trainer(worker, replicas[worker]), 2)
    for _ in range(4):
        trainers[0].step()
    return trainers


def test_a_worker_steps_alone_and_the_other_gets_its_weights_with_the_next_step(
    make_cluster, make_replica, tools
):
    """Worker 1's weights are then those of four steps of worker 0 and one of its own, from where it started."""
    cluster = make_cluster(asynchronous=True)
    one, other = trainers = two_workers(cluster, make_replica, tools)
    assert one.num_applied() == other.num_applied() == 4
    for mine, first in zip(other.weights(), make_replica(0).weights(), strict=True):
        np.testing.assert_array_equal(mine, first)
    other.step()
    assert one.num_applied() == 5
    for trainer in trainers:
        trainer.close()
    assert cluster.num_sessions() == [0, 0]
    tools.assert_close(other.weights(), expected(make_replica))


def expected(make_replica):
    """The same with torch alone: the last gradient is of the first weights, and meets those of four steps."""
    first, late = make_replica(0), make_replica(1)
    late.network.load_state_dict(first.network.state_dict())
    late_loss = late.objectives[0].loss(*late.next_batch())
    gradients = torch.autograd.grad(late_loss, late.objectives[0].parameters)
    for _ in range(4):
        first.optimizer.zero_grad()
        first.objectives[0].loss(*first.next_batch()).backward()
        first.optimizer.step()
    for parameter, gradient in zip(first.objectives[0].parameters, gradients, strict=True):
        parameter.grad = gradient
    first.optimizer.step()
    return first.weights()


def test_the_servers_weights_of_now_can_be_had_between_two_steps_and_what_gradients_missed_is_counted(
    make_cluster, make_replica, tools
):
    """Worker 1 misses four updates; once it has asked for the servers' weights, none."""
    cluster = make_cluster(asynchronous=True)
    one, other = trainers = two_workers(cluster, make_replica, tools)
    other.step()
    for mine, theirs in zip(one.served_weights(), other.weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    one.step()
    staleness = one.staleness()
    num_chunks = staleness[4]
    assert num_chunks > 2, "messages of each chunk, over both servers"
    assert staleness == other.staleness() == {0: 5 * num_chunks, 4: num_chunks}
    for trainer in trainers:
        trainer.close()


def test_every_gradient_counts_once_whatever_their_order(make_cluster, make_replica, tools):
    cluster, counts, barrier = make_cluster(asynchronous=True, num_workers=3), [], Barrier(3)

    def count(trainer):
        barrier.wait(tools.seconds)
        counts.append(trainer.num_applied())
        barrier.wait(tools.seconds)

    cluster.train(make_replica, num_steps=5, before_close=count)
    assert counts == [15, 15, 15]
    assert cluster.num_sessions() == [0, 0]
