"""How workers find the servers: what every rank tells the others over MPI, and on which interface servers listen."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dlscale.collectives.job import Job
from dlscale.models.errors import UsageError

LOOPBACK = "127.0.0.1"
ERROR = "error: "
MAX_ERROR_CHARACTERS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """Where the servers listen, in order, and the token that every call of this job carries."""

    addresses: tuple[str, ...]
    token: str


def meet(job: Job, listen: Callable[[str, str], int] | None = None) -> Meeting:
    """Tell all ranks where the servers are; collective over all ranks of `job`.

    Servers give `listen`, which listens at a host, for calls with a token, and returns the port. What goes wrong on
    any server is a UsageError on all ranks.
    """
    one_machine = len(set(job.tell(machine()))) == 1
    token = next(text for text in job.tell(secrets.token_hex(32) if _is_first_server(job) else "") if text)
    texts = job.tell(_listen(listen, token, one_machine=one_machine) if listen else "")
    told = texts[job.num_workers :]
    for text in told:
        if text.startswith(ERROR):
            raise UsageError(text.removeprefix(ERROR))
    return Meeting(addresses=tuple(json.loads(text)["address"] for text in told), token=token)


def machine() -> str:
    """The same on two ranks exactly if they share a kernel and its network interfaces."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    network = os.readlink("/proc/self/ns/net")
    return hashlib.sha256(f"{boot} {network}".encode()).hexdigest()


def own_host(*, one_machine: bool) -> str:
    """The one address that a server of this job listens on: never all of them. Raises UsageError."""
    if one_machine:
        return LOOPBACK
    name = socket.gethostname()
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise UsageError(
            f"backend grpc_ps: this host's name {name} has no address ({error}); add it to /etc/hosts or DNS"
        ) from None
    reachable = [str(entry[4][0]) for entry in found if not str(entry[4][0]).startswith(("127.", "::1"))]
    if not reachable:
        raise UsageError(
            f"backend grpc_ps: this host's name {name} means {found[0][4][0]}, which other hosts cannot reach; "
            "give it the address of its network in /etc/hosts or DNS"
        )
    return reachable[0]


def join_host(host: str, port: int) -> str:
    """`host:port`, with brackets around an address of IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_first_server(job: Job) -> bool:
    return job.is_server and job.index == 0


def _listen(listen: Callable[[str, str], int], token: str, *, one_machine: bool) -> str:
    try:
        host = own_host(one_machine=one_machine)
        return json.dumps({"address": join_host(host, listen(host, token))})
    except (UsageError, OSError, RuntimeError) as error:
        return ERROR + " ".join(str(error).split())[:MAX_ERROR_CHARACTERS]
