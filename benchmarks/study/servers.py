"""Parameter servers of a study: their numbers, as asked for or as a ratio to workers, and what they can train."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from dlscale.base.errors import UsageError
from dlscale.benchmarks.study.target import TargetRules
from dlscale.models.workload import Workload

_SERVERS = re.compile(r"(?P<servers>\d+)(/(?P<workers>\d+))?")


def check_servers(specs: Sequence[str]) -> list[str]:
    """Returns the specs if each is a number (`2`) or a ratio of servers to workers (`1/2`). Raises ValueError."""
    for spec in specs:
        match = _SERVERS.fullmatch(spec)
        if not match or not int(match["servers"]) or match["workers"] == "0":
            raise ValueError(
                f"{spec!r} is not a number of servers; give a number such as 2, or a ratio such as 1/2"
            )
    if not specs:
        raise ValueError("the list of servers is empty; give a number such as 2, or a ratio such as 1/2")
    return list(specs)


def num_servers(spec: str, num_ranks: int) -> int:
    """The number of servers that `spec` means for `num_ranks` workers; a ratio is rounded up."""
    servers, _, workers = spec.partition("/")
    return math.ceil(num_ranks * int(servers) / int(workers)) if workers else int(servers)


def server_counts(specs: Sequence[str], ranks: Sequence[int]) -> tuple[dict[int, list[int]], list[str]]:
    """({workers: numbers of servers}, a warning for each number left out because it exceeds the workers).

    Raises UsageError if none is left.
    """
    counts: dict[int, list[int]] = {}
    left_out = []
    for num_ranks in ranks:
        wanted = sorted({num_servers(spec, num_ranks) for spec in specs})
        counts[num_ranks] = [number for number in wanted if number <= num_ranks]
        left_out += [
            f"{number} servers for {num_ranks} worker{'s' * (num_ranks > 1)}: more servers than workers, left out"
            for number in wanted
            if number > num_ranks
        ]
    if not any(counts.values()):
        raise UsageError(
            f"servers={','.join(specs)} with ranks {','.join(map(str, ranks))}: more servers than workers "
            "everywhere; give at most as many servers as ranks"
        )
    return counts, left_out


def check_served(rules: TargetRules, workload: Workload, backend: str) -> None:
    """Raises UsageError for a training to a target that the backend's servers cannot make."""
    if workload.running_statistics:
        raise UsageError(
            f"{workload.name} over {backend}: servers do not have what batch norm keeps, so that nobody can evaluate "
            f"the network; leave out {backend}"
        )
    for option, asked in (
        ("target.warm_up_samples", rules.warm_up_samples),
        ("target.decay_samples", rules.decay_samples),
    ):
        if asked:
            raise UsageError(
                f"{option} over {backend}: its servers make the updates, with one learning rate for good; "
                f"leave it out, or leave out {backend}"
            )
