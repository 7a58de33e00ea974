"""The servers of torch's workers: each holds a shard of every trainer's weights, and updates it."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock, Thread

import torch

from dlscale.base.errors import UsageError
from dlscale.collectives.grpc_ps._grpc import COUNT, KEPT, Listener, LostError
from dlscale.collectives.grpc_ps._torch_session import ServedSession
from dlscale.collectives.grpc_ps.meeting import meet
from dlscale.collectives.grpc_ps.messages import (
    BYTES_PER_ELEMENT,
    Hello,
    RefusedError,
    pack_counts,
    read_hello,
)
from dlscale.collectives.grpc_ps.options import Options
from dlscale.collectives.job import ServerSplit

MAX_SESSIONS = 8  # open at the same time
MAX_PORT = 65535


def serve(*, options: Options, job: ServerSplit) -> None:
    """Serve until worker 0 says that all have closed; collective with the workers' `connect`.

    Never blocks inside MPI. Raises UsageError where no server can listen, as workers do then.
    """
    torch.set_num_threads(1)  # threads of OpenMP would spin on the workers' cores
    servers: list[Server] = []

    def listen(host: str, token: str) -> int:
        port = options.port + job.index if options.port else 0
        if port > MAX_PORT:
            raise UsageError(
                f"backend grpc_ps: server {job.index} would listen on port {port}; give a smaller `port`"
            )
        server = Server(token=token, num_workers=job.num_workers, chunk_bytes=options.chunk_kib << 10)
        bound_port = server.start(host, port)
        servers.append(server)
        return bound_port

    try:
        meet(job, listen)
        while job.next_order().get("do") != "close":
            pass
    finally:
        for server in servers:
            server.stop()


class Server:
    """Serves sessions of `num_workers` workers each, in threads of its own."""

    def __init__(self, *, token: str, num_workers: int, chunk_bytes: int) -> None:
        self._num_workers = num_workers
        self._chunk_elements = chunk_bytes // BYTES_PER_ELEMENT
        self._sessions: dict[int, ServedSession] = {}
        self._ended: set[int] = set()  # their numbers are not used again
        self._lock = Lock()
        self._listener = Listener(
            token=token,
            train=self._train,
            answers={COUNT: self._count, KEPT: self._kept},
            chunk_bytes=chunk_bytes,
            num_threads=MAX_SESSIONS * num_workers + 2,  # a stream holds one as long as it lasts
        )

    def start(self, host: str, port: int = 0) -> int:
        """Listen; returns the port. Raises UsageError if it is taken."""
        return self._listener.start(host, port)

    def stop(self) -> None:
        """End all sessions."""
        self._listener.stop()

    def num_sessions(self) -> int:
        with self._lock:
            return len(self._sessions)

    def _train(self, requests: Iterator[bytes]) -> Iterator[bytes]:
        raw = next(requests, b"")
        hello = read_hello(raw, num_workers=self._num_workers, chunk_elements=self._chunk_elements)
        served = self._session_of(hello)
        try:
            outbox = served.join(hello.worker)
        except RefusedError as error:
            self._fail(served, str(error))
            raise
        Thread(target=self._receive, args=(served, hello.worker, requests), daemon=True).start()
        try:
            while message := outbox.get():
                yield message
        finally:
            self._free_if_ended(served)
        if served.failure:
            raise LostError(served.failure)

    def _receive(self, served: ServedSession, worker: int, requests: Iterator[bytes]) -> None:
        """Takes what a worker sends until it takes leave; whatever else ends its stream ends the session."""
        try:
            while (raw := _next(requests)) is not None:
                if not served.take(worker, raw):
                    return
        except RefusedError as error:
            self._fail(served, str(error))
        except Exception as error:
            self._fail(served, f"the server failed: {type(error).__name__}: {error}")
            raise
        self._fail(served, f"worker {worker} went away")

    def _session_of(self, hello: Hello) -> ServedSession:
        """The session that the worker means; the first to come opens it."""
        number = hello.session.number
        with self._lock:
            served = self._sessions.get(number)
            if served is None:
                if number in self._ended:
                    raise RefusedError("this trainer has ended: another worker failed or closed it")
                if len(self._sessions) >= MAX_SESSIONS:
                    raise RefusedError(f"there are {MAX_SESSIONS} trainers open; close one")
                served = self._sessions[number] = ServedSession(hello.session)
        if served.session != hello.session:
            text = f"worker {hello.worker} trains other weights, or in another way, than the worker that came first"
            self._fail(served, text)
            raise RefusedError(text)
        return served

    def _fail(self, served: ServedSession, text: str) -> None:
        """End a session, of which there may be no stream that would free it: none joined, or all were cancelled."""
        served.fail(text)
        self._free_if_ended(served)

    def _free_if_ended(self, served: ServedSession) -> None:
        number = served.session.number
        with self._lock:
            if served.has_ended() and self._sessions.get(number) is served:
                del self._sessions[number]
                self._ended.add(number)

    def _count(self, request: bytes) -> Iterator[bytes]:
        served = self._open_session(request)
        yield pack_counts(served.num_applied(), served.staleness())

    def _kept(self, request: bytes) -> Iterator[bytes]:
        return self._open_session(request).kept()

    def _open_session(self, request: bytes) -> ServedSession:
        with self._lock:
            served = self._sessions.get(int.from_bytes(request, "little"))
        if served is None:
            raise RefusedError("there is no such trainer")
        return served


def _next(requests: Iterator[bytes]) -> bytes | None:
    """The next message; None when there is none to come. Of a call that was cancelled grpc raises a bare Exception."""
    try:
        return next(requests, None)
    except Exception:
        return None
