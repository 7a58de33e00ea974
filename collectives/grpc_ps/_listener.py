"""The servers' end of gRPC: who may call, and what a call that is not accepted ends with. It knows bytes only."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc  # type: ignore[import-untyped]

from dlscale.collectives.grpc_ps.addresses import join_host
from dlscale.collectives.grpc_ps.messages import RefusedError
from dlscale.collectives.grpc_ps.wire import COUNT, TOKEN, TRAIN, server_options
from dlscale.models.errors import UsageError

GRACE_SECONDS = 5.0

Train = Callable[[Iterator[bytes]], Iterator[bytes]]
Count = Callable[[bytes], bytes]


class LostError(Exception):
    """A session cannot go on, through no fault of this caller; its call ends with this text."""


class Listener:
    """A gRPC server for the calls that carry the token. `train` answers streams, `count` single messages."""

    def __init__(self, *, token: str, train: Train, count: Count, chunk_bytes: int, num_threads: int) -> None:
        self._server = grpc.server(
            ThreadPoolExecutor(max_workers=num_threads, thread_name_prefix="grpc_ps"),
            options=server_options(chunk_bytes),
        )
        self._server.add_generic_rpc_handlers((_Handler(token, train, count),))

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
    def __init__(self, token: str, train: Train, count: Count) -> None:
        self._token = token.encode()
        self._train, self._count = train, count

    def service(self, details: Any) -> Any:
        given = dict(details.invocation_metadata).get(TOKEN, "")
        raw = given if isinstance(given, bytes) else given.encode()
        allowed = hmac.compare_digest(raw, self._token)
        if details.method == TRAIN:
            return grpc.stream_stream_rpc_method_handler(self._stream if allowed else _denied)
        if details.method == COUNT:
            return grpc.unary_unary_rpc_method_handler(self._unary if allowed else _denied)
        return None

    def _stream(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        try:
            yield from self._train(requests)
        except RefusedError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except LostError as error:
            context.abort(grpc.StatusCode.ABORTED, str(error))

    def _unary(self, request: bytes, context: Any) -> bytes:
        try:
            return self._count(request)
        except RefusedError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            raise


def _denied(_request: Any, context: Any) -> Any:
    context.abort(grpc.StatusCode.UNAUTHENTICATED, "this call does not carry the job's token")
