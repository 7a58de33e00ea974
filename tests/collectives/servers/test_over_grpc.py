"""Servers and workers over gRPC on loopback, as threads that meet as ranks of a launch do."""

import socket
import struct
from queue import SimpleQueue
from threading import Barrier, Thread

import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.collectives import grpc_ps
from dlscale.collectives.addresses import LOOPBACK, free_port
from dlscale.collectives.servers.backend import Servers
from dlscale.collectives.servers.links import Links
from dlscale.collectives.servers.messages import HEADER_BYTES, Kind, LostPeerError, Message, Ranks, Rules

pytestmark = pytest.mark.requires("grpc_ps-torch")

SECONDS = 20


class Rank:
    """One thread's `ServerSplit`."""

    def __init__(self, num_workers, texts, barrier, rank):
        self.num_workers, self.num_servers = num_workers, len(texts) - num_workers
        self._texts, self._barrier, self._rank = texts, barrier, rank
        self.is_server = rank >= num_workers
        self.index = rank - num_workers if self.is_server else rank

    def tell(self, text):
        self._texts[self._rank] = text
        self._barrier.wait(SECONDS)
        found = list(self._texts)
        self._barrier.wait(SECONDS)
        return found


def launch(work, *, num_workers=2, num_servers=1, **options):
    """What `work(job)` returned or raised on each worker, and servers after them."""
    num_ranks = num_workers + num_servers
    texts, barrier, found = [""] * num_ranks, Barrier(num_ranks), {}

    def call(rank):
        job = Rank(num_workers, texts, barrier, rank)
        try:
            found[rank] = grpc_ps.serve(job=job, options=options) if job.is_server else work(job)
        except Exception as error:
            found[rank] = error

    threads = [Thread(target=call, args=(rank,), daemon=True) for rank in range(num_ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert len(found) == num_ranks, "some ranks still wait"
    return [found[rank] for rank in range(num_ranks)]


def connect(job, **options):
    return grpc_ps.connect(control=None, framework="torch", options=options, job=job)


class Script:
    """A network, its optimizer and one worker's own batches."""

    def __init__(self, worker):
        import torch

        torch.manual_seed(5 + worker)
        self.network = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.Tanh(), torch.nn.Linear(30, 3))
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=0.01)
        self.batches = torch.randn(4, 8, 20, generator=torch.Generator().manual_seed(worker))

    def train(self, optimizer):
        for batch in self.batches:
            optimizer.zero_grad()
            self.network(batch).square().mean().backward()
            optimizer.step()

    def weights(self):
        return [parameter.detach().numpy().copy() for parameter in self.network.parameters()]


@pytest.mark.parametrize(
    ("num_workers", "num_servers", "asynchronous"), [(2, 1, False), (3, 2, False), (1, 1, True)]
)
def test_a_script_trains_on_the_mean_of_all_workers(num_workers, num_servers, asynchronous):
    scripts = [Script(worker) for worker in range(num_workers)]

    def work(job):
        optimizer = grpc_ps.served_optimizer(job, scripts[job.index].optimizer, asynchronous=asynchronous)
        scripts[job.index].train(optimizer)
        optimizer.close()
        return scripts[job.index].weights()

    alone = Script(0)
    alone.batches = list(zip(*(script.batches for script in scripts), strict=True))
    for batches in alone.batches:
        alone.optimizer.zero_grad()
        sum(alone.network(batch).square().mean() / num_workers for batch in batches).backward()
        alone.optimizer.step()
    found = launch(work, num_workers=num_workers, num_servers=num_servers, asynchronous=asynchronous)
    assert found[num_workers:] == [None] * num_servers
    for weights in found[:num_workers]:
        for mine, first, expected in zip(weights, found[0], alone.weights(), strict=True):
            np.testing.assert_array_equal(mine, first)
            np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-6)


def test_weights_that_are_not_float32_are_refused():
    import torch

    def work(job):
        return grpc_ps.served_optimizer(job, torch.optim.SGD(torch.nn.Linear(2, 2).bfloat16().parameters()))

    assert isinstance(launch(work, num_workers=1)[0], UsageError)


def test_what_servers_cannot_listen_on_is_said_on_all_ranks():
    port = free_port()
    with socket.create_server((LOOPBACK, port)):
        for num_servers, asked, text in (
            (1, port, f"port {port} on 127.0.0.1 is in use"),
            (2, 65535, "65536"),
        ):
            found = launch(connect, num_servers=num_servers, port=asked)
            assert {type(error) for error in found} == {UsageError}
            assert all(text in str(error) and "\n" not in str(error) for error in found)


