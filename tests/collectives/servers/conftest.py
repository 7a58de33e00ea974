"""Servers as threads of the test process, and workers whose messages are in its memory."""

from threading import Condition, Thread

import numpy as np
import pytest

from dlscale.collectives.servers.links import Links
from dlscale.collectives.servers.messages import Kind, Message, Ranks, Rules
from dlscale.collectives.servers.server import Server, leave

SECONDS = 10


class InMemory:
    """One rank's `Transport`; all share `post`, {rank: [(source, message)]}."""

    def __init__(self, post, changed, dead, rank):
        self._post, self._changed, self._dead, self._rank = post, changed, dead, rank
        self.failure = None

    def send(self, message, to):
        with self._changed:
            self._post.setdefault(to, []).append((self._rank, Message(message.memory.copy())))
            self._changed.notify_all()

    def flush(self, ranks):
        pass

    def receive(self, source):
        found = self._next(lambda entry: entry[0] == source, SECONDS)
        assert found, f"rank {source} does not answer rank {self._rank}"
        return found[1]

    def next(self):
        return self._next(lambda _: True, 0.01)

    def _next(self, fits, seconds):
        with self._changed:
            own = self._post.setdefault(self._rank, [])
            self._changed.wait_for(lambda: any(map(fits, own)), seconds)
            place = next((place for place, entry in enumerate(own) if fits(entry)), None)
            return None if place is None else own.pop(place)

    def gone(self):
        return self._dead

    def close(self, failure=""):
        self.failure = failure


class Job:
    """Servers that serve, and the links of workers in one session."""

    def __init__(self, num_workers, num_servers=1, num_masters=0):
        self.ranks = Ranks(num_workers=num_workers, num_servers=num_servers, num_masters=num_masters)
        self._shared = {}, Condition(), {}
        self.dead = self._shared[2]
        self.servers = {
            rank: InMemory(*self._shared, rank) for rank in range(num_workers, num_workers + num_servers)
        }
        self.errors = {}
        self._threads = [
            Thread(target=self._serve, args=entry, daemon=True) for entry in self.servers.items()
        ]
        for thread in self._threads:
            thread.start()

    def _serve(self, rank, transport):
        try:
            Server(transport, self.ranks, rank=rank).serve()
        except RuntimeError as error:
            self.errors[rank] = str(error)

    def worker(self, rank, number=0, num_elements=1, **rules):
        """Links of a worker that has opened the session."""
        links = Links(
            InMemory(*self._shared, rank),
            self.ranks.parents(rank),
            number=number,
            num_elements=num_elements,
        )
        links.open(Rules(num_elements=num_elements, **rules))
        return links

    def workers(self, *first, **rules):
        """Those of all workers, who hold these weights."""
        all_links = [
            self.worker(rank, num_elements=len(first), **rules) for rank in range(self.ranks.num_workers)
        ]
        all_links[0].send(Kind.LOAD, np.float32(first))
        for links in all_links:
            links.fetch(np.empty(len(first), np.float32))
        return all_links

    def leave(self, *ranks):
        for rank in ranks or range(self.ranks.num_workers):
            leave(InMemory(*self._shared, rank), self.ranks.parents(rank))

    def join(self):
        """{server: error}: all have ended."""
        for thread in self._threads:
            thread.join(SECONDS)
            assert not thread.is_alive()
        return self.errors


@pytest.fixture
def job():
    return Job
