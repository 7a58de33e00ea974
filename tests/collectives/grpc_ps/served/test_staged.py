"""Workers whose parameters lie on a device: gradients are sent once they have arrived, and weights are copied back."""

import pytest
import torch

from dlscale.collectives.grpc_ps import _torch_exchange

pytestmark = pytest.mark.requires("grpc_ps-torch")


@pytest.mark.parametrize("asynchronous", [False, True])
def test_staged_workers_train_bit_by_bit_as_others(
    make_cluster, tools, late_staging, monkeypatch, asynchronous
):
    def make(worker):
        network = tools.perceptron(seed=5 + worker)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
        return tools.Replica(network, optimizer, index=worker)

    num_workers = 1 if asynchronous else 2  # whose order would be another each time

    def weights():
        return make_cluster(num_workers=num_workers, asynchronous=asynchronous).train(make, num_steps=4)

    expected, made = weights(), []
    monkeypatch.setattr(_torch_exchange, "staging_of", lambda _: made.append(late_staging()) or made[-1])
    for found, other in zip(weights(), expected, strict=True):
        assert all((one == two).all() for one, two in zip(found, other, strict=True))
    # The first weights, and then four steps' gradients there and weights back.
    assert [(one.num_fetched, one.num_delivered) for one in made] == [(723 * 5, 723 * 5)] * num_workers
