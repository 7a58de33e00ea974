"""Where the ranks of a job find each other: which address to listen on, and a port that is free."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
from pathlib import Path
from typing import Any

from dlscale.base.errors import UsageError
from dlscale.collectives.capabilities import ROWS

LOOPBACK = "127.0.0.1"


def machine() -> str:
    """A text that is equal for processes that share a kernel and its network interfaces."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    network = os.readlink("/proc/self/ns/net")
    return hashlib.sha256(f"{boot} {network}".encode()).hexdigest()


def refuse_open_ports(control: Any, *, backend: str, allowed: bool) -> bool:
    """Apply `refuse_machines` to the ranks of `control`, an mpi4py communicator; collective."""
    one_machine = len(set(control.allgather(machine()))) == 1
    return refuse_machines(one_machine, backend=backend, allowed=allowed)


def refuse_machines(one_machine: bool, *, backend: str, allowed: bool) -> bool:
    """`one_machine`. Raises UsageError where it is false, unless `allowed`.

    For backends with unauthenticated sockets.
    """
    if not one_machine and not allowed:
        closed = [row.name for row in ROWS if row.exchanges and not row.open_ports]
        raise UsageError(
            f"backend {backend} was asked for across machines, where its unauthenticated sockets are open to anyone "
            f"on the network; use {' or '.join(closed)} there, or allow_open_ports on a network of your own"
        )
    return one_machine


def own_address(*, one_machine: bool) -> str:
    """The one address that this host's ranks are reached at. Raises UsageError if the host's name has none."""
    if one_machine:
        return LOOPBACK
    name = socket.gethostname()
    try:
        entries = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError as error:
        raise UsageError(
            f"this host's name {name!r} has no address ({error.strerror}); add it to /etc/hosts or the name service"
        ) from None
    reachable = [str(entry[4][0]) for entry in entries if not str(entry[4][0]).startswith("127.")]
    if not reachable:
        raise UsageError(
            f"this host's name {name!r} means {entries[0][4][0]}, which other hosts cannot reach; give it the address "
            "of its network in /etc/hosts or the name service"
        )
    return reachable[0]


def hold_port() -> socket.socket:
    """A socket that holds a port on all interfaces; nobody can connect to it. Close it right before the port is used.

    TensorFlow's servers bind all interfaces: a port that is free on loopback may be the near end of somebody's
    connection to another machine, and then they do not start.
    """
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    held.bind(("0.0.0.0", 0))  # noqa: S104 - it never listens
    return held


def free_port() -> int:
    """A port that nobody uses on any interface; somebody else may take it before it is used."""
    with contextlib.closing(hold_port()) as held:
        return port_of(held)


def port_of(held: socket.socket) -> int:
    """The number of a held port."""
    return int(held.getsockname()[1])


def check_free(address: str, port: int, *, backend: str) -> None:
    """Returns if nobody listens on the port. Raises UsageError."""
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what others left in TIME_WAIT is free
        try:
            probe.bind((address, port))
        except OSError as error:
            raise UsageError(
                f"backend {backend} was asked for port {port} on {address}, which cannot be had "
                f"({error.strerror}); give another `port`, or 0 for any that is free"
            ) from None
