"""Servers and workers of backend `grpc_ps` as threads of the test process, over gRPC on 127.0.0.1.

grpcio is imported on demand: where it is missing, tests are skipped.
"""

import re
import time
from threading import Thread
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dlscale.collectives.grpc_ps.options import Options

LOOPBACK = "127.0.0.1"
TOKEN = "the token of this launch"  # noqa: S105
SECONDS = 60  # that any thread of a test may take on a busy machine


class Replica:
    """One objective: a network, its optimizer, and worker `index`'s own batches of numbers.

    `before_batch` is called at the beginning of every step.
    """

    def __init__(self, network, optimizer, *, index=0, num_inputs=20):
        self.network, self.optimizer = network, optimizer
        self._generator = torch.Generator().manual_seed(100 + index)
        self._num_inputs = num_inputs
        self.before_batch = lambda: None
        self.objectives = (
            SimpleNamespace(
                loss=Square(network),
                parameters=tuple(network.parameters()),
                optimizer=optimizer,
                keeps_graph=False,
            ),
        )

    def next_batch(self):
        self.before_batch()
        return (torch.randn(4, self._num_inputs, generator=self._generator),)

    def weights(self):
        return [p.detach().numpy().copy() for o in self.objectives for p in o.parameters]


class Square(torch.nn.Module):
    def __init__(self, network):
        super().__init__()
        self._network = network

    def forward(self, *batch):
        return self._network(*batch).square().mean()


def perceptron(seed):
    """723 elements: three messages of 1 KiB, or two for each of two servers."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.Tanh(), torch.nn.Linear(30, 3))


class Cluster:
    """Servers that listen, and what connects workers to them."""

    def __init__(self, *, num_workers, num_servers, **options):
        from dlscale.collectives.grpc_ps._torch_server import Server

        self.num_workers = num_workers
        self.options = Options(**{"chunk_kib": 1, **options})
        self._chunk_bytes = self.options.chunk_kib << 10
        self.servers = [
            Server(token=TOKEN, num_workers=num_workers, chunk_bytes=self._chunk_bytes)
            for _ in range(num_servers)
        ]
        self.ports = [server.start(LOOPBACK) for server in self.servers]
        self._opened = []

    def channels(self, token=TOKEN):
        """A worker's, to all servers."""
        from dlscale.collectives.grpc_ps._grpc import Channel

        found = [
            Channel(index, f"{LOOPBACK}:{port}", token=token, chunk_bytes=self._chunk_bytes)
            for index, port in enumerate(self.ports)
        ]
        self._opened += found
        return found

    def trainer(self, worker, replica, *, number=0, token=TOKEN, channels=None):
        """Collective over the workers."""
        from dlscale.collectives.grpc_ps._torch_worker import served

        return served(
            replica,
            channels or self.channels(token),
            worker=worker,
            num_workers=self.num_workers,
            options=self.options,
            number=number,
        )

    def train(self, make_replica, *, num_steps, number=0, before_close=lambda _: None):
        """All workers train; their weights, in order of the workers."""
        replicas = [
            make_replica(worker) for worker in range(self.num_workers)
        ]  # torch's seed is all threads'

        def work(worker):
            trainer = self.trainer(worker, replicas[worker], number=number)
            for _ in range(num_steps):
                trainer.step()
            before_close(trainer)
            trainer.close()
            return trainer.weights()

        return together(work, self.num_workers)

    def num_sessions(self):
        return [server.num_sessions() for server in self.servers]

    def assert_freed(self):
        """Soon: a server notices by itself that a worker is gone."""
        deadline = time.monotonic() + SECONDS
        while any(self.num_sessions()) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not any(self.num_sessions())

    def close(self):
        for channel in self._opened:
            channel.close()
        for server in self.servers:
            server.stop()


def together(work, num_workers):
    """What `work(worker)` returns for each, called at the same time; what one raises is raised here."""
    found, errors = {}, []

    def call(worker):
        try:
            found[worker] = work(worker)
        except Exception as error:
            errors.append(error)

    threads = [Thread(target=call, args=(worker,), daemon=True) for worker in range(num_workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    if errors:
        raise errors[0]
    assert sorted(found) == list(range(num_workers)), "some workers still wait"
    return [found[worker] for worker in range(num_workers)]


def plain(make_replica, *, num_workers, num_steps):
    """The weights after steps of torch's own optimizer with the mean of all workers' gradients."""
    replicas = [make_replica(worker) for worker in range(num_workers)]
    first = replicas[0]
    parameters = list(first.network.parameters())
    for _ in range(num_steps):
        rows = [
            torch.autograd.grad(Square(first.network)(*replica.next_batch()), parameters)
            for replica in replicas
        ]
        for parameter, *gradients in zip(parameters, *rows, strict=True):
            parameter.grad = sum(gradients[1:], start=gradients[0]) / num_workers
        first.optimizer.step()
    return first.weights()


def assert_close(found, expected):
    """Equal but for rounding: torch may take elements at a piece's end by other instructions."""
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=3e-6)


def one_line(error):
    """The text of an error that says which server it is about."""
    text = str(error)
    assert type(error) is RuntimeError
    assert re.match(r"grpc_ps: server \d at 127\.0\.0\.1:\d+ ", text)
    assert "\n" not in text
    return text


@pytest.fixture
def make_cluster(monkeypatch):
    """Starts clusters, which are closed after the test; what still streams then is cancelled at once."""
    from dlscale.collectives.grpc_ps import _grpc

    monkeypatch.setattr(_grpc, "GRACE_SECONDS", 0.2)
    made = []

    def make(*, num_workers=2, num_servers=2, **options):
        made.append(Cluster(num_workers=num_workers, num_servers=num_servers, **options))
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()


@pytest.fixture
def tools():
    """What tests of this folder share, which cannot import each other."""
    return SimpleNamespace(
        Replica=Replica,
        perceptron=perceptron,
        together=together,
        plain=plain,
        assert_close=assert_close,
        one_line=one_line,
        token=TOKEN,
        loopback=LOOPBACK,
        seconds=SECONDS,
    )


@pytest.fixture
def make_replica():
    """Makes a worker's, with its own batches and first weights."""

    def make(worker):
        network = perceptron(seed=5 + worker)
        return Replica(network, torch.optim.SGD(network.parameters(), lr=0.1), index=worker)

    return make


@pytest.fixture
def replica(make_replica):
    return make_replica(0)
