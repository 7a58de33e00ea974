"""Both ends of gRPC: the servers' listener, and the workers' channel per server with a stream per trainer on it.

It knows bytes only. The listener says who may call, and what a call that is not accepted ends with.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any

import grpc  # type: ignore[import-untyped]

from dlscale.base.errors import UsageError
from dlscale.collectives.grpc_ps.meeting import join_host
from dlscale.collectives.grpc_ps.messages import HEADER, MAX_HELLO_BYTES, RefusedError, pack_bye

TRAIN = "/dlscale.ParameterServer/Train"  # a stream per trainer
COUNT = "/dlscale.ParameterServer/Count"  # num_applied of a session
KEPT = "/dlscale.ParameterServer/Kept"  # all that the optimizers of a session keep
TOKEN = "dlscale-token"  # the metadata's key  # noqa: S105

ChannelOptions = list[tuple[str, int | str]]


def channel_options(chunk_bytes: int) -> ChannelOptions:
    """Options of clients and servers alike. No message is larger than a chunk, so none can fill a peer's memory."""
    return [
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", max(chunk_bytes, MAX_HELLO_BYTES) + HEADER.size),
        ("grpc.optimization_target", "throughput"),
        ("grpc.http2.max_frame_size", (1 << 24) - 1),  # 16 KiB unless told
        ("grpc.http2.write_buffer_size", 1 << 22),
    ]


def server_options(chunk_bytes: int) -> ChannelOptions:
    """Two servers must not share a port without knowing."""
    return [*channel_options(chunk_bytes), ("grpc.so_reuseport", 0)]


def client_options(chunk_bytes: int) -> ChannelOptions:
    """Workers speak with servers, not with a site's proxy."""
    return [*channel_options(chunk_bytes), ("grpc.enable_http_proxy", 0)]


GRACE_SECONDS = 5.0

Train = Callable[[Iterator[bytes]], Iterator[bytes]]
Answer = Callable[[bytes], Iterator[bytes]]


class LostError(Exception):
    """A session cannot go on, through no fault of this caller; its call ends with this text."""


class Listener:
    """A gRPC server for the calls that carry the token: `train` is for streams, `answers` for questions."""

    def __init__(
        self, *, token: str, train: Train, answers: Mapping[str, Answer], chunk_bytes: int, num_threads: int
    ) -> None:
        self._server = grpc.server(
            ThreadPoolExecutor(max_workers=num_threads, thread_name_prefix="grpc_ps"),
            options=server_options(chunk_bytes),
        )
        self._server.add_generic_rpc_handlers((_Handler(token, train, answers),))

    def start(self, host: str, port: int) -> int:
        """Listen at exactly this address; returns the port. Raises UsageError if it is taken."""
        try:
            bound: int = self._server.add_insecure_port(join_host(host, port))
        except RuntimeError:
            bound = 0
        if not bound:
            raise UsageError(
                f"backend grpc_ps: port {port} on {host} is in use; give another `port`, or 0 for any that is free"
            )
        self._server.start()
        return bound

    def stop(self) -> None:
        """Let calls that are ending end; cancel the others."""
        self._server.stop(GRACE_SECONDS).wait()


class _Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, token: str, train: Train, answers: Mapping[str, Answer]) -> None:
        self._token = token.encode()
        self._train, self._answers = train, answers

    def service(self, details: Any) -> Any:
        given = dict(details.invocation_metadata).get(TOKEN, "")
        raw = given if isinstance(given, bytes) else given.encode()
        allowed = hmac.compare_digest(raw, self._token)
        if details.method == TRAIN:
            return grpc.stream_stream_rpc_method_handler(self._stream if allowed else _denied)
        if answer := self._answers.get(details.method):
            return grpc.unary_stream_rpc_method_handler(partial(_answered, answer) if allowed else _denied)
        return None

    def _stream(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        try:
            yield from self._train(requests)
        except RefusedError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except LostError as error:
            context.abort(grpc.StatusCode.ABORTED, str(error))


def _answered(answer: Answer, request: bytes, context: Any) -> Iterator[bytes]:
    try:
        yield from answer(request)
    except RefusedError as error:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))


def _denied(_request: Any, context: Any) -> Any:
    context.abort(grpc.StatusCode.UNAUTHENTICATED, "this call does not carry the job's token")


CLOSE_SECONDS = 10.0

Build = Callable[[], bytes]


class Channel:
    """A connection to the server of that index, which all trainers of a backend share."""

    def __init__(self, index: int, address: str, *, token: str, chunk_bytes: int) -> None:
        self.index, self.address = index, address
        self._metadata = ((TOKEN, token),)
        kind = "ipv6" if address.startswith("[") else "ipv4"
        self._channel = grpc.insecure_channel(f"{kind}:{address}", options=client_options(chunk_bytes))

    def train(self, requests: Iterator[bytes]) -> Any:
        """The call that streams."""
        return self._channel.stream_stream(TRAIN)(requests, metadata=self._metadata)

    def ask(self, method: str, request: bytes) -> Iterator[bytes]:
        """What the server answers, a message after the other. Raises the error of `explain`."""
        try:
            yield from self._channel.unary_stream(method)(request, metadata=self._metadata)
        except grpc.RpcError as error:
            raise self.explain(error) from None

    def explain(self, error: Any = None) -> Exception:
        """The meaning of a call's error, in one line that names the server."""
        where = f"grpc_ps: server {self.index} at {self.address}"
        if error is None:
            return RuntimeError(f"{where} closed the stream")
        code, details = error.code(), " ".join(str(error.details()).split())
        if code == grpc.StatusCode.UNAUTHENTICATED:
            return UsageError(
                f"{where} denies access: {details}; connect with the token of the servers' launch"
            )
        if code == grpc.StatusCode.UNAVAILABLE:
            return RuntimeError(f"{where} went away: {details}")
        if code in (grpc.StatusCode.ABORTED, grpc.StatusCode.INVALID_ARGUMENT):
            return RuntimeError(f"{where} ended the session: {details}")
        return RuntimeError(f"{where} failed with {code.name}: {details}")

    def close(self) -> None:
        self._channel.close()


class Stream:
    """A worker's stream of messages to one server and back.

    Messages are built when they can travel, by the thread that sends them. `take` is called with every message that
    comes, and `fail` once if the stream ends before `close`, both by the thread that receives.
    """

    def __init__(
        self, channel: Channel, *, take: Callable[[bytes], None], fail: Callable[[Exception], None]
    ) -> None:
        self._channel, self._take, self._fail = channel, take, fail
        self._outbox: SimpleQueue[Build | None] = SimpleQueue()
        self._closing = False
        self._call = channel.train(self._requests())
        self._receiver = Thread(target=self._receive, name=f"grpc_ps from {channel.address}", daemon=True)
        self._receiver.start()

    def send(self, build: Build) -> None:
        """Send what `build` returns, after what was sent before; returns at once."""
        self._outbox.put(build)

    def close(self) -> None:
        """Take leave of the server; what it does not answer in time is cancelled."""
        self._closing = True
        self._outbox.put(None)
        self._receiver.join(CLOSE_SECONDS)
        self._call.cancel()

    def _requests(self) -> Iterator[bytes]:
        while build := self._outbox.get():
            yield build()
        yield pack_bye()

    def _receive(self) -> None:
        try:
            for raw in self._call:
                self._take(raw)
            error = self._channel.explain()
        except grpc.RpcError as broken:
            error = self._channel.explain(broken)
        except Exception as wrong:  # whatever ends this thread must reach the one that waits for it
            error = wrong
        if not self._closing:
            self._outbox.put(None)
            self._fail(error)
        self._call.cancel()