@pytest.mark.parametrize(
    ("options", "text"), [({"port": 65536}, "port"), ({"threads": 2}, "no option 'threads'")]
)
def test_impossible_options_are_refused_before_anybody_waits(options, text):
    with pytest.raises(UsageError, match=text):
        connect(Rank(2, [""] * 3, None, 0), **options)


def opened(job, backend, **rules):
    """Links of this worker in session 0, of two weights."""
    transport = backend._transport
    links = Links(transport, [job.num_workers], number=0, num_elements=2)
    links.open(Rules(num_elements=2, **rules), np.zeros(2, np.float32) if job.index == 0 else None)
    links.fetch(np.empty(2, np.float32))
    return links


def broken(backend):
    """As if the worker's process had ended."""
    for call in backend._transport._calls.values():
        call.cancel()


def test_a_worker_that_goes_away_is_named_to_those_that_wait_for_it():
    left = SimpleQueue()

    def work(job):
        backend = connect(job)
        links = opened(job, backend, algorithm="sync")
        if job.index == 1:
            left.get(timeout=SECONDS)
            broken(backend)
            return
        left.put(None)
        links.push(np.zeros(2, np.float32), count=1)
        links.collect(np.empty(2, np.float32))

    error, _, of_server = launch(work)
    assert isinstance(error, LostPeerError)
    for told in (error, of_server):
        assert "worker 1 went away, and the others wait for it" in str(told)
        assert "\n" not in str(told)


def test_a_worker_that_goes_away_is_dropped_where_nobody_waits(capfd):
    gone = SimpleQueue()

    def work(job):
        backend = connect(job)
        links = opened(job, backend, algorithm="asynchronous")
        if job.index == 1:
            broken(backend)
            gone.put(None)
            return None
        gone.get(timeout=SECONDS)
        for _ in range(3):
            links.push(np.ones(2, np.float32), count=1)
            links.collect(found := np.empty(2, np.float32))
        links.end()
        backend.close()
        return found.tolist()

    assert launch(work) == [[3.0, 3.0], None, None]
    assert "worker 1 went away and was dropped" in capfd.readouterr().err


def raw(kind, num_bytes, body=b"", session=0):
    return struct.pack("<5q", kind, session, 0, 1, num_bytes) + body


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([b"short"], id="no header"),
        pytest.param([raw(99, 0)], id="no kind"),
        pytest.param([raw(Kind.PUSH, 1 << 50)], id="more than its shard"),
        pytest.param([raw(Kind.PUSH, -1)], id="less than nothing"),
        pytest.param([raw(Kind.PUSH, 8, bytes(12))], id="more than it says"),
        pytest.param([raw(Kind.PUSH, 8, bytes(8), session=5)], id="another session"),
        pytest.param([raw(Kind.OPEN, 2, b"{}")], id="no rules"),
        pytest.param(
            [raw(Kind.OPEN, len(text := b'{"algorithm":"sync","num_elements":1000000000000000}'), text)],
            id="more than this machine has",
        ),
        pytest.param([bytes((1 << 20) + 1)], id="a piece too large"),
    ],
)
def test_messages_that_may_not_come_end_the_training(pieces):
    class Raw(Message):
        """Sent as it is."""

        def __init__(self):
            self.memory = np.frombuffer(b"".join(pieces), np.uint8)

        kind = Kind.FETCH

    def work(job):
        backend = connect(job)
        links = opened(job, backend, algorithm="sync")
        links._transport._outboxes[1].put(Raw())
        links.collect(np.empty(2, np.float32))

    error, of_server = launch(work, num_workers=1)
    for told in (error, of_server):
        assert isinstance(told, RuntimeError)
        assert "worker 0" in str(told) or "grpc_ps" in str(told)
        assert "\n" not in str(told)


@pytest.mark.parametrize("harm", ["token", "rank", "taken"])
def test_calls_that_are_not_a_workers_are_denied(harm):
    from dlscale.collectives.servers.over_grpc import WorkerOverGrpc, _meet

    def work(job):
        ranks = Ranks(num_workers=1, num_servers=1)
        addresses, token = _meet(job)
        worker = WorkerOverGrpc(0, ranks, addresses, token)
        other = WorkerOverGrpc(
            0 if harm != "rank" else -1, ranks, addresses, token if harm != "token" else "guessed"
        )
        try:
            with pytest.raises(
                UsageError, match=r"^grpc_ps: server 0 at 127.0.0.1:\d+ denies access: [^\n]*$"
            ):
                other.receive(1)
        finally:
            other.close()
            Servers("grpc_ps", job, ranks, worker).close()

    assert launch(work, num_workers=1) == [None, None]


def test_headers_are_as_long_as_they_say():
    assert len(raw(Kind.PUSH, 0)) == HEADER_BYTES
