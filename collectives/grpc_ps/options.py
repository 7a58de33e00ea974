"""The user's options of parameter servers."""

from __future__ import annotations

from dataclasses import dataclass

from dlscale.base.errors import UsageError
from dlscale.collectives.option_kinds import CheckedOptions, at_least, one_of

PLACEMENTS = ("size", "round_robin")


def refuse_compiled(compiled: bool) -> None:
    """Returns unless TensorFlow's networks are compiled. Raises UsageError."""
    if compiled:
        raise UsageError(
            "backend grpc_ps keeps TensorFlow's variables on other hosts, where XLA cannot read them; "
            "leave compiled out"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(CheckedOptions):
    """`asynchronous`: a worker's gradients are applied as they come, and no worker waits for another.

    `placement` (TensorFlow): variables go to the server with the fewest bytes so far, or round robin; torch's weights
    are cut into pieces of equal size. `chunk_kib` (torch): bytes of a message. `port`: of server 0, the others take
    the next ones; 0 means any that is free. `allow_open_ports` (TensorFlow): use TensorFlow's servers, which listen
    unauthenticated on all interfaces, between machines too.
    """

    owner = "backend grpc_ps"

    asynchronous: bool = False
    placement: str = one_of(PLACEMENTS, "size")
    chunk_kib: int = at_least(1, 1024, most=65536)
    port: int = at_least(0, 0, most=65535)
    allow_open_ports: bool = False
