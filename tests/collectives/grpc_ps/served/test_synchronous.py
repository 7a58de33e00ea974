"""Workers that wait for each other: the servers' weights are those of torch alone with the mean gradient."""

import numpy as np
import pytest
import torch

pytestmark = pytest.mark.requires("grpc_ps-torch")

OPTIMIZERS = {
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01, betas=(0.8, 0.95)),
}


@pytest.fixture
def make_replica(tools):
    def make(worker, optimizer="momentum", make_network=tools.perceptron, num_inputs=20):
        network = make_network(seed=5 + worker)  # all start from worker 0's
        return tools.Replica(
            network, OPTIMIZERS[optimizer](network.parameters()), index=worker, num_inputs=num_inputs
        )

    return make


def assert_same(weights):
    first, *others = weights
    for other in others:
        for one, another in zip(first, other, strict=True):
            np.testing.assert_array_equal(one, another, strict=True)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("num_servers", [1, 2])
def test_weights_are_those_of_torch_with_the_mean_gradient(
    make_cluster, make_replica, tools, optimizer, num_servers
):
    def make(worker):
        return make_replica(worker, optimizer)

    weights = make_cluster(num_servers=num_servers).train(make, num_steps=6)
    assert_same(weights)
    tools.assert_close(weights[0], tools.plain(make, num_workers=2, num_steps=6))
    assert not np.allclose(weights[0][0], make(0).weights()[0], atol=1e-3)


def test_messages_may_be_larger_than_grpcs_limit(make_cluster, make_replica, tools):
    """Of 4 MiB, unless told: here a tensor of 6 MiB, and all weights of a server, are one message."""

    def wide(seed):
        torch.manual_seed(seed)
        return torch.nn.Linear(8, 3 << 16)

    def make(worker):
        return make_replica(worker, make_network=wide, num_inputs=8)

    weights = make_cluster(num_servers=1, chunk_kib=8192).train(make, num_steps=2)
    assert weights[0][0].nbytes > 4 << 20
    assert_same(weights)
    tools.assert_close(weights[0], tools.plain(make, num_workers=2, num_steps=2))


def test_elements_travel_in_the_order_of_memory(make_cluster, make_replica, tools):
    """Of weights in channels last, which no view makes flat in torch's usual order."""

    def convolution(seed):
        torch.manual_seed(seed)
        network = torch.nn.Sequential(torch.nn.Unflatten(1, (5, 4, 3)), torch.nn.Conv2d(5, 8, (3, 2)))
        assert not network.to(memory_format=torch.channels_last)[1].weight.is_contiguous()
        return network

    def make(worker):
        return make_replica(worker, make_network=convolution, num_inputs=60)

    weights = make_cluster().train(make, num_steps=3)
    assert_same(weights)
    tools.assert_close(weights[0], tools.plain(make, num_workers=2, num_steps=3))


def test_a_parameter_that_is_not_used_has_no_gradient(make_cluster, tools):
    """A zero travels for it, and the others are not held up."""

    class Half(torch.nn.Module):
        def __init__(self, seed):
            super().__init__()
            torch.manual_seed(seed)
            self.used, self.unused = torch.nn.Linear(20, 3), torch.nn.Linear(20, 3)

        def forward(self, inputs):
            return self.used(inputs)

    def make(worker):
        network = Half(worker)
        return tools.Replica(network, torch.optim.SGD(network.parameters(), lr=0.1), index=worker)

    weights = make_cluster().train(make, num_steps=2)
    first = make(0).weights()
    moved = [not np.array_equal(one, other) for one, other in zip(weights[0], first, strict=True)]
    assert_same(weights)
    assert moved == [True, True, False, False]


def test_every_local_batch_is_counted(make_cluster, make_replica):
    counts = []
    make_cluster().train(make_replica, num_steps=3, before_close=lambda t: counts.append(t.num_applied()))
    assert counts == [6, 6]


def test_trainers_come_and_go(make_cluster, make_replica, tools):
    """More of them than a server holds at a time, each with weights of its own."""
    from dlscale.collectives.grpc_ps._torch_server import MAX_SESSIONS

    cluster = make_cluster()
    expected = tools.plain(make_replica, num_workers=2, num_steps=1)
    for number in range(MAX_SESSIONS + 2):
        weights = cluster.train(make_replica, num_steps=1, number=number)
        assert cluster.num_sessions() == [0, 0]
    assert_same(weights)
    tools.assert_close(weights[0], expected)


def test_trainers_of_the_same_time_do_not_touch_each_other(make_cluster, make_replica, tools):
    cluster = make_cluster(num_workers=1)
    channels = cluster.channels()
    one, other = (
        cluster.trainer(0, make_replica(worker, name), number=worker, channels=channels)
        for worker, name in enumerate(OPTIMIZERS)
    )
    for _ in range(2):
        one.step()
        other.step()
    assert cluster.num_sessions() == [2, 2]
    one.close()
    other.step()
    other.close()
    tools.assert_close(one.weights(), tools.plain(make_replica, num_workers=1, num_steps=2))
    expected = tools.plain(lambda _: make_replica(1, "adam"), num_workers=1, num_steps=3)
    tools.assert_close(other.weights(), expected)
    assert cluster.num_sessions() == [0, 0]
