"""A server rank: takes workers' messages, in the order in which they come, until all workers have left."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from dlscale.collectives.mpi_ps.hierarchy import Ranks, RelaySession
from dlscale.collectives.mpi_ps.links import ServerLinks
from dlscale.collectives.mpi_ps.messages import Floats, Kind, LostRankError, Mailbox, Message, Patience
from dlscale.collectives.mpi_ps.sessions import (
    DownpourSession,
    ElasticSession,
    Reply,
    ServedSession,
    SynchronousSession,
)


class Server:
    """All sessions of the server with that rank. Its workers may be masters (`hierarchy`)."""

    def __init__(self, mailbox: Mailbox, ranks: Ranks, *, rank: int) -> None:
        self._mailbox, self._ranks, self._rank = mailbox, ranks, rank
        self._num_workers = len(ranks.children(rank))
        self._sessions: dict[int, ServedSession] = {}
        self._left: dict[int, set[int]] = {}  # of each session, the workers that have left it
        self._inboxes: dict[int, Message] = {}  # of each session, for what has the size of its shard
        self._present = ranks.children(rank)
        self._outgoing: list[tuple[Any, Message, int]] = []  # what is being sent, and to which worker
        self._spare: dict[int, list[Message]] = {}  # messages to send from, by number of elements

    def serve(self) -> None:
        """Return when all workers have left; a master then leaves the super-master."""
        patience, inbox = Patience(), None
        while self._present:
            found = self._next(inbox)
            self._free_sent()
            if found is None:
                patience.wait()
                continue
            patience = Patience()
            worker, message = found
            self._take(worker, message)
            inbox = self._inboxes.get(message.session)
        while self._outgoing:
            self._free_sent()
            patience.wait()
        if self._ranks.is_master(self._rank):
            leave(self._mailbox, self._ranks.parents(self._rank))

    def _next(self, inbox: Message | None) -> tuple[int, Message] | None:
        """The next message, if there is one; workers whose processes have ended are dropped."""
        for worker in self._present & set(self._mailbox.watch.gone()):
            self._drop(worker)
        try:
            return self._mailbox.poll(inbox)
        except LostRankError:
            return None  # in the middle of its message

    def _drop(self, worker: int) -> None:
        """Train on without a worker. Raises RuntimeError in a session in which others wait for it."""
        pid = self._mailbox.watch.gone()[worker]
        died = f"mpi_ps: {self._ranks.name(worker)} (process {pid}) died"
        self._present.discard(worker)
        self._outgoing = [sending for sending in self._outgoing if sending[2] != worker]
        for number, session in list(self._sessions.items()):
            if worker not in self._left[number]:
                if not session.without(worker):
                    raise RuntimeError(f"{died}, and the others wait for it")
                self._leave(worker, number)
        num_left = len(self._present)
        sys.stderr.write(f"{died} and was dropped; {num_left} go{'es' * (num_left == 1)} on\n")
        sys.stderr.flush()

    def _take(self, worker: int, message: Message) -> None:
        number, kind = message.session, message.kind
        if kind is Kind.CLOSE:
            self._present.discard(worker)
        elif kind is Kind.OPEN:
            self._open(number, json.loads(message.text))
        elif kind is Kind.LOAD:
            self._sessions[number].load(message.values)
        elif kind is Kind.PUSH:
            self._sessions[number].push(worker, message.values, step=message.step, count=message.count)
        elif kind is Kind.FETCH:
            self._sessions[number].fetch(worker)
        elif kind is Kind.LOOK:
            self._sessions[number].look(worker)
        elif kind is Kind.KEPT:
            self._sessions[number].kept(worker)
        elif kind is Kind.REPORT:
            text = json.dumps(self._sessions[number].counts())
            answer = Message.of_text(text).address(Kind.COUNTS, session=number)
            self._outgoing.append((self._mailbox.send(answer, worker), answer, worker))
        elif kind is Kind.END:
            self._leave(worker, number)
        else:
            raise ValueError(f"worker {worker} sent a message of kind {kind.name}, which is a server's")

    def _open(self, number: int, rules: dict[str, Any]) -> None:
        """The first worker to come opens the session."""
        if number in self._sessions:
            return
        self._left[number] = set()
        self._inboxes[number] = Message.of_floats(rules["num_elements"])
        reply = partial(self._reply, number)
        if self._ranks.is_master(self._rank):
            self._sessions[number] = self._relay(number, rules, reply)
            return
        algorithm = rules.pop("algorithm")
        if algorithm == "downpour":
            answers = self._ranks.num_masters > 0
            self._sessions[number] = DownpourSession(**rules, reply=reply, answers=answers)
        elif algorithm == "easgd":
            self._sessions[number] = ElasticSession(**rules, reply=reply)
        else:
            self._sessions[number] = SynchronousSession(**rules, num_workers=self._num_workers, reply=reply)

    def _relay(self, number: int, rules: dict[str, Any], reply: Reply) -> RelaySession:
        parent = ServerLinks(
            self._mailbox, self._ranks, rank=self._rank, number=number, num_elements=rules["num_elements"]
        )
        parent.open(rules, None)
        return RelaySession(
            num_elements=rules["num_elements"],
            reply=reply,
            parent=parent,
            is_first=0 in self._ranks.children(self._rank),
        )

    def _leave(self, worker: int, number: int) -> None:
        """With the last worker the session ends; some may leave before others have come."""
        self._left[number].add(worker)
        if len(self._left[number]) == self._num_workers:
            self._sessions[number].end()
            del self._left[number], self._sessions[number], self._inboxes[number]
            self._spare.clear()

    def _reply(self, number: int, worker: int, values: Floats, step: int) -> None:
        """Send a copy: the session's next update must not change what is on its way."""
        spare = self._spare.setdefault(values.size, [])
        copy = spare.pop() if spare else Message.of_floats(values.size)
        np.copyto(copy.values, values)
        copy.address(Kind.VALUES, session=number, step=step)
        self._outgoing.append((self._mailbox.send(copy, worker), copy, worker))

    def _free_sent(self) -> None:
        """Take back the memory of what has arrived."""
        still = []
        for request, message, worker in self._outgoing:
            try:
                is_moved = self._mailbox.is_moved(request, worker)
            except LostRankError:
                continue  # and dropped before the next message
            if not is_moved:
                still.append((request, message, worker))
            elif message.kind is Kind.VALUES and message.values.size in self._spare:
                self._spare[message.values.size].append(message)
        self._outgoing = still


def leave(mailbox: Mailbox, servers: Sequence[int]) -> None:
    """Tell these servers that this rank is gone for good."""
    for server in servers:
        mailbox.wait(mailbox.send(Message(0).address(Kind.CLOSE, session=-1), server), server)
