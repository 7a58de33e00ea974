"""How ranks learn where the servers are."""

import threading

from dlscale.base.errors import UsageError
from dlscale.collectives.grpc_ps.meeting import join_host, meet

WORKERS, SERVERS = 2, 2


class TalkingJob:
    """One rank's `ServerSplit`, of threads: what each tells is known to all when all have told it."""

    def __init__(self, rank, texts, barrier):
        self.num_workers, self.num_servers = WORKERS, SERVERS
        self.is_server = rank >= WORKERS
        self.index = rank - WORKERS if self.is_server else rank
        self._rank, self._texts, self._barrier = rank, texts, barrier

    def tell(self, text):
        self._texts[self._rank] = text
        self._barrier.wait(20)
        found = list(self._texts)
        self._barrier.wait(20)
        return found


def meet_all(listens):
    """What each rank gets, or the error that it gets instead."""
    texts, barrier = [""] * (WORKERS + SERVERS), threading.Barrier(WORKERS + SERVERS)
    found = [None] * (WORKERS + SERVERS)

    def run(rank):
        job = TalkingJob(rank, texts, barrier)
        try:
            found[rank] = meet(job, listens[job.index] if job.is_server else None)
        except UsageError as error:
            found[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(WORKERS + SERVERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return found


def test_all_ranks_learn_the_same_addresses_and_one_token():
    heard = []

    def listen(port):
        return lambda host, token: heard.append((host, token)) or port

    found = meet_all([listen(1), listen(2)])
    assert all(meeting == found[0] for meeting in found)
    assert found[0].addresses == ("127.0.0.1:1", "127.0.0.1:2")
    assert len(found[0].token) == 64
    assert set(heard) == {("127.0.0.1", found[0].token)}


def test_a_server_that_cannot_listen_is_an_error_of_one_line_on_all_ranks():
    def fail(host, token):
        raise UsageError("port 50051 on 127.0.0.1\nis in use")

    found = meet_all([lambda _host, _token: 1, fail])
    assert [str(error) for error in found] == ["port 50051 on 127.0.0.1 is in use"] * 4


def test_addresses_of_ipv6_get_brackets():
    assert (join_host("10.0.0.1", 5), join_host("fe80::1", 5)) == ("10.0.0.1:5", "[fe80::1]:5")
