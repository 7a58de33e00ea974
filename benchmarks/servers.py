"""How many servers a launch has: a count, or a ratio to its workers."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from dlscale.models.errors import UsageError

_SPEC = re.compile(r"(?P<servers>\d+)(/(?P<workers>\d+))?")


def check_servers(specs: Sequence[str]) -> list[str]:
    """The specs, if each is a count (`2`) or a ratio of servers to workers (`1/2`). Raises ValueError."""
    for spec in specs:
        found = _SPEC.fullmatch(spec)
        if not found or not int(found["servers"]) or found["workers"] == "0":
            raise ValueError(
                f"{spec!r} is no number of servers; give a count such as 2, or a ratio such as 1/2"
            )
    if not specs:
        raise ValueError("no number of servers; give a count such as 2, or a ratio such as 1/2")
    return list(specs)


def num_servers(spec: str, num_ranks: int) -> int:
    """How many servers `spec` means for so many workers; a ratio is rounded up."""
    servers, _, workers = spec.partition("/")
    return math.ceil(num_ranks * int(servers) / int(workers)) if workers else int(servers)


def counts(specs: Sequence[str], ranks: Sequence[int]) -> tuple[dict[int, list[int]], list[str]]:
    """({workers: numbers of servers}, a warning for each number that is left out because it exceeds its workers).

    Raises UsageError where nothing would be left.
    """
    found: dict[int, list[int]] = {}
    left_out = []
    for num_ranks in ranks:
        wanted = sorted({num_servers(spec, num_ranks) for spec in specs})
        found[num_ranks] = [number for number in wanted if number <= num_ranks]
        left_out += [
            f"{number} servers for {num_ranks} worker{'s' * (num_ranks > 1)}: more servers than workers, left out"
            for number in wanted
            if number > num_ranks
        ]
    if not any(found.values()):
        raise UsageError(
            f"--servers {','.join(specs)} with ranks {','.join(map(str, ranks))}: more servers than workers "
            "everywhere; give at most as many servers as ranks"
        )
    return found, left_out
