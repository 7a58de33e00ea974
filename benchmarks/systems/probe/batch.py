"""What every scheduler tells in its own words: queues, their nodes and limits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from dlscale.benchmarks.systems.system import Launcher, Scheduler


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeKind:
    """Nodes that are alike. None and 0: the scheduler does not say, or there are none."""

    cores: int
    threads_per_core: int | None = None
    sockets: int | None = None
    memory_gib: float | None = None
    num_gpus: int = 0
    gpu_model: str | None = None
    reserved_cores: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A partition or queue. `kinds` are those of its nodes, the most frequent first; None: no limit, or not told."""

    name: str
    num_nodes: int | None
    max_nodes: int | None = None
    max_seconds: int | None = None
    default_seconds: int | None = None
    kinds: tuple[NodeKind, ...] = ()
    directives: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A scheduler that answered. `told_by` are the commands that were asked."""

    scheduler: Scheduler
    launcher: Launcher
    told_by: str
    queues: tuple[Queue, ...]
    default: str | None = None
    cluster: str | None = None
    variables: tuple[tuple[str, str], ...] = ()  # that jobs of this machine have, by which it is recognised
    launch_options: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def queue(self) -> Queue:
        """The default queue; the largest one if the scheduler names none."""
        named = [queue for queue in self.queues if queue.name == self.default]
        return named[0] if named else max(self.queues, key=lambda queue: queue.num_nodes or 0)


def by_frequency(kinds: Iterable[NodeKind]) -> tuple[NodeKind, ...]:
    """Each kind once, the most frequent first."""
    return tuple(kind for kind, _ in Counter(kinds).most_common())


def parse_clock(text: str) -> int | None:
    """Seconds of [days-]hours:minutes:seconds; None for UNLIMITED, NONE and whatever else it may be."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)", text.strip())
    if not found:
        return None
    days, hours, minutes, seconds = (int(word or 0) for word in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds or None


def duration(seconds: int) -> str:
    """Seconds as a quantity, in hours or minutes if that is a whole number."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
