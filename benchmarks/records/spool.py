"""Events that the ranks of a launch report to its supervisor: one private file per rank, one JSON object per line.

Each kind of event is one type here; ranks write them, and `read_spools` returns the same types. A line is written
before the next window begins, so a rank that dies keeps all its finished windows. Ranks never wait for a spool: they
only append, and the supervisor reads after the launch has ended. Imports must stay light: the worker loads this
module before anything may start a thread.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, TypeVar, get_type_hints

from dlscale.base.files import read_regular
from dlscale.base.parsing import parse_json_object

SPEC_FILE = "launch.json"  # `rank.launch.LaunchSpec`

# The last one is of a case: networks, weights and trainer of a training with a target.
PhaseName = Literal["start_up", "import_backend", "connect", "gates", "set_up"]
Setting = str | int | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RankInfo:
    """Identity and placement of a rank; its first event."""

    rank: int
    local_rank: int
    pid: int
    node: str
    boot_id: str  # hashed
    affinity: list[int]
    num_threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInfo:
    """A node's settings, reported by the first rank on it (`record.NodeFacts` has the fields' meaning)."""

    num_cpus: int
    memory_bytes: int
    cache_bytes: int | None
    numa_domains: int | None
    cpu_governor: str | None
    cpu_boost: bool | None
    transparent_huge_pages: str | None
    clock_source: str | None
    device_driver: str | None
    devices: str | None
    container: str | None
    switch_path: str | None
    results_filesystem: str | None
    data_filesystem: str | None
    load_before: float | None


@dataclass(frozen=True, slots=True)
class Phase:
    """Duration of one phase before the first window."""

    name: PhaseName
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """A check of correctness, of the launch or of a case (`record.Gate`)."""

    name: str
    passed: bool
    value: float | None
    tolerance: float | None
    detail: str


@dataclass(frozen=True, slots=True)
class MeasuredWindow:
    """A window on one rank, stamped by its own monotonic clock."""

    phase: Literal["warmup", "steady"]
    num_steps: int
    start: float
    seconds: float
    step_seconds: list[float] | None = None
    num_applied: int | None = (
        None  # in a window of fixed time: local batches of all ranks that the weights took up
    )
    bucket_seconds: list[float] | None = None  # over all steps; communication only
    foreign_cpu: float | None = None  # share of the node's cores that other programs took, on one rank of it
    num_samples: int | None = None  # over all ranks, where the batch grows


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSaved:
    """The training's state was saved (`record.Checkpoint`)."""

    step: int
    seconds: float
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingResumed:
    """The training continues from a checkpoint (`record.Resumption`)."""

    step: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """The training's quality was measured (`record.Evaluation`)."""

    step: int
    samples: int
    training_seconds: float
    evaluating_seconds: float
    loss: float | None
    metrics: dict[str, float]
    noise: dict[str, float] | None = None  # a `target.GradientNoise`


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A training with a target is over (`record.Solution`)."""

    end: Literal["reached", "budget", "diverged"]
    set_up_seconds: float
    num_held_out: int
    num_training: int
    noise_every: int = 0
    noise_unmeasured: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyReading:
    """One counter of a node over the windows after the warm-up (`record.NodeEnergy`)."""

    source: Literal["rapl", "pm_counters", "nvml"] | None
    parts: str = ""
    joules: float | None = None
    seconds: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """Results of a case besides its windows."""

    steady: bool | None  # None: there was no test
    settings: dict[str, Setting]
    loss: float | None = None
    skipped: int | None = None  # samples that could not be read
    bucket_bytes: list[int] = field(default_factory=list)
    copy_rate: float | None = None
    staleness: dict[str, int] = field(default_factory=dict)
    computed: int | None = None  # local batches, where updates take the first gradients to come
    dropped: int | None = None  # likewise; gradients that came too late, over all servers
    profile: dict[str, Any] | None = None  # a `profile.StepProfile`


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseEnd:
    """The case finished on this rank."""

    peak_rss_bytes: int
    load: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankError:
    """The exception that ended the rank."""

    time: float  # seconds since the epoch
    message: str
    traceback: str


@dataclass(frozen=True, slots=True)
class Abort:
    """The rank aborts the launch; later deaths are consequences."""

    time: float  # seconds since the epoch


@dataclass(frozen=True, slots=True)
class RankEnd:
    """The rank finished with that exit status."""

    status: int


Event = (
    RankInfo
    | NodeInfo
    | Phase
    | GateResult
    | MeasuredWindow
    | CheckpointSaved
    | TrainingResumed
    | Evaluated
    | Ended
    | EnergyReading
    | CaseResult
    | CaseEnd
    | RankError
    | Abort
    | RankEnd
)

TYPES: dict[str, type[Event]] = {
    "rank_info": RankInfo,
    "node": NodeInfo,
    "phase": Phase,
    "gate": GateResult,
    "window": MeasuredWindow,
    "checkpoint": CheckpointSaved,
    "resumed": TrainingResumed,
    "evaluated": Evaluated,
    "ended": Ended,
    "energy": EnergyReading,
    "result": CaseResult,
    "case_end": CaseEnd,
    "error": RankError,
    "abort": Abort,
    "end": RankEnd,
}
NAMES = {kind: name for name, kind in TYPES.items()}


def format_event(event: Event, *, case: int | None = None) -> str:
    """The event as a line of JSON: its name, the number of its case if any, and its fields."""
    place: dict[str, str | int] = {"event": NAMES[type(event)]}
    if case is not None:
        place["case"] = case
    # Not `asdict`: it copies deeply, and this runs between windows.
    return json.dumps(place | {item.name: getattr(event, item.name) for item in fields(event)}) + "\n"


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
    kind = TYPES[name]
    try:
        event = kind(**values)
    except TypeError as error:  # a missing or unknown field
        raise ValueError(f"event {name}: {error}") from None
    checks = _type_checks(name)
    for field_name, value in values.items():
        if problem := checks[field_name](value):
            raise ValueError(f"event {name}, {field_name}: {problem}")
    return case, event


@cache
def _type_checks(event: str) -> dict[str, Callable[[Any], str]]:
    """For each field of that event, what is wrong with a value of it; an empty text if nothing."""
    from pydantic import TypeAdapter, ValidationError  # not where events are written: it comes with threads

    def check(adapter: TypeAdapter[Any], value: Any) -> str:
        try:
            adapter.validate_python(value, strict=True)
        except ValidationError as error:
            return error.errors(include_url=False, include_context=False, include_input=False)[0]["msg"]
        return ""

    return {name: partial(check, TypeAdapter(hint)) for name, hint in get_type_hints(TYPES[event]).items()}


class SpoolWriter:
    """Appends one rank's events."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.folder = folder
        # Mode 0600, as details of a job are private to its user.
        descriptor = os.open(_spool_path(folder, rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._file = os.fdopen(descriptor, "w", encoding="utf-8")

    def write(self, event: Event, *, case: int | None = None) -> None:
        """Append an event; `case` is the number of the launch's case that it belongs to, if any."""
        self._file.write(format_event(event, case=case))
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


E = TypeVar("E", bound=Event)


@dataclass(slots=True)
class RankSpool:
    """One rank's events in the order of writing, each with the number of its case.

    `damage` says what is wrong with the file, if anything; then only the events before that place are here.
    """

    rank: int
    events: list[tuple[int | None, Event]] = field(default_factory=list)
    damage: str = ""

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
    is damage (`RankSpool.damage`), and so is a file that cannot be read.
    """
    return [_read_spool(_spool_path(folder, rank), rank) for rank in range(num_ranks)]


def _read_spool(path: Path, rank: int) -> RankSpool:
    spool = RankSpool(rank)
    try:
        content = read_regular(path)
    except FileNotFoundError:
        return spool
    except OSError as error:
        spool.damage = f"{path.name}: {error.strerror}"
        return spool
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):
        try:
            spool.events.append(parse_event(line.decode()))
        except ValueError as error:
            spool.damage = f"{path.name}, line {number}: {error}"
            break
    return spool


def _spool_path(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank:05d}.jsonl"
