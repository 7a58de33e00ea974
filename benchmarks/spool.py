"""What ranks tell the supervisor: one private file per rank, one JSON object per line, one line per event.

Lines reach the file before the next window begins, so a rank that dies leaves all its finished windows behind.
Nobody waits for a spool: ranks only append, and the supervisor reads when the launch has ended.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the worker needs the spool before anything heavy
    from dlscale.benchmarks.measure import Measured

Event = dict[str, Any]

ORDERS_FILE = "orders.json"


class SpoolWriter:
    """Appends one rank's events."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.folder = folder
        # Mode 0600: what a job does is its user's business.
        descriptor = os.open(folder / f"rank-{rank:05d}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._file = os.fdopen(descriptor, "w", encoding="utf-8")

    def write(self, event: str, **values: Any) -> None:
        """One event; values must be JSON's."""
        self._file.write(json.dumps({"event": event, **values}) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Nothing more to tell."""
        self._file.close()

    def window(self, case: int, window: Measured, **more: Any) -> None:
        """A finished window of the launch's case number `case`, and what else is known of it."""
        self.write("window", case=case, **asdict(window), **more)


@dataclass(slots=True)
class RankSpool:
    """One rank's events, sorted by what they are about."""

    rank: int
    hello: Event = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    def of(self, event: str, case: int | None = None) -> list[Event]:
        """The events of that kind, of that case where one is given."""
        return [e for e in self.events if e["event"] == event and (case is None or e.get("case") == case)]

    def seconds(self, phase: str, case: int | None = None) -> float | None:
        """How long that phase took; None if it was not reached."""
        found = [e for e in self.of("phase", case) if e["name"] == phase]
        return float(found[-1]["seconds"]) if found else None


def read_spools(folder: Path, num_ranks: int) -> list[RankSpool]:
    """The spools of all ranks, in order; empty ones for ranks that never wrote.

    A last line without its end (its writer died in it) is left out.
    """
    spools = []
    for rank in range(num_ranks):
        spool = RankSpool(rank)
        path = folder / f"rank-{rank:05d}.jsonl"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        for line in text.split("\n")[:-1]:
            event = json.loads(line)
            if event["event"] == "hello":
                spool.hello = event
            spool.events.append(event)
        spools.append(spool)
    return spools


class Silence:
    """How long nobody has written, on a clock that does not jump when somebody sets the time."""

    def __init__(self) -> None:
        self._news = 0.0
        self._since = time.monotonic()

    def seconds(self, news: float) -> float:
        """Since `news` (`last_news`) was last another one than at the call before."""
        if news != self._news:
            self._news, self._since = news, time.monotonic()
        return time.monotonic() - self._since


def last_news(folder: Path) -> float:
    """When any rank last wrote, seconds since the epoch; 0 if none has."""
    return max((path.stat().st_mtime for path in folder.glob("rank-*.jsonl")), default=0.0)
