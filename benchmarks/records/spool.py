"""Events that the ranks of a launch report to its supervisor: one private file per rank, one JSON object per line.

An event is a part of the record that it goes into, or one of the types here, with the bounds that the record has for
its numbers; ranks write them, and `read_spools` returns the same. A line is written before the next window begins, so
a rank that dies keeps all its finished windows.
Ranks never wait for a spool: they only append, and the supervisor reads after the launch has ended.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AllowInfNan,
    ConfigDict,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    TypeAdapter,
    ValidationError,
)
from pydantic.dataclasses import dataclass as checked

from dlscale.base.definitions import first_problem
from dlscale.base.files import APPENDED, open_regular, read_regular
from dlscale.base.parsing import parse_json_object
from dlscale.base.strings import Text
from dlscale.benchmarks.records.cell import Setting
from dlscale.benchmarks.records.nodes import EnergyReading, NodeSettings
from dlscale.benchmarks.records.profile import StepProfile
from dlscale.benchmarks.records.record import Checkpoint, Gate, GpuMemory, RankPlace, Resumption, StateBytes
from dlscale.benchmarks.records.target import Ended, Evaluation
from dlscale.benchmarks.records.windows import Count, CountFromZero, Seconds, Start

SPEC_FILE = "launch.json"  # `rank.spec.LaunchSpec`

# The last one is of a case: networks, weights and trainer of a training with a target.
PhaseName = Literal["start_up", "import_backend", "connect", "gates", "set_up"]

EXACT = ConfigDict(extra="forbid", allow_inf_nan=False)


class RankInfo(RankPlace):
    """Identity and placement of a rank; its first event."""

    pid: PositiveInt


@checked(frozen=True, slots=True, config=EXACT)
class Phase:
    """Duration of one phase before the first window."""

    name: PhaseName
    seconds: Seconds


@checked(frozen=True, slots=True, config=EXACT)
class MeasuredWindow:
    """A window on one rank, stamped by its own monotonic clock (`windows.Window`)."""

    phase: Literal["warmup", "steady"]
    num_steps: CountFromZero  # of this rank: in a window of fixed time it may have taken none
    start: Start
    seconds: Seconds
    step_seconds: list[Seconds] | None = None
    num_applied: CountFromZero | None = None
    bucket_seconds: list[Seconds] | None = None
    foreign_cpu: float | None = None
    num_samples: Count | None = None


@checked(frozen=True, slots=True, kw_only=True, config=EXACT)
class Halos:
    """What a rank exchanged with those of the same samples, per step, while windows ran.

    `calls` are those of one step in order, with the bytes that this rank gave: `exchange <up> <down>`, `sum <all>`,
    `gather <own>`. What it waited for the others is in the seconds.
    """

    seconds: Seconds
    num_bytes: NonNegativeFloat
    calls: list[Text]


@checked(frozen=True, slots=True, kw_only=True, config=EXACT)
class CaseResult:
    """Results of a case without its windows."""

    steady: bool | None  # None: there was no test
    settings: dict[Text, Setting]
    loss: Annotated[float, AllowInfNan(True)] | None = None
    skipped: NonNegativeInt | None = None  # samples that could not be read
    bucket_bytes: list[PositiveInt] = field(default_factory=list)
    copy_rate: PositiveFloat | None = None
    gather_seconds: Seconds | None = None  # per step, of gathers of sharded weights while windows ran
    halos: Halos | None = None
    staleness: dict[NonNegativeInt, PositiveInt] = field(default_factory=dict)
    computed: NonNegativeInt | None = None  # local batches, where updates take the first gradients to come
    dropped: NonNegativeInt | None = None  # likewise; gradients that came too late, over all servers
    profile: StepProfile | None = None


@checked(frozen=True, slots=True, kw_only=True, config=EXACT)
class CaseEnd:
    """The case finished on this rank."""

    peak_rss_bytes: NonNegativeInt
    window_rss_bytes: NonNegativeInt | None = None
    load: NonNegativeFloat | None


@checked(frozen=True, slots=True, kw_only=True, config=EXACT)
class RankError:
    """The exception that ended the rank."""

    time: float  # seconds since the epoch
    message: Text
    traceback: Text


@checked(frozen=True, slots=True, config=EXACT)
class Abort:
    """The rank aborts the launch; later deaths are consequences."""

    time: float  # seconds since the epoch


@checked(frozen=True, slots=True, config=EXACT)
class RankEnd:
    """The rank finished with that exit status."""

    status: int


Event = (
    RankInfo
    | NodeSettings
    | Phase
    | Gate
    | MeasuredWindow
    | Checkpoint
    | Resumption
    | Evaluation
    | Ended
    | EnergyReading
    | GpuMemory
    | StateBytes
    | CaseResult
    | CaseEnd
    | RankError
    | Abort
    | RankEnd
)

TYPES: dict[str, type[Event]] = {
    "rank_info": RankInfo,
    "node": NodeSettings,
    "phase": Phase,
    "gate": Gate,
    "window": MeasuredWindow,
    "checkpoint": Checkpoint,
    "resumed": Resumption,
    "evaluated": Evaluation,
    "ended": Ended,
    "energy": EnergyReading,
    "gpu_memory": GpuMemory,
    "state_bytes": StateBytes,
    "result": CaseResult,
    "case_end": CaseEnd,
    "error": RankError,
    "abort": Abort,
    "end": RankEnd,
}
NAMES = {kind: name for name, kind in TYPES.items()}


def format_event(event: Event, *, case: int | None = None) -> str:
    """The event as a line of JSON: its name, the number of its case if any, and its fields."""
    name = NAMES[type(event)]
    place: dict[str, Any] = {"event": name} | ({} if case is None else {"case": case})
    return json.dumps(place | _adapter(name).dump_python(event, mode="json")) + "\n"


def parse_event(line: str) -> tuple[int | None, Event]:
    """(number of the case or None, event) from a line.

    Raises ValueError if it is not a known event with its fields, each of its type.
    """
    values = parse_json_object(line)
    name, case = values.pop("event", None), values.pop("case", None)
    if not isinstance(name, str) or name not in TYPES:
        raise ValueError(f"unknown event {str(name)[:40]!r}")
    if case is not None and type(case) is not int:
        raise ValueError(f"event {name}: the number of its case is {str(case)[:40]!r}")
    try:
        return case, _adapter(name).validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        raise ValueError(f"event {name}, {first_problem(error)}") from None


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(TYPES[name])


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


# How a line of a case begins; cut off or with a wrong number behind, it still says which one.
_HEAD = re.compile(rb'\{"event": "[a-z_]+", "case": (\d{1,9}), "')


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

    def seconds(self, phase: PhaseName, case: int | None = None) -> float | None:
        """Duration of that phase, of the launch or of the case; None if it was not reached."""
        return next(
            (
                event.seconds
                for place, event in self.events
                if isinstance(event, Phase) and event.name == phase and place in (None, case)
            ),
            None,
        )


def read_spools(folder: Path, num_ranks: int) -> list[RankSpool]:
    """The spools of all ranks, in order; empty for ranks that never wrote.

    A truncated last line, whose writer was killed, is left out. Any other line that is not an event of this version
    is damage to the case that it is of (`Damage`), and so is a file that cannot be read.
    """
    return [_read_spool(_spool_path(folder, rank), rank) for rank in range(num_ranks)]


def _read_spool(path: Path, rank: int) -> RankSpool:
    spool = RankSpool(rank)
    try:
        content = read_regular(path)
    except FileNotFoundError:
        return spool
    except OSError as error:
        spool.damage.append(Damage(f"{path.name}: {error.strerror}"))
        return spool
    before: int | None = None
    bad: list[tuple[str, bytes]] = []  # lines since the last event, with what is wrong with them

    def note_bad(after: int | None) -> None:
        for problem, line in bad:
            head = _HEAD.match(line)
            named = int(head[1]) if head else None
            if named is not None and (before or 0) <= named and (after is None or named <= after):
                spool.damage.append(Damage(problem, named, named))
            else:
                spool.damage.append(Damage(problem, before, after))
        bad.clear()

    for number, line in enumerate(content.split(b"\n")[:-1], start=1):
        try:
            case, event = parse_event(line.decode())
        except ValueError as error:
            bad.append((f"{path.name}, line {number}: {error}", line))
            continue
        note_bad(case)
        spool.events.append((case, event))
        before = case
    note_bad(None)
    return spool


def _spool_path(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank:05d}.jsonl"
