"""A worker's side of a session: its weights cut into shards, pushed to the servers and fetched from them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from dlscale.collectives.servers.messages import (
    BYTES_PER_ELEMENT,
    Floats,
    Kind,
    Message,
    Rules,
    Transport,
    shard_bounds,
)


class Links:
    """One session's shards on `servers`, which are ranks in the order of the shards. Flat buffers have all elements.

    A master has links to the super-master.
    """

    def __init__(self, transport: Transport, servers: list[int], *, number: int, num_elements: int) -> None:
        self._transport, self._servers, self._number = transport, servers, number
        self._bounds = shard_bounds(num_elements, num_servers=len(servers))
        self.steps = [0] * len(servers)  # of each server: updates in the weights that it sent last

    def open(self, rules: Rules, first: Floats | None = None) -> None:
        """Begin the session; worker 0 gives the first weights, the others None."""
        for server, (start, stop) in zip(self._servers, self._bounds, strict=True):
            text = rules.model_copy(update={"num_elements": stop - start}).model_dump_json()
            self._transport.send(Message.of(Kind.OPEN, self._number, body=text), server)
        self._transport.flush(self._servers)
        if first is not None:
            self.send(Kind.LOAD, first)

    def send(self, kind: Kind, values: Floats, *, count: int = 0) -> None:
        """Send each server its part, of `count` local batches; it has left this rank on return."""
        for server, (start, stop), step in zip(self._servers, self._bounds, self.steps, strict=True):
            body = values[start:stop]
            self._transport.send(Message.of(kind, self._number, step=step, count=count, body=body), server)
        self._transport.flush(self._servers)

    def push(self, values: Floats, *, count: int) -> None:
        self.send(Kind.PUSH, values, count=count)

    def fetch(self, into: Floats) -> None:
        """Ask for the weights and wait for them: they hold all that was pushed before."""
        self._ask(Kind.FETCH)
        self.collect(into)

    def collect(self, into: Floats) -> None:
        """Wait for what the servers answer to a push, where the algorithm has them answer."""
        for index, (server, (start, stop)) in enumerate(zip(self._servers, self._bounds, strict=True)):
            message = self._transport.receive(server)
            self.steps[index] = message.step
            into[start:stop] = message.values

    def kept(self) -> tuple[list[Floats], int]:
        """(the weights and what the algorithm keeps beside them, flat; updates), of now, which no push is based on."""
        self._ask(Kind.KEPT)
        answers = [self._transport.receive(server) for server in self._servers]
        shards = [
            message.values.reshape(-1, stop - start)
            for message, (start, stop) in zip(answers, self._bounds, strict=True)
        ]
        return list(np.concatenate(shards, axis=1)), answers[0].step

    def counts(self) -> list[dict[str, Any]]:
        """What each server has counted, all that this worker pushed included."""
        self._ask(Kind.REPORT)
        return [json.loads(self._transport.receive(server).text) for server in self._servers]

    def shard_bytes(self) -> list[int]:
        """Bytes of each server's shard."""
        return [BYTES_PER_ELEMENT * (stop - start) for start, stop in self._bounds]

    def end(self) -> None:
        self._ask(Kind.END)

    def _ask(self, kind: Kind) -> None:
        for server in self._servers:
            self._transport.send(Message.of(kind, self._number), server)
        self._transport.flush(self._servers)
