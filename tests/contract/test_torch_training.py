"""However gradients travel, P ranks with b samples each train as one rank with P * b samples.

The network has no batch norm, so the mean over ranks of mean gradients is the gradient of the whole batch. Sums differ
in their order only.
"""

import contextlib
import gc
import os
import sys
import types
from dataclasses import dataclass

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dlscale.collectives import ring
from dlscale.collectives.mpi import MpiCollective
from dlscale.collectives.training import _torch_buckets, communication
from dlscale.collectives.training._torch import Update
from dlscale.collectives.training.communication import Training

pytestmark = pytest.mark.on_ranks(2)

LOCAL_BATCH = 3
NUM_STEPS = 5


def network():
    torch.manual_seed(4)
    return nn.Sequential(
        nn.Conv2d(2, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1), nn.Flatten(), nn.Linear(4 * 36, 5)
    ).to(memory_format=torch.channels_last)


def global_batch(step, size):
    generator = torch.Generator().manual_seed(step)
    images = torch.randn(LOCAL_BATCH * size, 2, 8, 8, generator=generator)
    return images.contiguous(memory_format=torch.channels_last), torch.arange(LOCAL_BATCH * size) % 5


def local_batch(step, rank, size):
    return tuple(part[rank * LOCAL_BATCH : (rank + 1) * LOCAL_BATCH] for part in global_batch(step, size))


class Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = network()

    def forward(self, images, labels):
        return nn.functional.cross_entropy(self.network(images), labels)


def sgd(loss):
    return torch.optim.SGD(loss.parameters(), lr=0.1, momentum=0.9)


def alone(size, applied=None):
    """The weights after training on whole batches. `applied`: for each step, the steps whose gradients it applies.

    A step that applies its own gradients is synchronous: those of earlier ones come before it computes.
    """
    loss = Loss()
    optimizer = sgd(loss)
    gradients = {}
    for step in range(NUM_STEPS):
        now = applied[step] if applied else [step]
        before = [earlier for earlier in now if earlier != step and step in now]
        for earlier in before:
            update(loss, optimizer, gradients[earlier])
        optimizer.zero_grad()
        loss(*global_batch(step, size)).backward()
        gradients[step] = [parameter.grad.clone() for parameter in loss.parameters()]
        for other in now[len(before) :]:
            update(loss, optimizer, gradients[other])
    return weights(loss)


def update(loss, optimizer, gradients):
    for parameter, gradient in zip(loss.parameters(), gradients, strict=True):
        parameter.grad = gradient
    optimizer.step()


def weights(loss):
    return [parameter.detach().clone() for parameter in loss.parameters()]


def check(found, expected, world):
    hashes = world.allgather([weight.numpy().tobytes() for weight in found])
    assert all(other == hashes[0] for other in hashes)
    for weight, other in zip(found, expected, strict=True):
        torch.testing.assert_close(weight, other, rtol=1e-4, atol=1e-6)


@contextlib.contextmanager
def process_group(world, tmp_path_factory):
    hook = sys.excepthook  # torch puts one of its own before it, every time
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    folder = world.bcast(str(tmp_path_factory.mktemp("store")))
    store = dist.FileStore(f"{folder}/store", world.Get_size())
    dist.init_process_group("gloo", store=store, rank=world.Get_rank(), world_size=world.Get_size())
    try:
        yield
    finally:
        world.Barrier()
        gc.collect()  # models go before the group does (TorchDistributedBackend.close)
        dist.destroy_process_group()
        sys.excepthook = hook


def train(model, loss, world):
    optimizer = sgd(loss)
    for step in range(NUM_STEPS):
        optimizer.zero_grad()
        model(*local_batch(step, world.Get_rank(), world.Get_size())).backward()
        optimizer.step()


@pytest.mark.parametrize("views", [False, True], ids=["", "gradient_as_bucket_view"])
@pytest.mark.parametrize("num_threads", [0, 1, 2])
def test_the_hook_trains_as_one_rank(world, tmp_path_factory, num_threads, views):
    rings = [ring.join(world) for _ in range(max(num_threads, 1))]
    with process_group(world, tmp_path_factory):
        loss = Loss()
        # Small buckets, so that there are several.
        model = DistributedDataParallel(loss, bucket_cap_mb=0.001, gradient_as_bucket_view=views)
        hook = ring.torch_hook(rings if num_threads > 1 else rings[0], threads=num_threads > 0)
        model.register_comm_hook(None, hook)
        train(model, loss, world)
        del model
        hook.close()
    settings = hook.settings()
    for one in rings:
        one.close()
    assert settings["teams"] == num_threads
    assert settings["overlap"] == (num_threads > 0)
    check(weights(loss), alone(world.Get_size()), world)


def test_what_the_hooks_ring_raises_comes_out_of_backward(world, tmp_path_factory):
    """A closed ring stands for any failure. Every rank gets it, so none is left waiting."""
    one = ring.join(world)
    with process_group(world, tmp_path_factory):
        model = DistributedDataParallel(Loss())
        model.register_comm_hook(None, ring.torch_hook(one, threads=True))
        one.close()
        with pytest.raises(RuntimeError, match="closed"):
            model(*local_batch(0, 0, 1)).backward()
        del model


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_the_hook_averages_gradients_of_other_dtypes(world, tmp_path_factory, dtype):
    """With gradients that are the rank's number, which all these hold exactly, as they do its mean."""
    one = ring.join(world)
    with process_group(world, tmp_path_factory):
        layer = nn.Linear(3, 2, bias=False, dtype=dtype)
        model = DistributedDataParallel(layer)
        model.register_comm_hook(None, ring.torch_hook(one, threads=False))
        (model(torch.ones(1, 3, dtype=dtype)).sum() * world.Get_rank()).backward()
        del model
    one.close()
    mean = (world.Get_size() - 1) / 2
    assert torch.equal(layer.weight.grad, torch.full((2, 3), mean, dtype=dtype))


