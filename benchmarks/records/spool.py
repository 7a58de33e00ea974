"""Events that the ranks of a launch report to its supervisor: one private file per rank, one JSON object per line.

An event is a part of the record that it goes into, or one of the types here. A line is written before the next window
begins, so a rank that dies keeps all its finished windows. Ranks only append and never wait for a spool.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AllowInfNan, NonNegativeFloat, NonNegativeInt, PositiveInt, ValidationError

from dlscale.base.definitions import Frozen, first_problem, where_given
from dlscale.base.files import APPENDED, open_regular, read_regular
from dlscale.base.strings import Text
from dlscale.benchmarks.records.cell import Setting
from dlscale.benchmarks.records.nodes import EnergyReading, NodeSettings
from dlscale.benchmarks.records.record import (
    Checkpoint,
    Gate,
    GpuMemory,
    HostMemory,
    Outcome,
    RankPlace,
    Resumption,
    StateBytes,
)
from dlscale.benchmarks.records.target import Ended, Evaluation
from dlscale.benchmarks.records.windows import Count, CountFromZero, Seconds, Start

SPEC_FILE = "launch.json"  # `rank.spec.LaunchSpec`

# The last two belong to a case: networks, weights and trainer of a training with a target, and its audits.
PhaseName = Literal["start_up", "import_backend", "connect", "gates", "set_up", "audits"]


class RankInfo(RankPlace):
    """Identity and placement of a rank; its first event."""

    pid: PositiveInt


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
    num_samples: Count | None = where_given(None)


class Halos(Frozen):
    """What a rank exchanged with those of the same samples, per step, while windows ran.

    `calls` are those of one step in order, with the bytes that this rank gave: `exchange <up> <down>`, `sum <all>`,
    `gather <own>`. The seconds include waiting for the others.
    """

    seconds: Seconds
    num_bytes: NonNegativeFloat
    calls: list[Text]


class CaseResult(Outcome):
    """A rank's results of a case without its windows."""

    settings: dict[Text, Setting]
    loss: Annotated[float, AllowInfNan(True)] | None = where_given(None)
    skipped: NonNegativeInt | None = where_given(None)  # samples that could not be read
    gather_seconds: Seconds | None = where_given(None)  # per step, of gathers of sharded weights
    halos: Halos | None = where_given(None)
    # Where updates take the first gradients to come: local batches, and gradients that came too late for all servers.
    computed: NonNegativeInt | None = where_given(None)
    dropped: NonNegativeInt | None = where_given(None)


class CaseEnd(HostMemory):
    """The case finished on this rank."""

    load: NonNegativeFloat | None
    num_throttled: NonNegativeInt = where_given(0)  # by its control group, since that was made


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


def format_event(event: Event, *, case: int | None = None) -> str:
    """The event as a line of JSON: its name, the number of its case if any, and its fields."""
    place: dict[str, Any] = {"event": type(event).__name__} | ({} if case is None else {"case": case})
    return json.dumps(place | event.model_dump(mode="json")) + "\n"


def parse_event(line: bytes) -> tuple[int | None, Event]:
    """(number of the case or None, event) from a line.

    Raises ValueError if it is not a known event with its fields, each of its type.
    """
    head = _HEAD.match(line)
    if not head:
        raise ValueError("it does not begin as an event")
    if (name := head[1].decode()) not in TYPES:
        raise ValueError(f"unknown event {name[:40]!r}")
    try:
        event = TYPES[name].model_validate_json(b"{" + line[head.end() :], strict=True)
    except ValidationError as error:
        raise ValueError(f"event {name}, {first_problem(error)}") from None
    return _named_case(line), event


def _named_case(line: bytes) -> int | None:
    head = _HEAD.match(line)
    return int(head[2]) if head and head[2] else None


class SpoolWriter:
    """Appends one rank's events."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.folder = folder
        self._file = os.fdopen(open_regular(_spool_path(folder, rank), APPENDED), "a", encoding="utf-8")

    def write(self, event: Event, *, case: int | None = None) -> None:
        """Append an event; `case` is the number of the launch's case that it belongs to, if any."""
        self._file.write(format_event(event, case=case))
        self._file.flush()

    def close(self) -> None:
        self._file.close()


@dataclass(frozen=True, slots=True)
class Damage:
    """A line of a spool that is no event, or a file that cannot be read; `problem` begins with the file's name.

    The line is of one of the cases `first` to `last`: of that which it names, else from that of the event before it to
    that of the event after it. None: there is none, as at the ends of a spool, where events are of the whole launch.
    """

    problem: str
    first: int | None = None
    last: int | None = None

    def may_be_of(self, case: int) -> bool:
        """Whether something of that case may be missing; what is of the launch is missing in every case."""
        return self.first is None or (self.first <= case and (self.last is None or case <= self.last))


E = TypeVar("E", bound=Event)


@dataclass(slots=True)
class RankSpool:
    """One rank's events in the order of writing, each with the number of its case, and what else is in its file."""

    rank: int
    events: list[tuple[int | None, Event]] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)

    @property
    def info(self) -> RankInfo | None:
        """The rank's identity; None if it never connected to MPI."""
        return self.first(RankInfo)

    def of(self, kind: type[E], case: int | None = None) -> list[E]:
        """The events of one kind, for one case or for all."""
        return [event for place, event in self.events if isinstance(event, kind) and case in (None, place)]

    def first(self, kind: type[E], case: int | None = None) -> E | None:
        """The first event of that kind, None if there is none."""
        return next(iter(self.of(kind, case)), None)

    def shared(self, kind: type[E], case: int) -> list[E]:
        """The events of one kind of the launch and of that case."""
        return [event for place, event in self.events if isinstance(event, kind) and place in (None, case)]

    def seconds(self, phase: str, case: int) -> float | None:
        """Duration of that phase of the launch or of the case; None if it was not reached."""
        return next((event.seconds for event in self.shared(Phase, case) if event.name == phase), None)


def read_spools(folder: Path, num_ranks: int) -> list[RankSpool]:
    """The spools of all ranks, in order; empty for ranks that never wrote.

    A truncated last line, whose writer was killed, is left out. Any other line that is not an event of this version
    is damage to the case that it is of (`Damage`), and so is a file that cannot be read.
    """
    return [_read_spool(_spool_path(folder, rank), rank) for rank in range(num_ranks)]


def _read_spool(path: Path, rank: int) -> RankSpool:
    spool = RankSpool(rank)
    try:
        lines = read_regular(path).split(b"\n")[:-1]
    except FileNotFoundError:
        return spool
    except OSError as error:
        spool.damage.append(Damage(f"{path.name}: {error.strerror}"))
        return spool
    before: int | None = None
    bad: list[
        tuple[str, int | None]
    ] = []  # since the last event: what is wrong, and the case that the line names

    def note_bad(after: int | None) -> None:
        for problem, named in bad:
            between = named is not None and (before or 0) <= named and (after is None or named <= after)
            spool.damage.append(Damage(problem, *((named, named) if between else (before, after))))
        bad.clear()

    for number, line in enumerate(lines, start=1):
        try:
            case, event = parse_event(line)
        except ValueError as error:
            bad.append((f"{path.name}, line {number}: {error}", _named_case(line)))
        else:
            note_bad(case)
            spool.events.append((case, event))
            before = case
    note_bad(None)
    return spool


def _spool_path(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank:05d}.jsonl"
