"""Where ranks of several nodes wait for each other: in shared memory on each node, over TCP between them.

Ranks lie in blocks, so the first rank of each block speaks for its node, and all of them with that of the first
node. When all nodes have told it that they are here it tells all to start, so nodes start apart by about the time
that a message takes. Each node has a clock of its own: the first node asks every other for the time, and takes the
answer that came back soonest as read half-way. Starts are told on its clock, with half of that time as uncertainty.

A place to meet is written into a folder that all nodes see. Whoever connects must know the token that is in it.
"""

from __future__ import annotations

import fcntl
import hmac
import json
import os
import secrets
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from .lockstep import Lockstep, Times

SIOCGIFADDR = 0x8915
LOOPBACK = "127."
MEETING_FILE = "meeting.json"
POLL_SECONDS = 0.02
CONNECT_SECONDS = 2.0  # for an address that may not be reachable
NUM_PINGS = 100
TOKEN_BYTES = 32  # as hexadecimal digits
DOUBLE = struct.Struct("d")


class NodesLockstep:
    """A start line over `size` ranks, `ranks_per_node` on each node. `path` and `folder` as in `Lockstep` and above."""

    barrier = "shared memory on a node, TCP between nodes"

    def __init__(
        self,
        path: str,
        folder: Path,
        rank: int,
        size: int,
        *,
        ranks_per_node: int,
        yields: bool,
        limit: float,
    ) -> None:
        self.rank, self.size = rank, size
        self._node, local_rank = divmod(rank, ranks_per_node)
        deadline = time.monotonic() + limit
        num_nodes = -(-size // ranks_per_node)
        local_size = min(ranks_per_node, size - self._node * ranks_per_node)
        own = f"{path}-{self._node}"
        if local_rank == 0:
            os.close(os.open(own, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        _wait_for(
            Path(own),
            deadline,
            f"the flags of node {self._node}: ranks do not lie {ranks_per_node} to a node",
        )
        self._local = Lockstep(own, local_rank, local_size, yields=yields)
        self._first = local_rank == 0
        self._others: list[socket.socket] = []  # of the first node: those of all others, in order
        self._up: socket.socket | None = None  # of other nodes: that of the first
        self._offsets = [0.0] * num_nodes  # of each node's clock to the first one's, in seconds
        if self._first and self._node == 0:
            self._others = _meet(folder / MEETING_FILE, num_nodes, deadline)
        elif self._first:
            self._up = _join(folder / MEETING_FILE, self._node, deadline)
        self.wait()

    def wait(self) -> None:
        """All ranks are here."""
        self._local.wait()
        if self._first:
            self._over_nodes(0.0)
        self._local.wait()

    def _over_nodes(self, value: float) -> float:
        """The largest of the nodes' values, on the first rank of each."""
        if self._up:
            self._up.sendall(DOUBLE.pack(value))
            return _number(self._up)
        largest = max([value, *map(_number, self._others)])
        for other in self._others:
            other.sendall(DOUBLE.pack(largest))
        return largest

    def slowest(self, seconds: float) -> float:
        """The largest of all ranks' values, on all of them."""
        largest = self._local.slowest(seconds)
        if self._first:
            self._local.times[0, 0, 0] = self._over_nodes(largest)
        self._local.wait()
        largest = float(self._local.times[0, 0, 0])
        self._local.wait()
        return largest

    def compare_clocks(self) -> float:
        """Seconds that a message takes from the first node to the second and back; all clocks are compared."""
        self.wait()
        best = 0.0
        for node, other in enumerate(self._others, start=1):
            trips = [_ping(other) for _ in range(NUM_PINGS)]
            shortest, self._offsets[node] = min(trips)
            best = best or shortest
        for _ in range(NUM_PINGS if self._up else 0):
            _answer(self._up)
        self.wait()
        return best

    def gather(self, starts: list[float], seconds: list[float]) -> tuple[Times, Times] | None:
        """Starts and seconds, [rank][call], on the clock of rank 0, and on rank 0 only."""
        mine = self._local.gather(starts, seconds)
        if mine is None:
            return None
        if self._up:
            self._up.sendall(np.stack(mine).tobytes())
            return None
        parts, count = [np.stack(mine)], len(starts)
        for node, other in enumerate(self._others, start=1):
            local_size = min(self._local.size, self.size - node * self._local.size)
            part = (
                np.frombuffer(_exactly(other, 16 * local_size * count)).reshape(2, local_size, count).copy()
            )
            part[0] -= self._offsets[node]
            parts.append(part)
        whole = np.concatenate(parts, axis=1)
        return whole[0], whole[1]


def _ping(other: socket.socket) -> tuple[float, float]:
    """Seconds of a round trip, and by how much the other clock is ahead."""
    begin = time.perf_counter()
    other.sendall(DOUBLE.pack(0.0))
    theirs = _number(other)
    end = time.perf_counter()
    return end - begin, theirs - (begin + end) / 2


def _answer(first: socket.socket | None) -> None:
    if first:
        _number(first)
        first.sendall(DOUBLE.pack(time.perf_counter()))


def _number(connection: socket.socket) -> float:
    return float(DOUBLE.unpack(_exactly(connection, DOUBLE.size))[0])


def _exactly(connection: socket.socket, num_bytes: int) -> bytes:
    data = bytearray()
    while len(data) < num_bytes:
        more = connection.recv(num_bytes - len(data))
        if not more:
            raise ConnectionError("another node has ended")
        data += more
    return bytes(data)


def _meet(path: Path, num_nodes: int, deadline: float) -> list[socket.socket]:
    """Connections to all other nodes, on the first."""
    token = secrets.token_hex(TOKEN_BYTES // 2)
    found: dict[int, socket.socket] = {}
    with socket.socket() as listener:
        listener.bind(("0.0.0.0", 0))  # noqa: S104 - whoever does not know the token is sent away
        listener.listen(num_nodes)
        place = {"addresses": list(_addresses()), "port": listener.getsockname()[1], "token": token}
        unfinished = path.with_suffix(".part")
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(place, file)
        os.rename(unfinished, path)
        while len(found) < num_nodes - 1:
            listener.settimeout(max(0.1, deadline - time.monotonic()))
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                missing = sorted(set(range(1, num_nodes)) - set(found))
                raise TimeoutError(f"nodes {missing} did not connect to the first one") from None
            if (node := _admitted(connection, token)) in range(1, num_nodes):
                found[node] = connection
            else:
                connection.close()
    return [_ready(found[node]) for node in sorted(found)]


def _admitted(connection: socket.socket, token: str) -> int:
    """The number of the node that connected; -1 if it does not know the token."""
    connection.settimeout(CONNECT_SECONDS)
    try:
        said = _exactly(connection, TOKEN_BYTES)
        known = hmac.compare_digest(said, token.encode())
        return int(_number(connection)) if known else -1
    except (OSError, ValueError):
        return -1


def _join(path: Path, node: int, deadline: float) -> socket.socket:
    """A connection to the first node, on any other."""
    _wait_for(path, deadline, f"{path.name} of the first node; do all nodes see {path.parent}?")
    place = json.loads(path.read_text(encoding="ascii"))
    reasons = []
    for address in place["addresses"]:
        try:
            connection = socket.create_connection((address, place["port"]), timeout=CONNECT_SECONDS)
        except OSError as error:
            reasons.append(f"{address}: {error}")
            continue
        connection.sendall(place["token"].encode() + DOUBLE.pack(node))
        return _ready(connection)
    raise ConnectionError(f"node {node} reaches the first one at no address ({'; '.join(reasons)})")


def _ready(connection: socket.socket) -> socket.socket:
    connection.settimeout(None)  # the rank's alarm ends what hangs
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _addresses() -> Iterator[str]:
    """This node's IPv4 addresses that others may reach."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()))
            except OSError:
                continue  # it has none
            address = socket.inet_ntoa(answer[20:24])
            if not address.startswith(LOOPBACK):
                yield address


def _wait_for(path: Path, deadline: float, what: str) -> None:
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {what}")
        time.sleep(POLL_SECONDS)
