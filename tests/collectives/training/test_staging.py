"""Gradients that are computed on a device and exchanged on the host: what is copied, when, and that nothing is lost."""

import types

import pytest
import torch
from torch import nn

from dlscale.collectives.training import _torch_buckets, communication
from dlscale.collectives.training.communication import Training

NUM_STEPS = 4


class Replica:
    """Two layers of which the first, that travels last, has its batch's signs; `unused` has no gradient."""

    compiled = False
    schedule = None

    def __init__(self):
        torch.manual_seed(3)
        network = nn.Sequential(
            nn.Conv2d(2, 4, 3).to(memory_format=torch.channels_last), nn.Flatten(), nn.Linear(16, 3)
        )
        self.unused = nn.Parameter(torch.ones(50))
        self.parameters = (*network.parameters(), self.unused)
        loss = Loss(network)
        optimizer = torch.optim.SGD(self.parameters, lr=0.1, momentum=0.9, weight_decay=0.1)
        self.objectives = (
            types.SimpleNamespace(
                loss=loss, parameters=self.parameters, optimizer=optimizer, keeps_graph=False
            ),
        )
        self._generator = torch.Generator().manual_seed(7)

    def next_batch(self):
        return (torch.randn(3, 2, 4, 4, generator=self._generator),)


class Loss(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, batch):
        return self.network(batch).square().mean()


@pytest.fixture(autouse=True)
def _small_buckets(monkeypatch):
    monkeypatch.setattr(communication, "FIRST_BUCKET_BYTES", 60)
    monkeypatch.setattr(communication, "BUCKET_BYTES", 60)
    monkeypatch.setattr(communication, "threads_may_communicate", lambda: True)


def trained(training, collective):
    replica = Replica()
    trainer = _torch_buckets.over(replica, [collective] * max(training.teams, 1), training)
    for _ in range(NUM_STEPS):
        trainer.step()
    trainer.synchronize()
    settings = trainer.settings()
    trainer.close()
    return [parameter.detach().clone() for parameter in replica.parameters], settings


@pytest.mark.parametrize("teams", [0, 2])
@pytest.mark.parametrize("pipelined", [False, True])
def test_staged_gradients_train_bit_by_bit_as_those_in_place(
    monkeypatch, of_two, late_staging, teams, pipelined
):
    training = Training(teams=teams, pipelined=pipelined)
    expected, in_place = trained(training, of_two)
    late = late_staging()
    monkeypatch.setattr(_torch_buckets, "staging_of", lambda _: late)
    found, staged = trained(training, of_two)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)
    assert len(staged["bucket_bytes"].split(",")) >= 3
    assert staged["bucket_bytes"] == in_place["bucket_bytes"]
    # The unused parameter has no gradient to fetch, and a mean of zeros.
    size = sum(parameter.numel() for parameter in found)
    assert late.num_fetched == NUM_STEPS * (size - 50)
    assert late.num_delivered == (NUM_STEPS - pipelined) * size
