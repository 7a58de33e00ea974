"""The one exception for mistakes that a user can correct."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable

LONGEST = 4000  # characters of a message; what somebody else wrote may be in it
_LINE_BREAKS = re.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")


class UsageError(Exception):
    """A user's mistake in one line: what was asked, what was found, what to do.

    The command line prints the text without a traceback and exits with 1.
    """

    # No __init__: TensorFlow raises what a function of the user's raised anew, of the same type, only without one.
    def __str__(self) -> str:
        line = _LINE_BREAKS.sub(" ", super().__str__())
        return line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."


# What other tools call it -> what it is here: names, of which those that are known count, or an option.
_ELSEWHERE = {
    **dict.fromkeys(("tf", "keras"), ("tensorflow",)),
    "pytorch": ("torch",),
    **dict.fromkeys(("ddp", "distributeddataparallel"), ("gloo", "nccl")),
    **dict.fromkeys(("fsdp", "fsdp2", "zero3", "zero-3"), ("--shard parameters",)),
    **dict.fromkeys(("zero", "zero1", "zero-1"), ("--shard optimizer",)),
    **dict.fromkeys(("allreduce", "all_reduce", "all-reduce"), ("collectives", "ring", "mpi")),
    "ps": ("grpc_ps", "mpi_ps"),
}


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` (did you mean weak-scaling?)`; empty where no known name is near."""
    choices = list(known)
    meant = [word for word in _ELSEWHERE.get(name.lower(), ()) if word in choices or word.startswith("--")]
    nearest = meant or difflib.get_close_matches(name.lower(), choices, n=1)
    return f" (did you mean {' or '.join(nearest)}?)" if nearest else ""


def unknown(kind: str, name: str, known: Collection[str], *, where: str = "") -> str:
    """`no study 'weakscaling' (did you mean weak-scaling?); choose one of: ...`, the name followed by `where`."""
    place = f" {where}" if where else ""
    return f"no {kind} {name!r}{place}{did_you_mean(name, known)}; choose one of: {', '.join(known)}"
