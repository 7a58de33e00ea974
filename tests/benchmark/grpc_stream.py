"""How near torch's parameter server comes to a bare gRPC stream, and to plain TCP, between two processes; not a test.

    python tests/benchmark/grpc_stream.py --sizes 25MiB,100MiB --rounds 30 --json pairs.json

In each round every way moves the same bytes there and back over loopback, in an order drawn by lot:

    tcp   a socket, both directions at once
    bare  a gRPC stream of chunks in both directions at once, with the backend's channel options; nothing is computed
    ours  one worker's step without backpropagation: gradients there, SGD on the server, weights back

Printed are medians over rounds, and the ratio of ours to bare with the 95 % t interval of its logarithm over rounds.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc  # type: ignore[import-untyped]
import numpy as np
import torch
from scipy import stats

from dlscale.base.quantities import format_size, parse_sizes
from dlscale.collectives.grpc_ps import _grpc
from dlscale.collectives.grpc_ps._grpc import Channel
from dlscale.collectives.grpc_ps._torch_server import Server
from dlscale.collectives.grpc_ps._torch_worker import served
from dlscale.collectives.grpc_ps.options import Options

HOST, TOKEN, METHOD = "127.0.0.1", "benchmark", "/benchmark/Stream"
Way = Callable[[], object]


def main() -> None:
    arguments = read_arguments()
    torch.set_num_threads(1)
    found = []
    for size in parse_sizes(arguments.sizes):
        chunk = arguments.chunk_kib << 10
        size -= size % chunk
        peers = {name: Peer(serve, size, chunk) for name, serve in SERVE.items()}
        ways = {name: WAYS[name](peer.port, size, chunk) for name, peer in peers.items()}
        seconds = measure(ways, num_rounds=arguments.rounds)
        report(size, chunk, seconds)
        found.append({"bytes": size, "chunk_bytes": chunk, "seconds": seconds})
        for peer in peers.values():
            peer.stop()
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sizes", default="25MiB,100MiB")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--chunk-kib", type=int, default=Options().chunk_kib)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def measure(ways: dict[str, Way], *, num_rounds: int) -> dict[str, list[float]]:
    """Seconds per way and round; two rounds before them are not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    lot = random.Random(7)  # noqa: S311
    for number in range(num_rounds + 2):
        for name in lot.sample(list(ways), len(ways)):
            begin = time.perf_counter()
            ways[name]()
            if number >= 2:
                seconds[name].append(time.perf_counter() - begin)
    return seconds


def report(size: int, chunk: int, seconds: dict[str, list[float]]) -> None:
    print(f"{format_size(size)} there and back in chunks of {format_size(chunk)}:")
    for name, times in seconds.items():
        median = float(np.median(times))
        print(
            f"  {name:5} {median * 1e3:8.2f} ms  {2 * size / median / 1e9:6.3f} GB/s, both directions together"
        )
    for other in ("bare", "tcp"):
        logs = np.log(seconds[other]) - np.log(seconds["ours"])
        half = stats.t.ppf(0.975, len(logs) - 1) * np.std(logs, ddof=1) / math.sqrt(len(logs))
        low, middle, high = np.exp([logs.mean() - half, logs.mean(), logs.mean() + half])
        print(f"  ours / {other}: {middle:.3f} [{low:.3f}, {high:.3f}], {len(logs)} pairs", flush=True)


class Peer:
    """A process of its own that serves one way."""

    def __init__(self, serve: Callable[..., None], size: int, chunk: int) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, size, chunk), daemon=True)
        self._process.start()
        self.port: int = ours.recv()

    def stop(self) -> None:
        self._process.kill()
        self._process.join()


def serve_tcp(pipe: Any, size: int, chunk: int) -> None:
    with socket.create_server((HOST, 0)) as listening:
        pipe.send(listening.getsockname()[1])
        connection, _ = listening.accept()
        exchange = over_tcp(connection, size, chunk)
        while True:
            exchange()


