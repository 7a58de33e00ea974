"""A server rank: takes workers' messages, in the order in which they come, until all workers have left."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection
from functools import partial

import psutil
from pydantic import ValidationError

from dlscale.collectives.servers.links import Links
from dlscale.collectives.servers.messages import (
    BYTES_PER_ELEMENT,
    Floats,
    Kind,
    LostPeerError,
    Message,
    Ranks,
    RefusedError,
    Rules,
    Transport,
)
from dlscale.collectives.servers.sessions import Relay, Session, Stale, Synchronous


class Server:
    """All sessions of the server with that rank. Its workers may be masters (`messages.Ranks`)."""

    def __init__(self, transport: Transport, ranks: Ranks, *, rank: int) -> None:
        self._transport, self._ranks, self._rank = transport, ranks, rank
        self._children = ranks.children(rank)
        self._present = set(self._children)
        self._sessions: dict[int, Session] = {}
        self._left: dict[int, set[int]] = {}  # of each session, the workers that have left it

    def serve(self) -> None:
        """Return when all workers have left; a master then leaves the super-master. Raises RuntimeError."""
        failure = "the server failed"
        try:
            self._serve()
            failure = ""
        except (RefusedError, RuntimeError) as error:
            failure = str(error)
            raise RuntimeError(failure) from None
        finally:
            self._transport.close(failure)

    def _serve(self) -> None:
        while self._present:
            for worker in self._present & self._transport.gone().keys():
                self._drop(worker)
            if found := self._transport.next():
                worker, message = found
                self._take(worker, message)
        for worker in self._children:
            try:
                self._transport.flush([worker])
            except LostPeerError:
                continue
        if self._ranks.is_master(self._rank):
            leave(self._transport, self._ranks.parents(self._rank))

    def _drop(self, worker: int) -> None:
        """Train on without a worker. Raises RuntimeError in a session in which others wait for it."""
        why = self._transport.gone()[worker]
        self._present.discard(worker)
        for number, session in list(self._sessions.items()):
            if worker not in self._left[number]:
                if not session.goes_on():
                    raise RuntimeError(f"{why}, and the others wait for it")
                self._leave(worker, number)
        num_left = len(self._present)
        sys.stderr.write(f"{why} and was dropped; {num_left} go{'es' * (num_left == 1)} on\n")
        sys.stderr.flush()

    def _take(self, worker: int, message: Message) -> None:
        number, kind = message.session, message.kind
        if kind is Kind.CLOSE:
            self._present.discard(worker)
        elif kind is Kind.OPEN:
            self._open(worker, number, rules_of(message))
        elif number not in self._sessions or kind in (Kind.VALUES, Kind.COUNTS):
            raise RefusedError(f"{self._ranks.name(worker)} sent {kind.name} for trainer {number}")
        else:
            self._take_of(self._sessions[number], worker, message)

    def _take_of(self, session: Session, worker: int, message: Message) -> None:
        match message.kind:
            case Kind.LOAD | Kind.PUSH if message.values.size != session.rules.num_elements:
                raise RefusedError(
                    f"{self._ranks.name(worker)} sent {message.values.size} elements of a shard of "
                    f"{session.rules.num_elements}"
                )
            case Kind.LOAD:
                session.load(message.values)
            case Kind.PUSH:
                session.push(worker, message.values, step=message.step, count=message.count)
            case Kind.FETCH:
                session.fetch(worker)
            case Kind.KEPT:
                session.kept(worker)
            case Kind.REPORT:
                counts = Message.of(Kind.COUNTS, message.session, body=json.dumps(session.counts()))
                self._transport.send(counts, worker)
            case Kind.END:
                self._leave(worker, message.session)

    def _open(self, worker: int, number: int, rules: Rules) -> None:
        """The first worker to come opens the session."""
        if number in self._sessions:
            if self._sessions[number].rules != rules:
                raise RefusedError(
                    f"{self._ranks.name(worker)} trains other weights, or in another way, than the one that came first"
                )
            return
        reply = partial(self._reply, number)
        if self._ranks.is_master(self._rank):
            parent = Links(
                self._transport,
                self._ranks.parents(self._rank),
                number=number,
                num_elements=rules.num_elements,
            )
            parent.open(rules)
            self._sessions[number] = Relay(rules, reply, parent, is_first=0 in self._children)
        elif rules.algorithm == "sync":
            self._sessions[number] = Synchronous(rules, reply, num_workers=len(self._children))
        else:
            self._sessions[number] = Stale(rules, reply, answers=self._ranks.num_masters > 0)
        self._left[number] = set()

    def _leave(self, worker: int, number: int) -> None:
        """With the last worker the session ends; some may leave before others have come."""
        self._left[number].add(worker)
        if len(self._left[number]) == len(self._children):
            self._sessions[number].end()
            del self._left[number], self._sessions[number]

    def _reply(self, number: int, workers: Collection[int], values: Floats, step: int) -> None:
        """Send a copy: the session's next update must not change what is on its way."""
        message = Message.of(Kind.VALUES, number, step=step, body=values)
        for worker in workers:
            self._transport.send(message, worker)


def rules_of(message: Message) -> Rules:
    """What an OPEN says. Raises RefusedError for what it cannot say, and for a shard beyond this machine's memory."""
    try:
        rules = Rules.model_validate_json(message.text)
    except (ValidationError, UnicodeDecodeError):
        raise RefusedError("what opens a trainer are no rules of one") from None
    num_bytes, room = BYTES_PER_ELEMENT * rules.num_elements, psutil.virtual_memory().total
    if num_bytes > room:
        raise RefusedError(f"a shard of {num_bytes} bytes; this machine has {room}")
    return rules


def leave(transport: Transport, servers: Collection[int]) -> None:
    """Tell these servers that this rank is gone for good."""
    for server in servers:
        transport.send(Message.of(Kind.CLOSE), server)
    transport.flush(servers)
