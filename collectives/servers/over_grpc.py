"""Messages over gRPC: each worker has a stream to each server, which listens on one address of its host.

A call must carry the launch's token, which ranks tell each other over MPI. Messages travel in pieces of at most
PIECE_BYTES, so that none can fill a peer's memory: what does not have the size that is due is refused before there is
room for it. The connection of a process that has ended breaks.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread, Timer
from typing import Any

import grpc  # type: ignore[import-untyped]
import numpy as np

from dlscale.base.errors import UsageError
from dlscale.collectives.addresses import machine, own_address
from dlscale.collectives.job import ServerSplit, agree
from dlscale.collectives.servers.messages import (
    BYTES_PER_ELEMENT,
    HEADER_BYTES,
    Kind,
    LostPeerError,
    Message,
    Ranks,
    RefusedError,
)
from dlscale.collectives.servers.server import rules_of

METHOD = "/dlscale.ParameterServer/Talk"
TOKEN, RANK = "dlscale-token", "dlscale-rank"  # the metadata's keys

PIECE_BYTES = 1 << 20
MAX_TEXT_BYTES = 1 << 20  # of a body in JSON
MOST_KEPT = 3  # arrays of a shard in one answer: weights and two moments
MAX_PORT = 65535
MOMENT_SECONDS = 0.05
GRACE_SECONDS = 5.0

OPTIONS: list[tuple[str, int | str]] = [
    ("grpc.max_receive_message_length", PIECE_BYTES),
    ("grpc.optimization_target", "throughput"),
    ("grpc.http2.max_frame_size", (1 << 24) - 1),  # 16 KiB unless told
    ("grpc.http2.write_buffer_size", 1 << 22),
    ("grpc.so_reuseport", 0),  # two servers must not share a port without knowing
    ("grpc.enable_http_proxy", 0),  # workers speak with servers, not with a site's proxy
]

Outbox = SimpleQueue[Message | str]
"""What a peer is still to get; a text ends its stream, as an error if it is not empty."""


class Sizes:
    """Which bodies may come: those of the sessions that were opened."""

    def __init__(self) -> None:
        self._num_bytes: dict[int, int] = {}  # of a session's shard

    def note(self, message: Message) -> None:
        """Raises RefusedError for an OPEN that opens nothing."""
        if message.kind is Kind.OPEN:
            self._num_bytes[message.session] = BYTES_PER_ELEMENT * rules_of(message).num_elements

    def check(self, header: Message) -> None:
        """Raises RefusedError for a header whose body is not due."""
        shard, found = self._num_bytes.get(header.session, 0), header.num_bytes
        due = {Kind.LOAD: [shard], Kind.PUSH: [shard]}
        due[Kind.VALUES] = [shard * count for count in range(1, MOST_KEPT + 1)]
        if found not in due.get(header.kind, range(MAX_TEXT_BYTES + 1)):
            raise RefusedError(f"{header.kind.name} came with {found} bytes for a shard of {shard}")

    def read(self, pieces: Iterator[bytes]) -> Message | None:
        """The next message; None if there is none. Raises RefusedError for what may not come."""
        piece = next(pieces, None)
        if piece is None:
            return None
        if len(piece) < HEADER_BYTES or not 0 <= np.frombuffer(piece, np.int64, 1)[0] < len(Kind):
            raise RefusedError(f"a message begins with {len(piece)} bytes that are no header")
        header = Message(np.frombuffer(piece, np.uint8, HEADER_BYTES))
        self.check(header)
        memory, end = np.empty(HEADER_BYTES + header.num_bytes, np.uint8), 0
        while True:
            if piece is None or end + len(piece) > memory.size:
                raise RefusedError(f"{header.kind.name} has not the {header.num_bytes} bytes that it says")
            memory[end : end + len(piece)] = np.frombuffer(piece, np.uint8)
            end += len(piece)
            if end == memory.size:
                break
            piece = next(pieces, None)
        message = Message(memory)
        self.note(message)
        return message


def _pieces(message: Message) -> Iterator[bytes]:
    for start in range(0, message.memory.size, PIECE_BYTES):
        yield message.memory[start : start + PIECE_BYTES].tobytes()


class ServerOverGrpc:
    """A server's messages with all workers (`Transport`)."""

    def __init__(self, token: str, ranks: Ranks) -> None:
        self._ranks, self._token, self._sizes = ranks, token.encode(), Sizes()
        self._inbox: SimpleQueue[tuple[int, Message]] = SimpleQueue()
        self._outboxes: dict[int, Outbox] = {}
        self._gone: dict[int, str] = {}
        threads = ThreadPoolExecutor(ranks.num_workers + 2, thread_name_prefix="grpc_ps")
        self._server = grpc.server(threads, options=OPTIONS)
        self._server.add_generic_rpc_handlers((_Handler(self._accept),))

    def listen(self, host: str, port: int) -> int:
        """Listen at exactly this address; returns the port. Raises UsageError if it cannot be had."""
        if port > MAX_PORT:
            raise UsageError(f"backend grpc_ps: a server would listen on port {port}; give a smaller `port`")
        try:
            bound: int = self._server.add_insecure_port(f"{host}:{port}")
        except RuntimeError:
            bound = 0
        if not bound:
            raise UsageError(
                f"backend grpc_ps: port {port} on {host} is in use; give another `port`, or 0 for any that is free"
            )
        self._server.start()
        return bound

    def send(self, message: Message, to: int) -> None:
        self._outboxes[to].put(message)

    def flush(self, ranks: Collection[int]) -> None:
        """Threads send."""

    def receive(self, source: int) -> Message:
        """Servers over gRPC have no servers."""
        raise NotImplementedError

    def next(self) -> tuple[int, Message] | None:
        try:
            return self._inbox.get(timeout=MOMENT_SECONDS)
        except Empty:
            return None

    def gone(self) -> dict[int, str]:
        return self._gone

    def close(self, failure: str = "") -> None:
        for outbox in list(self._outboxes.values()):
            outbox.put(failure)
        self._server.stop(GRACE_SECONDS).wait()

    def _accept(self, metadata: dict[str, str | bytes]) -> Any:
        """What answers a call."""
        given, rank = metadata.get(TOKEN, ""), str(metadata.get(RANK, ""))
        raw = given if isinstance(given, bytes) else given.encode()
        if not hmac.compare_digest(raw, self._token):
            return partial(_denied, why="this call does not carry the launch's token")
        workers = {str(worker): worker for worker in range(self._ranks.num_workers)}
        if rank not in workers or workers[rank] in self._outboxes:
            return partial(_denied, why=f"there is no worker {rank}, or another call is its")
        self._outboxes[workers[rank]] = SimpleQueue()
        return partial(self._talk, workers[rank])

    def _talk(self, worker: int, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        outbox = self._outboxes[worker]
        Thread(target=self._listen_to, args=(worker, requests), daemon=True).start()
        while isinstance(message := outbox.get(), Message):
            yield from _pieces(message)
        if message:
            context.abort(grpc.StatusCode.ABORTED, message)

    def _listen_to(self, worker: int, requests: Iterator[bytes]) -> None:
        """Takes what a worker sends until it takes leave, or its stream ends in another way."""
        why = ""
        try:
            while message := self._sizes.read(requests):
                self._inbox.put((worker, message))
                if message.kind is Kind.CLOSE:
                    break
            else:
                why = "went away"
        except RefusedError as error:
            why = f"is refused: {error}"
        except Exception:  # of a call that was cancelled grpc raises a bare one
            why = "went away"
        if why:
            why = f"grpc_ps: {self._ranks.name(worker)} {why}"
            self._gone[worker] = why
        self._outboxes[worker].put(why)


class _Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, accept: Callable[[dict[str, str | bytes]], Any]) -> None:
        self._accept = accept

    def service(self, details: Any) -> Any:
        if details.method != METHOD:
            return None
        return grpc.stream_stream_rpc_method_handler(self._accept(dict(details.invocation_metadata)))