@dataclass
class Replica:
    """What a front asks of one, over the batches of this file."""

    compiled = sleeps = False
    schedule = None

    rank: int
    size: int

    def __post_init__(self):
        self.loss = Loss()
        self.objectives = (
            types.SimpleNamespace(
                loss=self.loss,
                parameters=tuple(self.loss.parameters()),
                optimizer=sgd(self.loss),
                keeps_graph=False,
            ),
        )
        self._step = -1

    def next_batch(self):
        self._step += 1
        return local_batch(self._step, self.rank, self.size)


def own_buckets(world, training, *, collective=None):
    collectives = [(collective or ring.join)(world) for _ in range(max(training.teams, 1))]
    replica = Replica(world.Get_rank(), world.Get_size())
    trainer = _torch_buckets.over(replica, collectives, training)
    for _ in range(NUM_STEPS):
        trainer.step()
    trainer.synchronize()
    settings = trainer.settings()
    trainer.close()
    for one in collectives:
        one.close()
    return weights(replica.loss), settings


@pytest.fixture
def small_buckets(monkeypatch):
    """Several buckets of this small network."""
    monkeypatch.setattr(communication, "FIRST_BUCKET_BYTES", 100)
    monkeypatch.setattr(communication, "BUCKET_BYTES", 100)


@pytest.mark.parametrize("collective", [ring.join, MpiCollective], ids=["ring", "mpi"])
@pytest.mark.parametrize("teams", [0, 1, 3])
def test_own_buckets_train_as_one_rank(world, small_buckets, teams, collective):
    found, settings = own_buckets(world, Training(teams=teams), collective=collective)
    assert settings["teams"] == teams
    assert len(settings["bucket_bytes"].split(",")) >= 3
    check(found, alone(world.Get_size()), world)


@pytest.mark.parametrize("teams", [0, 1, 2])
@pytest.mark.parametrize("until", [0, 1, 3])
def test_pipelined_buckets_train_as_one_rank_does_one_step_late(world, small_buckets, teams, until):
    training = Training(teams=teams, pipelined=True, pipelined_until_step=until)
    found, settings = own_buckets(world, training)
    assert (settings["pipelined"], settings["pipelined_until_step"]) == (True, until)
    late = {0: [[], [0], [1], [2], [3]], 1: [[], [0, 1], [2], [3], [4]], 3: [[], [0], [1], [2, 3], [4]]}
    check(found, alone(world.Get_size(), late[until]), world)


@pytest.mark.parametrize("teams", [0, 1])
def test_a_parameter_that_only_some_ranks_use_counts_as_zero_on_the_others(world, small_buckets, teams):
    """The ranks' buckets are ready in another order then, but travel in the same one."""
    collective = ring.join(world)
    replica = Replica(world.Get_rank(), world.Get_size())
    extra = nn.Parameter(torch.ones(500))  # a bucket of its own, the first to travel
    objective = replica.objectives[0]
    objective.parameters = (*objective.parameters, extra)
    objective.optimizer.add_param_group({"params": [extra]})
    plain = replica.loss.forward
    if world.Get_rank() == 0:
        replica.loss.forward = lambda *batch: plain(*batch) + extra.sum()
    trainer = _torch_buckets.over(replica, [collective], Training(teams=teams))
    trainer.step()
    trainer.step()
    found = weights(replica.loss)
    trainer.close()
    collective.close()
    size = world.Get_size()
    # Momentum SGD of rate 0.1 with the constant gradient 1 / P: 0.1 in the first step, 0.19 in the second.
    torch.testing.assert_close(extra.detach(), torch.full((500,), 1 - (0.1 + 0.19) / size))
    hashes = world.allgather([weight.numpy().tobytes() for weight in found])
    assert all(other == hashes[0] for other in hashes)


@pytest.mark.parametrize("kind", ["Adam", "SGD"])
@pytest.mark.parametrize("begin", [0, 1])
def test_the_update_is_the_optimizers_own_bit_by_bit(begin, kind):
    """Channels last or not: only the order in which elements lie is another. Also from the middle of a training."""
    options = {"Adam": {"lr": 0.01}, "SGD": {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}}[kind]
    one, other = Loss(), Loss()
    optimizers = [
        getattr(torch.optim, kind)(loss.parameters(), fused=True, **options) for loss in (one, other)
    ]
    objective = types.SimpleNamespace(parameters=tuple(one.parameters()), optimizer=optimizers[0])
    updates = []
    for step in range(5):
        for loss in (one, other):
            loss.zero_grad()
            loss(*global_batch(step, 2)).backward()
        if step in (begin, 3):
            updates.append(Update(objective))  # the second takes over the first one's state
        (updates[-1].apply if updates else optimizers[0].step)()
        optimizers[1].step()
    assert len(updates) == 2
    for mine, theirs in zip(weights(one), weights(other), strict=True):
        assert torch.equal(mine, theirs)