def tcp(port: int, size: int, chunk: int) -> Way:
    return over_tcp(socket.create_connection((HOST, port)), size, chunk)


def over_tcp(connection: socket.socket, size: int, chunk: int) -> Way:
    """Send `size` bytes while as many are received; the server's part is the same."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    data, buffer = bytes(chunk), bytearray(chunk)
    pool = ThreadPoolExecutor(1)

    def send() -> None:
        for _ in range(size // chunk):
            connection.sendall(data)

    def exchange() -> None:
        sending = pool.submit(send)
        left = size
        while left:
            received = connection.recv_into(buffer, min(chunk, left))
            if not received:
                raise SystemExit
            left -= received
        sending.result()

    return exchange


class BareHandler(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Sends `num_chunks` whenever a round begins, the last when it has received as many."""

    def __init__(self, num_chunks: int, chunk: int) -> None:
        self._num_chunks, self._data = num_chunks, bytes(chunk)

    def service(self, _details: Any) -> Any:
        return grpc.stream_stream_rpc_method_handler(self._stream)

    def _stream(self, requests: Iterator[bytes], _context: Any) -> Iterator[bytes]:
        begun, received = threading.Semaphore(0), threading.Semaphore(0)

        def receive() -> None:
            for number, _ in enumerate(requests):
                if number % self._num_chunks == 0:
                    begun.release()
                if (number + 1) % self._num_chunks == 0:
                    received.release()

        threading.Thread(target=receive, daemon=True).start()
        while True:
            begun.acquire()
            for _ in range(self._num_chunks - 1):
                yield self._data
            received.acquire()
            yield self._data


def serve_bare(pipe: Any, size: int, chunk: int) -> None:
    server = grpc.server(ThreadPoolExecutor(2), options=_grpc.server_options(chunk))
    server.add_generic_rpc_handlers((BareHandler(size // chunk, chunk),))
    pipe.send(server.add_insecure_port(f"{HOST}:0"))
    server.start()
    server.wait_for_termination()


def bare(port: int, size: int, chunk: int) -> Way:
    channel = grpc.insecure_channel(f"{HOST}:{port}", options=_grpc.client_options(chunk))
    begun, data, num_chunks = threading.Semaphore(0), bytes(chunk), size // chunk

    def requests() -> Iterator[bytes]:
        while True:
            begun.acquire()
            for _ in range(num_chunks):
                yield data

    call = channel.stream_stream(METHOD)(requests())

    def exchange() -> None:
        begun.release()
        for _ in range(num_chunks):
            next(call)

    return exchange


def serve_ours(pipe: Any, size: int, chunk: int) -> None:
    torch.set_num_threads(1)
    server = Server(token=TOKEN, num_workers=1, chunk_bytes=chunk)
    pipe.send(server.start(HOST))
    threading.Event().wait()


def ours(port: int, size: int, chunk: int) -> Way:
    """The worker's own exchange, of a replica that is one tensor."""
    parameter = torch.nn.Parameter(torch.zeros(size // 4))
    gradient = torch.full_like(parameter, 1e-3)
    objective = SimpleNamespace(
        loss=torch.nn.Module(), parameters=(parameter,), optimizer=torch.optim.SGD([parameter], lr=1.0)
    )
    channel = Channel(0, f"{HOST}:{port}", token=TOKEN, chunk_bytes=chunk)
    options = Options(chunk_kib=chunk >> 10)
    replica = SimpleNamespace(objectives=(objective,))
    (exchange,) = served(replica, [channel], worker=0, num_workers=1, options=options, number=0).exchanges

    def step() -> None:
        exchange.begin()
        parameter.grad = gradient
        exchange.flush()
        exchange.finish()

    return step


SERVE: dict[str, Callable[..., None]] = {"tcp": serve_tcp, "bare": serve_bare, "ours": serve_ours}
WAYS: dict[str, Callable[[int, int, int], Way]] = {"tcp": tcp, "bare": bare, "ours": ours}

if __name__ == "__main__":
    main()