def _denied(_request: Any, context: Any, *, why: str) -> Any:
    context.abort(grpc.StatusCode.UNAUTHENTICATED, why)


class WorkerOverGrpc:
    """A worker's messages with the servers at these addresses (`Transport`)."""

    def __init__(self, worker: int, ranks: Ranks, addresses: list[str], token: str) -> None:
        self._ranks, servers = ranks, ranks.parents(worker)
        self._sizes = {server: Sizes() for server in servers}
        self._addresses = dict(zip(servers, addresses, strict=True))
        self._channels = {
            server: grpc.insecure_channel(f"ipv4:{address}", options=OPTIONS)
            for server, address in self._addresses.items()
        }
        self._outboxes: dict[int, Outbox] = {server: SimpleQueue() for server in servers}
        metadata = ((TOKEN, token), (RANK, str(worker)))
        self._calls = {
            server: channel.stream_stream(METHOD)(_requests(self._outboxes[server]), metadata=metadata)
            for server, channel in self._channels.items()
        }

    def send(self, message: Message, to: int) -> None:
        self._sizes[to].note(message)
        self._outboxes[to].put(message)

    def flush(self, ranks: Collection[int]) -> None:
        """A thread of gRPC's sends."""

    def receive(self, source: int) -> Message:
        """Raises UsageError where the server denies access."""
        try:
            if message := self._sizes[source].read(self._calls[source]):
                return message
            why = "closed the stream"
        except RefusedError as error:
            why = f"is refused: {error}"
        except grpc.RpcError as error:
            why = _meaning(error)
        where = f"grpc_ps: {self._ranks.name(source)} at {self._addresses[source]} {why}"
        if why.startswith("denies"):
            raise UsageError(where)
        raise LostPeerError(source, where)

    def next(self) -> tuple[int, Message] | None:
        """A worker serves no one."""
        raise NotImplementedError

    def gone(self) -> dict[int, str]:
        return {}

    def close(self, failure: str = "") -> None:  # noqa: ARG002 - servers see the streams end
        for server, call in self._calls.items():
            self._outboxes[server].put("")
            timer = Timer(GRACE_SECONDS, call.cancel)
            timer.start()
            try:
                while self._sizes[server].read(call):
                    pass
            except (grpc.RpcError, RefusedError):
                call.cancel()
            timer.cancel()
            self._channels[server].close()


