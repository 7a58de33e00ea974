"""Gradients of a GPU that are exchanged on the host: no bit differs from what the GPU alone would have trained."""

import time
import types

import numpy as np
import pytest
import torch
from torch import nn

from dlscale.collectives.training import _torch_buckets, communication
from dlscale.collectives.training._torch import NoExchange, TorchTrainer
from dlscale.collectives.training.communication import Training
from tests.collectives.training import test_staging as on_cores

NUM_STEPS = 30


@pytest.fixture(autouse=True)
def _torch_only(framework, monkeypatch):
    if framework != "torch":
        pytest.skip("TensorFlow copies by itself; the contract of its backends is run on the GPUs")
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(communication, "threads_may_communicate", lambda: True)


class Halving:
    """A collective of two ranks, the other of which has gradients of 0 and takes its time."""

    rank, size = 0, 2

    def __init__(self):
        self._random = np.random.default_rng(1)

    def empty(self, count, dtype="float32"):
        return np.full(count, np.nan, dtype)

    def allreduce(self, buffer, op="sum"):
        time.sleep(0.003 * self._random.random())
        assert op == "average"
        buffer *= 0.5

    def settings(self):
        return {}


class Replica(on_cores.Replica):
    """60 MiB of weights, most of which travel first. `factor`: what each gradient is multiplied by on the GPU."""

    def __init__(self, factor=1.0):
        torch.manual_seed(3)
        network = nn.Sequential(
            *(nn.Conv2d(8, 64, 3), nn.ReLU(), nn.Conv2d(64, 256, 3), nn.ReLU(), nn.Flatten()),
            *(nn.Linear(256 * 144, 400), nn.ReLU(), nn.Linear(400, 2000)),
        )
        network.to("cuda", memory_format=torch.channels_last)
        self.parameters = tuple(network.parameters())
        for parameter in self.parameters:
            parameter.register_hook(lambda gradient: gradient * factor)
        optimizer = torch.optim.SGD(self.parameters, lr=0.05, momentum=0.9)
        self.objectives = (
            types.SimpleNamespace(
                loss=on_cores.Loss(network),
                parameters=self.parameters,
                optimizer=optimizer,
                keeps_graph=False,
            ),
        )
        self._generator = torch.Generator("cuda").manual_seed(7)

    def next_batch(self):
        images = torch.randn(16, 8, 16, 16, device="cuda", generator=self._generator)
        return (images.contiguous(memory_format=torch.channels_last),)


def trained(replica, trainer):
    for _ in range(NUM_STEPS):
        trainer.step()
    trainer.synchronize()
    trainer.close()
    return [parameter.detach().cpu() for parameter in replica.parameters]


def staged(training):
    replica = Replica()
    collectives = [Halving() for _ in range(max(training.teams, 1))]
    return trained(replica, _torch_buckets.over(replica, collectives, training))


def assert_same(found, expected):
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("teams", [0, 1, 3])
def test_staged_training_is_that_of_the_gpu(teams):
    replica = Replica(factor=0.5)  # exact, wherever it is done
    expected = trained(replica, TorchTrainer(replica, [NoExchange(replica.objectives[0])]))
    assert_same(staged(Training(teams=teams)), expected)


def test_pipelined_training_is_the_same_by_any_number_of_threads():
    first, *others = (staged(Training(teams=teams, pipelined=True)) for teams in (0, 1, 3))
    for other in others:
        assert_same(other, first)


def test_copies_there_and_back_are_in_order():
    staging = _torch_buckets.GpuStaging(torch.device("cuda", torch.cuda.current_device()))
    for _ in range(200):
        tensor = torch.randn(1 << 20, device="cuda")
        expected = tensor * 2
        host = staging.on_host(tensor)
        arrival = staging.arrival()
        del tensor  # whose memory others may have only when it is copied
        torch.full((1 << 20,), torch.nan, device="cuda")
        arrival()
        assert host.is_pinned()
        host.mul_(2)
        back = torch.empty_like(expected)
        staging.deliver(host, back)
        assert torch.equal(back, expected)
