"""What ranks tell the supervisor: one private file per rank, one JSON object per line, one line per event.

Lines reach the file before the next window begins, so a rank that dies leaves all its finished windows behind.
Ranks never wait for a spool: they only append, and the supervisor reads when the launch has ended. Imports nothing
heavy: the worker opens its spool before anything can start a thread.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class MeasuredWindow:
    """One rank's stamps of one window, on its own monotonic clock.

    `num_applied` is of a window of fixed time: local batches of all ranks that the weights took up in it.
    """

    phase: Literal["warmup", "steady"]
    num_steps: int
    start: float
    seconds: float
    step_seconds: list[float] | None = None
    num_applied: int | None = None


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

    def window(self, case: int, window: MeasuredWindow, **more: Any) -> None:
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