def _requests(outbox: Outbox) -> Iterator[bytes]:
    while isinstance(message := outbox.get(), Message):
        yield from _pieces(message)


def _meaning(error: Any) -> str:
    code, details = error.code(), " ".join(str(error.details()).split())
    known = {
        grpc.StatusCode.UNAUTHENTICATED: "denies access",
        grpc.StatusCode.UNAVAILABLE: "went away",
        grpc.StatusCode.ABORTED: "ended the training",
    }
    return f"{known.get(code, f'failed with {code.name}')}: {details}"


def connect(job: ServerSplit, ranks: Ranks) -> WorkerOverGrpc:
    """On a worker: find the servers; collective over all ranks of `job`. Raises UsageError if one cannot listen."""
    addresses, token = _meet(job)
    return WorkerOverGrpc(job.index, ranks, addresses, token)


def listen(job: ServerSplit, ranks: Ranks, *, port: int) -> ServerOverGrpc:
    """On a server: likewise. Server 0 listens on that port and the others on the next ones; 0 means any."""
    made: list[ServerOverGrpc] = []

    def begin(host: str, token: str) -> int:
        made.append(ServerOverGrpc(token, ranks))
        return made[0].listen(host, port + job.index if port else 0)

    try:
        _meet(job, begin)
    except UsageError:
        for server in made:
            server.close()
        raise
    return made[0]


def _meet(job: ServerSplit, begin: Callable[[str, str], int] | None = None) -> tuple[list[str], str]:
    """(the servers' addresses, the token); an error on any server is a UsageError on all ranks."""
    one_machine = len(set(job.tell(machine()))) == 1
    token = job.tell(secrets.token_hex(32))[job.num_workers]  # the first server's
    address = problem = ""
    if begin:
        try:
            host = own_address(one_machine=one_machine)
            address = f"{host}:{begin(host, token)}"
        except (UsageError, OSError, RuntimeError) as error:
            problem = str(error) or type(error).__name__
    return agree(job, address, problem)[job.num_workers :], token
