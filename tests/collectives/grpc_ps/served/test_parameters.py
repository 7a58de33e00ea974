"""Which parameters and optimizers a worker may bring; what it may not is said before it joins."""

import numpy as np
import pytest
import torch

from dlscale.base.errors import UsageError

pytestmark = pytest.mark.requires("grpc_ps-torch")


@pytest.fixture
def refused(make_cluster, tools):
    """The one line that a trainer is refused with."""

    def text_of(network, optimizer=None, **cluster):
        made = make_cluster(num_workers=1, **cluster)
        optimizer = optimizer or torch.optim.SGD(network.parameters(), lr=0.1)
        with pytest.raises(UsageError) as caught:
            made.trainer(0, tools.Replica(network, optimizer))
        assert made.num_sessions() == [0] * len(made.servers)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return text_of


def test_weights_of_other_types(refused):
    network = torch.nn.Linear(2, 2).double()
    assert refused(network) == "backend grpc_ps serves weights of torch.float32, not torch.float64"


def test_more_servers_than_weights(refused):
    network = torch.nn.Linear(2, 1, bias=False)
    text = refused(network, num_servers=3)
    assert text == "backend grpc_ps: 3 servers for 2 weights; give fewer servers"


@pytest.mark.parametrize("num_servers", [1, 3])
def test_groups_keep_their_settings(make_cluster, tools, num_servers):
    """In another order than the parameters': biases first."""

    def make(worker):
        network = tools.perceptron(1)
        weights = [p for p in network.parameters() if p.ndim > 1]
        biases = [p for p in network.parameters() if p.ndim == 1]
        groups = [{"params": biases, "lr": 0.5}, {"params": weights, "weight_decay": 0.1}]
        return tools.Replica(network, torch.optim.SGD(groups, lr=0.1, momentum=0.9), index=worker)

    one, other = make_cluster(num_servers=num_servers).train(make, num_steps=4)
    tools.assert_close(one, tools.plain(make, num_workers=2, num_steps=4))
    for mine, theirs in zip(one, other, strict=True):
        np.testing.assert_array_equal(mine, theirs)
