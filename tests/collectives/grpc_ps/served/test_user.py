"""Servers and workers that meet as in a launch: anybody's torch loop whose optimizer is served."""

from queue import SimpleQueue
from threading import Barrier, Thread

import pytest
import torch

from dlscale.base.errors import UsageError
from dlscale.collectives import grpc_ps

pytestmark = pytest.mark.requires("grpc_ps-torch")


class Launch:
    """What ranks of a launch tell each other, here threads: workers first, servers last."""

    def __init__(self, num_workers, num_servers, seconds):
        self.num_workers, self.num_servers, self.seconds = num_workers, num_servers, seconds
        self.texts = [""] * (num_workers + num_servers)
        self.everyone, self.workers = Barrier(len(self.texts)), Barrier(num_workers)
        self.orders = [SimpleQueue() for _ in range(num_servers)]

    def rank(self, rank):
        return Rank(self, rank)


class Rank:
    """One thread's `ServerSplit`, and its workers' communicator."""

    def __init__(self, launch, rank):
        self._launch, self._rank = launch, rank
        self.num_workers, self.num_servers = launch.num_workers, launch.num_servers
        self.is_server = rank >= launch.num_workers
        self.index = rank - launch.num_workers if self.is_server else rank
        self.workers = None if self.is_server else self

    def tell(self, text):
        self._launch.texts[self._rank] = text
        self._launch.everyone.wait(self._launch.seconds)
        found = list(self._launch.texts)
        self._launch.everyone.wait(self._launch.seconds)
        return found

    def order(self, **what):
        for orders in self._launch.orders if self._rank == 0 else ():
            orders.put(what)

    def next_order(self):
        return self._launch.orders[self.index].get(timeout=self._launch.seconds)

    def Ibarrier(self):  # noqa: N802
        self._launch.workers.wait(self._launch.seconds)
        return self

    def Test(self):  # noqa: N802
        return True


@pytest.fixture
def launch(tools, monkeypatch):
    """Runs `work(job)` on workers while servers serve; returns what each worker returned or raised, and servers."""
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)  # of the whole process

    def run(work, *, num_workers=2, num_servers=1, options):
        launch = Launch(num_workers, num_servers, tools.seconds)
        found = {}

        def call(rank):
            job = launch.rank(rank)
            try:
                found[rank] = grpc_ps.serve(job=job, options=options) if job.is_server else work(job)
            except Exception as error:
                found[rank] = error

        threads = [
            Thread(target=call, args=(rank,), daemon=True) for rank in range(num_workers + num_servers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(tools.seconds)
        assert len(found) == len(threads), "some ranks still wait"
        return [found[rank] for rank in sorted(found)]

    return run


@pytest.mark.parametrize("num_servers", [1, 2])
def test_a_users_loop(launch, tools, num_servers):
    replicas = [user(tools, worker) for worker in range(2)]

    def work(job):
        replica = replicas[job.index]
        optimizer = grpc_ps.served_optimizer(job, replica.optimizer, chunk_kib=1)
        for _ in range(4):
            optimizer.zero_grad()
            replica.objectives[0].loss(*replica.next_batch()).backward()
            optimizer.step()
        optimizer.close()
        return replica.weights()

    one, other, *servers = launch(work, num_servers=num_servers, options={"chunk_kib": 1})
    assert servers == [None] * num_servers
    tools.assert_close(one, other)
    tools.assert_close(one, tools.plain(lambda worker: user(tools, worker), num_workers=2, num_steps=4))


@pytest.mark.parametrize("loop", ["two passes", "no zero_grad", "no zero_grad in the second step"])
def test_gradients_that_would_not_be_sent_are_refused(launch, tools, loop):
    """They leave in the backward pass, so that what a second one adds, or one outside a step, would be lost."""
    replica = user(tools, 0)

    def backward():
        replica.objectives[0].loss(*replica.next_batch()).backward()

    def work(job):
        optimizer = grpc_ps.served_optimizer(job, replica.optimizer)
        if loop != "no zero_grad":
            optimizer.zero_grad()
            backward()
        if loop == "no zero_grad in the second step":
            optimizer.step()
        with pytest.raises(
            UsageError, match="call zero_grad, backward once, and step, in this order"
        ) as caught:
            backward()
        optimizer.close()
        return str(caught.value)

    text, _ = launch(work, num_workers=1, options={})
    assert "\n" not in text


def user(tools, worker):
    network = tools.perceptron(seed=5 + worker)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    return tools.Replica(network, optimizer, index=worker)


def test_a_port_beyond_the_last_is_said_on_all_ranks(launch, tools):
    """Server 1 would take the port after server 0's."""

    def work(job):
        return grpc_ps.served_optimizer(job, user(tools, 0).optimizer, port=65535)

    found = launch(work, num_servers=2, options={"port": 65535})
    assert [type(error) for error in found] == [UsageError] * 4
    assert {str(error) for error in found} == {
        "backend grpc_ps: server 1 would listen on port 65536; give a smaller `port`"
    }


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"chunk_kib": 0}, "option chunk_kib of backend grpc_ps is 0; give 1 to 65536"),
        ({"port": 65536}, "option port of backend grpc_ps is 65536; give 0 to 65535"),
        ({"threads": 2}, "no option 'threads'"),
    ],
)
def test_impossible_options_are_refused_before_anybody_waits(tools, options, text):
    job = Launch(2, 1, tools.seconds).rank(0)
    with pytest.raises(UsageError, match=text):
        grpc_ps.served_optimizer(job, user(tools, 0).optimizer, **options)
