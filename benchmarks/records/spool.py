"""Events that the ranks of a launch report to its supervisor: one private file per rank, one JSON object per line.

An event is a part of the record that it goes into, or one of the types here. A line is written before the next window
begins, so a rank that dies keeps all its finished windows. Ranks only append and never wait for a spool.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import NonNegativeFloat, ValidationError

from dlscale.base.definitions import Frozen, first_problem, where_given
from dlscale.base.files import APPENDED, open_regular, read_regular
from dlscale.base.strings import Text
from dlscale.benchmarks.records.cell import Setting
from dlscale.benchmarks.records.record import (
    Checkpoint,
    Ended,
    EnergyReading,
    Evaluation,
    Gate,
    GpuMemory,
    NodeSettings,
    Outcome,
    RankPlace,
    Resumption,
    StateBytes,
)
from dlscale.benchmarks.records.windows import Count, CountFromZero, Seconds, Start
from dlscale.benchmarks.systems.limits import cpu_quota

SPEC_FILE = "launch.json"  # `rank.spec.LaunchSpec`

# The last two belong to a case: networks, weights and trainer of a training with a target, and its audits.
PhaseName = Literal["start_up", "import_backend", "connect", "gates", "set_up", "audits"]


class RankInfo(RankPlace):
    """Identity and placement of a rank; its first event."""

    pid: Count


class Phase(Frozen):
    """Duration of one phase outside of the windows."""

    name: PhaseName
    seconds: Seconds


class MeasuredWindow(Frozen):
    """A window on one rank, stamped by its own monotonic clock (`windows.Windows`)."""

    phase: Literal["warmup", "steady"]
    num_steps: CountFromZero  # of this rank: in a window of fixed time it may have taken none
    start: Start
    seconds: Seconds
    step_seconds: list[Seconds] | None = where_given(None)
    num_applied: CountFromZero | None = where_given(None)
    bucket_seconds: list[Seconds] | None = where_given(None)
    foreign_cpu: float | None = where_given(None)


class CaseResult(Outcome):
    """A rank's results of a case without its windows; a list of the record has those of all ranks."""

    settings: dict[Text, Setting] = {}
    skipped_samples: CountFromZero | None = where_given(None)
    gather_seconds: Seconds | None = where_given(None)
    halo_seconds: Seconds | None = where_given(None)
    halo_bytes: NonNegativeFloat | None = where_given(None)
    halo_calls: list[Text] | None = where_given(None)


class CaseEnd(Frozen):
    """The case finished on this rank."""

    peak_rss_bytes: CountFromZero  # over the launch so far
    load: NonNegativeFloat | None
    num_throttled: CountFromZero = where_given(0)  # by its control group, since that was made


class RankError(Frozen):
    """The exception that ended the rank."""

    time: float  # seconds since the epoch
    message: Text
    traceback: Text


class Abort(Frozen):
    """The rank aborts the launch; later deaths are consequences."""

    time: float  # seconds since the epoch


class RankEnd(Frozen):
    """The rank finished with that exit status."""

    status: int


Event = Frozen  # of one of these types
TYPES: dict[str, type[Event]] = {
    kind.__name__: kind
    for kind in (
        *(RankInfo, NodeSettings, Phase, Gate, MeasuredWindow, Checkpoint, Resumption, Evaluation, Ended),
        *(EnergyReading, GpuMemory, StateBytes, CaseResult, CaseEnd, RankError, Abort, RankEnd),
    )
}
# How a line begins; cut off or with a wrong number behind, it still says which case it is of.
_HEAD = re.compile(rb'\{"event": "([A-Za-z]+)"(?:, "case": (\d{1,9}))?(?:, (?=")|(?=\}))')


def boot_id() -> str:
    """A hash that is equal for processes on the same booted machine."""
    text = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def node_facts(*, top: Path = Path("/")) -> NodeSettings:
    """The facts of this node, without root or waiting for a device. `top` is the folder of /proc and /sys."""
    governors = set()
    for path in (top / "sys/devices/system/cpu").glob("cpufreq/policy*/scaling_governor"):
        with suppress(OSError):
            governors.add(path.read_text(errors="replace").strip())
    return NodeSettings(
        num_cpus=os.cpu_count() or 1,
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        cpu_governor=", ".join(sorted(governors)) or None,
        load_before=os.getloadavg()[0],
        throttled_before=cpu_quota(top)[1],
    )


class SpoolWriter:
    """Appends one rank's events."""

    def __init__(self, folder: Path, rank: int) -> None:
        path = folder / f"rank-{rank:05d}.jsonl"
        self._file = os.fdopen(open_regular(path, APPENDED), "a", encoding="utf-8")

    def write(self, event: Event, *, case: int | None = None) -> None:
        """Append an event; `case` is the number of the launch's case that it belongs to, if any."""
        place: dict[str, Any] = {"event": type(event).__name__} | ({} if case is None else {"case": case})
        self._file.write(json.dumps(place | event.model_dump(mode="json")) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


E = TypeVar("E", bound=Event)


@dataclass(slots=True)
class RankSpool:
    """One rank's events in the order of writing, each with the number of its case, None if it is of the launch.

    `damage` is what cannot be read, in one line each, likewise with the case that has lost it; None: any may have.
    """

    rank: int
    events: list[tuple[int | None, Event]] = field(default_factory=list)
    damage: list[tuple[int | None, str]] = field(default_factory=list)

    @property
    def info(self) -> RankInfo | None:
        """The rank's identity, its first event; None if it never connected to MPI."""
        return self.first(RankInfo)

    def of(self, kind: type[E], case: int | None = None) -> list[E]:
        """The events of one kind: all, or those of the launch and of that case."""
        return [
            event
            for place, event in self.events
            if isinstance(event, kind) and (case is None or place in (None, case))
        ]

    def first(self, kind: type[E], case: int | None = None) -> E | None:
        """The first event of that kind, None if there is none."""
        return next(iter(self.of(kind, case)), None)


def read_spools(folder: Path, num_ranks: int) -> list[RankSpool]:
    """The spools of all ranks, in order; empty for ranks that never wrote.

    A truncated last line, whose writer was killed, is left out. Any other line that is not an event of this version
    is damage, and so is a file that cannot be read.
    """
    spools = [RankSpool(rank) for rank in range(num_ranks)]
    for spool in spools:
        name = f"rank-{spool.rank:05d}.jsonl"
        try:
            lines = read_regular(folder / name).split(b"\n")[:-1]
        except FileNotFoundError:
            continue
        except OSError as error:
            spool.damage.append((None, f"{name}: {error.strerror}"))
            continue
        for number, line in enumerate(lines, start=1):
            head = _HEAD.match(line)
            case = int(head[2]) if head and head[2] else None
            kind = head[1].decode() if head else ""
            try:
                if head is None or kind not in TYPES:
                    raise ValueError(
                        f"unknown event {kind[:40]!r}" if head else "it does not begin as an event"
                    )
                event = TYPES[kind].model_validate_json(b"{" + line[head.end() :], strict=True)
                spool.events.append((case, event))
            except ValidationError as error:
                spool.damage.append((case, f"{name}, line {number}: event {kind}, {first_problem(error)}"))
            except ValueError as error:
                spool.damage.append((case, f"{name}, line {number}: {error}"))
    return spools
