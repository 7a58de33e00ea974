"""What happens to the others when a server or a worker fails: an error of one line, soon, and nothing stays behind."""

import re
from threading import Event, Thread

import pytest

pytestmark = pytest.mark.requires("grpc_ps-torch")

SOON_SECONDS = 20  # milliseconds on a quiet machine


class Pair:
    """Two workers that have done a step, each with channels of its own."""

    def __init__(self, cluster, make_replica, tools):
        self.cluster, self._tools = cluster, tools
        self.replicas = [make_replica(worker) for worker in range(2)]
        self.channels = [cluster.channels() for _ in range(2)]
        self.trainers = tools.together(self._connect, 2)
        tools.together(lambda worker: self.trainers[worker].step(), 2)

    def _connect(self, worker):
        return self.cluster.trainer(worker, self.replicas[worker], channels=self.channels[worker])

    def error_of(self, waiting, do):
        """What worker `waiting` gets, which is in the middle of a step when the others `do` something."""
        started, errors = Event(), []
        self.replicas[waiting].before_batch = started.set

        def step():
            try:
                self.trainers[waiting].step()
            except Exception as error:
                errors.append(error)

        thread = Thread(target=step, daemon=True)
        thread.start()
        assert started.wait(SOON_SECONDS)
        do()
        thread.join(SOON_SECONDS)
        assert errors, "it still waits, or has finished its step"
        return self._tools.one_line(errors[0])

    def close(self):
        for trainer in self.trainers:
            trainer.close()


@pytest.fixture
def pair(make_cluster, make_replica, tools):
    return Pair(make_cluster(), make_replica, tools)


def test_a_server_that_stops(pair, tools):
    """The waiting worker is told which, the other when it steps; the server that is left is free again."""
    text = pair.error_of(0, lambda: pair.cluster.servers[1].stop())
    assert text.startswith(f"grpc_ps: server 1 at 127.0.0.1:{pair.cluster.ports[1]} ")
    with pytest.raises(RuntimeError, match="server 1 at") as caught:
        pair.trainers[1].step()
    tools.one_line(caught.value)
    pair.close()
    pair.cluster.assert_freed()


@pytest.mark.parametrize("leaving", [0, 1])
def test_a_worker_that_closes(pair, leaving):
    text = pair.error_of(1 - leaving, lambda: pair.trainers[leaving].close())
    assert re.search(f"ended the session: worker {leaving} (closes|has closed) its trainer", text)
    pair.close()
    pair.cluster.assert_freed()


def test_a_worker_that_goes_away_from_one_server(pair):
    """The other server keeps the session until the worker that is left has heard of it."""
    text = pair.error_of(0, pair.channels[1][1].close)
    assert re.match(r"grpc_ps: server 1 .*ended the session: worker 1 went away$", text)
    pair.close()
    pair.cluster.assert_freed()


def test_damaged_messages(pair):
    stream = pair.trainers[1]._traffic._streams[0]
    text = pair.error_of(0, lambda: stream.send(lambda: b"\x01" * 40))
    assert text.endswith("kind 16843009 for chunk 16843009; there are 2 chunks")
    pair.close()
    pair.cluster.assert_freed()


def test_a_message_that_cannot_be_built(pair):
    """It is the worker's own failure, and the others need not wait for it."""

    def build():
        raise ValueError("no such gradient")

    stream = pair.trainers[1]._traffic._streams[0]
    assert pair.error_of(0, lambda: stream.send(build)).endswith("worker 1 went away")
    with pytest.raises(RuntimeError):
        pair.trainers[1].step()
    pair.close()
    pair.cluster.assert_freed()


def test_a_number_is_not_used_again(pair, make_replica):
    """A worker that comes late to a trainer that failed does not wait for the others for ever."""
    pair.error_of(0, pair.trainers[1].close)
    pair.close()
    pair.cluster.assert_freed()
    with pytest.raises(RuntimeError, match="this trainer has ended: another worker failed or closed it"):
        pair.cluster.trainer(1, make_replica(1))
    pair.cluster.assert_freed()


def test_a_second_worker_of_the_same_index(pair, make_replica):
    with pytest.raises(RuntimeError, match="worker 1 takes part already"):
        pair.cluster.trainer(1, make_replica(1))
    with pytest.raises(RuntimeError, match="ended the session: worker 1 takes part already"):
        pair.trainers[0].step()
    pair.close()
    pair.cluster.assert_freed()
