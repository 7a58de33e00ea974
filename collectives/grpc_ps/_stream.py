"""The workers' end of gRPC: a channel per server, and a stream per trainer on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Thread
from typing import Any

import grpc  # type: ignore[import-untyped]

from dlscale.collectives.grpc_ps.messages import pack_bye
from dlscale.collectives.grpc_ps.wire import COUNT, TOKEN, TRAIN, client_options
from dlscale.models.errors import UsageError

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

    def count(self, request: bytes) -> bytes:
        """One message there and one back. Raises what `explain` says."""
        try:
            found: bytes = self._channel.unary_unary(COUNT)(request, metadata=self._metadata)
        except grpc.RpcError as error:
            raise self.explain(error) from None
        return found

    def explain(self, error: Any = None) -> Exception:
        """What an error of a call means, in one line that names the server."""
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
        """Cancel what is under way."""
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
