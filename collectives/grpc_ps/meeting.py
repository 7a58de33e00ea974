"""How workers find the servers: what every rank tells the others over MPI, and where servers listen."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from dlscale.base.errors import UsageError
from dlscale.collectives.addresses import machine, own_address
from dlscale.collectives.job import ServerSplit

ERROR = "error: "
MAX_ERROR_CHARACTERS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """The servers' addresses, in order, and the token that every call of this job carries."""

    addresses: tuple[str, ...]
    token: str


def meet(job: ServerSplit, listen: Callable[[str, str], int] | None = None) -> Meeting:
    """Exchange the servers' addresses among all ranks; collective over all ranks of `job`.

    Servers give `listen`, which listens at a host, for calls with a token, and returns the port. An error on any
    server is a UsageError on all ranks.
    """
    one_machine = len(set(job.tell(machine()))) == 1
    token = next(text for text in job.tell(secrets.token_hex(32) if _is_first_server(job) else "") if text)
    texts = job.tell(_listen(listen, token, one_machine=one_machine) if listen else "")
    of_servers = texts[job.num_workers :]
    for text in of_servers:
        if text.startswith(ERROR):
            raise UsageError(text.removeprefix(ERROR))
    return Meeting(addresses=tuple(json.loads(text)["address"] for text in of_servers), token=token)


def join_host(host: str, port: int) -> str:
    """`host:port`, with brackets around an address of IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_first_server(job: ServerSplit) -> bool:
    return job.is_server and job.index == 0


def _listen(listen: Callable[[str, str], int], token: str, *, one_machine: bool) -> str:
    try:
        host = own_address(one_machine=one_machine)
        return json.dumps({"address": join_host(host, listen(host, token))})
    except (UsageError, OSError, RuntimeError) as error:
        return ERROR + " ".join(str(error).split())[:MAX_ERROR_CHARACTERS]
