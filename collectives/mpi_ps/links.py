"""A worker's side of a session: its weights cut into shards, pushed to the servers and fetched from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from dlscale.collectives.mpi_ps.hierarchy import Ranks
from dlscale.collectives.mpi_ps.messages import (
    BYTES_PER_ELEMENT,
    Floats,
    Kind,
    LostRankError,
    Mailbox,
    Message,
    shard_bounds,
)

Counts = dict[str, Any]
"""What a server has counted in a session, as JSON (`sessions.ServedSession.counts`)."""


class ServerLinks:
    """One session's shards on all servers. Flat buffers have all `num_elements`."""

    def __init__(self, mailbox: Mailbox, ranks: Ranks, *, rank: int, number: int, num_elements: int) -> None:
        """`rank` is a worker or a master; its servers are those that it sends to."""
        self._mailbox, self._ranks, self._number = mailbox, ranks, number
        self._servers = ranks.parents(rank)
        num_servers = len(self._servers)
        self._bounds = shard_bounds(num_elements, num_servers=num_servers)
        self._arrivals = [Message.of_floats(stop - start) for start, stop in self._bounds]
        self._outgoing = [Message.of_floats(stop - start) for start, stop in self._bounds]
        self.steps = [0] * num_servers  # of each server: updates in the weights that were fetched last

    def open(self, rules: Mapping[str, Any], first: Floats | None) -> None:
        """Begin the session under an algorithm's `rules`; worker 0 gives the first weights, the others None."""
        for server, (start, stop) in zip(self._servers, self._bounds, strict=True):
            text = json.dumps({**rules, "num_elements": stop - start})
            message = Message.of_text(text).address(Kind.OPEN, session=self._number)
            self._move(self._mailbox.send(message, server), server)
        if first is not None:
            self.load(first)

    def load(self, first: Floats) -> None:
        self._send(Kind.LOAD, first)

    def push(self, values: Floats, *, count: int) -> None:
        """Send each server its part, of `count` local batches; on return all have taken it out of MPI's hands.

        MPI moves large messages only while both sides call it: a worker that went back to its networks in the middle
        would hold up the server, and with it the other workers.
        """
        self._send(Kind.PUSH, values, count=count)

    def fetch(self, into: Floats) -> None:
        """Ask for the weights and wait for them: they hold all that was pushed before."""
        self._ask(Kind.FETCH)
        self.collect(into)

    def look(self, into: Floats) -> None:
        """`fetch` for somebody who does not train on them: what is pushed later says nothing of these weights."""
        steps = list(self.steps)
        self._ask(Kind.LOOK)
        self.collect(into)
        self.steps = steps

    def kept(self) -> tuple[list[Floats], int]:
        """(the weights and what the algorithm keeps beside them, flat; updates), of now."""
        self._ask(Kind.KEPT)
        shards, num_updates = [], []
        for server, (start, stop) in zip(self._servers, self._bounds, strict=True):
            message = self._receive(server)
            shards.append(message.values.reshape(-1, stop - start))
            num_updates.append(message.step)
        return list(np.concatenate(shards, axis=1)), num_updates[0]

    def collect(self, into: Floats) -> None:
        """Wait for what the servers answer to a push, where the algorithm has them answer."""
        for index, (server, (start, stop)) in enumerate(zip(self._servers, self._bounds, strict=True)):
            message = self._receive(server, self._arrivals[index])
            self.steps[index] = message.step
            into[start:stop] = message.values

    def counts(self) -> list[Counts]:
        """What each server has counted, all that this worker pushed included."""
        self._ask(Kind.REPORT)
        return [json.loads(self._receive(server).text) for server in self._servers]

    def shard_bytes(self) -> list[int]:
        """Bytes of each server's shard."""
        return [BYTES_PER_ELEMENT * (stop - start) for start, stop in self._bounds]

    def end(self) -> None:
        self._ask(Kind.END)

    def _ask(self, kind: Kind) -> None:
        for server in self._servers:
            message = Message(0).address(kind, session=self._number)
            self._move(self._mailbox.send(message, server), server)

    def _send(self, kind: Kind, values: Floats, *, count: int = 0) -> None:
        requests = []
        for index, (server, (start, stop)) in enumerate(zip(self._servers, self._bounds, strict=True)):
            message = self._outgoing[index]
            np.copyto(message.values, values[start:stop])
            message.address(kind, session=self._number, step=self.steps[index], count=count)
            requests.append((self._mailbox.send(message, server), server))
        for request, server in requests:
            self._move(request, server)

    def _move(self, request: Any, server: int) -> None:
        try:
            self._mailbox.wait(request, server)
        except LostRankError as error:
            raise self._lost(error) from None

    def _receive(self, server: int, into: Message | None = None) -> Message:
        try:
            return self._mailbox.receive(server, into)
        except LostRankError as error:
            raise self._lost(error) from None

    def _lost(self, error: LostRankError) -> RuntimeError:
        rank, pid = error.rank, self._mailbox.watch.gone()[error.rank]
        lost = "and nobody relays for it" if self._ranks.is_master(rank) else "and its weights with it"
        return RuntimeError(f"mpi_ps: {self._ranks.name(rank)} (rank {rank}, process {pid}) died, {lost}")
