"""Which rank of a launch died first, seen from outside.

A launcher ends all ranks as soon as one is gone, and then blames the one whose exit status it happens to read
first, which on a busy machine is often a survivor. The kernel knows better: epoll hands out the ends of
processes in the order in which they came, however late it is asked.
"""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class End:
    """A rank's process ended, for whatever reason; `time` is when that was noticed, seconds since the epoch."""

    rank: int
    time: float


@contextmanager
def descriptor_of(pid: int) -> Iterator[int]:
    """A descriptor that is readable once that process has ended."""
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class EndWatch:
    """The ends of a launch's processes on this machine, in their order.

    Ranks on other machines are not seen, nor those that end within one `look` of their first word.
    """

    def __init__(self, folder: Path) -> None:
        """`folder` is the launch's spool, which each of its processes has on its command line."""
        self._folder = folder
        self._epoll = select.epoll()
        self._ranks: dict[int, int] = {}  # by descriptor of the process
        self._known: set[Path] = set()
        self._ends: list[End] = []

    def __enter__(self) -> EndWatch:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._ranks:
            os.close(descriptor)
        self._epoll.close()

    def look(self) -> list[End]:
        """Watch the ranks that have said their process id since the last look; all ends so far, the first one first."""
        for rank, pid in self._new():
            with suppress(ProcessLookupError):
                descriptor = os.pidfd_open(pid)
                self._ranks[descriptor] = rank
                # Asked after the descriptor is there: the id can no longer go to another process.
                if self._is_ours(pid):
                    self._epoll.register(descriptor, select.EPOLLIN | select.EPOLLONESHOT)
        if self._ranks:
            seen = self._epoll.poll(0, len(self._ranks))
            self._ends += [End(self._ranks[descriptor], time.time()) for descriptor, _ in seen]
        return self._ends

    def _new(self) -> Iterator[tuple[int, int]]:
        for path in self._folder.glob("rank-*.jsonl"):
            if path in self._known:
                continue
            with path.open(encoding="utf-8") as file:
                line = file.readline()
            if line.endswith("\n"):
                self._known.add(path)
                event = json.loads(line)
                if event["event"] == "hello":
                    yield event["rank"], event["pid"]

    def _is_ours(self, pid: int) -> bool:
        """False for a process of another machine whose number is also one of ours, and for one that has ended."""
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return os.fsencode(self._folder) in words
