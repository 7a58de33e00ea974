"""The record of a measurement: raw numbers and their provenance. Everything else is derived.

A study expands to cells, a cell is measured in several launches (its cases), and a case yields one record per
attempt. Records are written once and never changed; the latest good attempt of a case counts. Changing a field here
requires a new SCHEMA_VERSION. In configuration, batch job and nodes, None means that the source does not say.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from functools import cached_property
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from dlscale.base.definitions import Frozen, where_given
from dlscale.base.strings import Moment, Name, Text
from dlscale.benchmarks.records.cell import Case, Setting
from dlscale.benchmarks.records.nodes import Allocation, NodeEnergy, NodeFacts
from dlscale.benchmarks.records.profile import StepProfile
from dlscale.benchmarks.records.target import Solution, TrainingLaunch
from dlscale.benchmarks.records.windows import Start, Windows
from dlscale.collectives.capabilities import NAMES


class Configuration(Frozen):
    """The resolved configuration beyond the cell, from defaults, files and the command line; study.json has all."""

    study_digest: Text  # of the resolved study
    budget_seconds: PositiveFloat | None  # None: the shortest windows that the rules allow
    rules: dict[Text, Setting]  # durations of warm-up and measurement
    fabric: dict[Text, Setting]  # from the system file, in base units; empty if not given


SCHEMA_VERSION = 7


Base = Literal["1", "node", "smallest"]
"""Which number of ranks an efficiency is relative to: 1, the most on one node, or the fewest that were asked for."""

BASES: tuple[Base, ...] = get_args(Base)
Evidence = Literal["measured", "emulated", "simulated", "published"]


class Gate(Frozen):
    """A check of correctness; a failed one makes the record a failure."""

    name: Text
    passed: bool
    value: float | None  # the worst deviation on any rank, in units of `tolerance`'s quantity
    tolerance: float | None
    detail: Text

    @classmethod
    def at_most(cls, tolerance: float, value: float, *, name: str, detail: str) -> Self:
        """Whether a deviation is within its tolerance; one that is not a finite number is not, and is not kept."""
        return cls(
            name=name,
            passed=bool(value <= tolerance),
            value=value if math.isfinite(value) else None,
            tolerance=tolerance,
            detail=detail,
        )

    @classmethod
    def none_of(cls, places: Collection[object], *, name: str, detail: str) -> Self:
        """Whether nothing is wrong at any of the places, which end the detail."""
        return cls.at_most(0.0, float(len(places)), name=name, detail=f"{detail}: {list(places) or 'none'}")

    @classmethod
    def unchecked(cls, name: str, why: str) -> Self:
        """The entry of what could not be looked at."""
        return cls(name=name, passed=True, value=None, tolerance=None, detail=why)


class Checkpoint(Frozen):
    """A training's state, saved while all ranks stood still."""

    step: PositiveInt  # after which it was saved, over all launches of the training
    seconds: PositiveFloat  # from the end of a step to the start of the next: copied, written, synced
    num_bytes: PositiveInt


class Resumption(Frozen):
    """A training that began in an earlier launch and resumed from a checkpoint."""

    step: PositiveInt  # the checkpoint's
    seconds: PositiveFloat  # reading and broadcasting it


class LateGradients(Frozen):
    """What ranks computed in vain where an update takes the first gradients to come, from the case's first step on."""

    computed: list[NonNegativeInt]  # [P], local batches
    dropped: list[NonNegativeInt]  # [P], gradients that came too late, over all servers


class Failure(Frozen):
    """The reason for a missing result. `rank` is the first one that failed, if known."""

    kind: Literal["gate", "error", "killed", "hang", "interrupted", "unavailable"]
    rank: NonNegativeInt | None
    message: Text
    log_tail: Text = ""


Moments = list[Start | None]


class Phases(Frozen):
    """Seconds on each rank, [P]; null if a phase was not reached."""

    start_up: Moments  # start of mpiexec to the end of imports and MPI_Init, on monotonic clocks
    import_backend: Moments  # importing what the backend needs
    connect: Moments  # joining the backend
    gates: Moments
    first_step: Moments


class RankPlace(Frozen):
    """The location of a rank. `affinity` lists the CPUs that it was allowed to use while training."""

    rank: NonNegativeInt
    local_rank: NonNegativeInt
    node: Text
    boot_id: Text  # hashed; equal on ranks that share a machine
    affinity: list[int]
    num_threads: PositiveInt
    gpu: Text | None = where_given(None)  # the UUID of the one that it trained on


class GpuMemory(Frozen):
    """The most memory of a GPU that was taken while windows ran, in bytes."""

    allocated_bytes: NonNegativeInt  # of tensors
    reserved_bytes: NonNegativeInt | None = (
        None  # taken from the driver for them; None: the framework does not tell
    )
    total_bytes: NonNegativeInt | None = None  # of the GPU; None likewise


class StateBytes(Frozen):
    """The memory that a training's state takes on one rank, in bytes; None: the framework does not tell."""

    parameters: NonNegativeInt
    gradients: NonNegativeInt | None
    optimizer: NonNegativeInt | None


class RankFacts(RankPlace):
    """A rank of a case."""

    peak_rss_bytes: NonNegativeInt  # over the launch so far
    window_rss_bytes: NonNegativeInt | None = where_given(None)  # while windows ran; None: it is not known
    gpu_memory: GpuMemory | None = where_given(None)
    # At the end of a training; None: it has none, or its trainer does not tell.
    state_bytes: StateBytes | None = where_given(None)


class Fingerprint(Frozen):
    """Facts that must be equal for measurements on one curve, and further facts about the code and the node."""

    digest: Text  # over commit, versions and node
    commit: Text  # of the checkout, with "+dirty" where it was changed; "unknown" outside one
    versions: dict[Text, Text]  # Python, framework, MPI, compiler ...
    node: dict[Text, Setting]  # CPU model, cores, memory


class Record(Frozen):
    """One attempt at one case."""

    schema_version: Literal[7] = 7
    study: Name
    system: Name
    evidence: Evidence
    case: Case
    attempt: PositiveInt
    started_at: Moment  # UTC, ISO 8601
    order_seed: int  # the study's: of initial weights and, with its name and cells, the order within blocks
    fingerprint: Fingerprint
    configuration: Configuration | None = None
    allocation: Allocation | None = None  # None: not in a batch job
    command: Text
    oversubscribed: bool  # more ranks x cores than the machine has
    ranks: list[RankFacts]
    servers: list[RankFacts] = []  # server ranks, in order
    nodes: list[NodeFacts] = []  # those of the ranks and servers, in order
    backend_settings: dict[Text, Setting]  # chosen by the backend itself
    environment_variables: dict[Text, Text]  # set variables on the allow-list
    phases: Phases
    steady: bool | None  # whether the warm-up met its steady-state test
    windows: Windows
    bucket_bytes: list[PositiveInt] = []  # that a step of control `exchange` averages, in order
    gather_seconds: list[NonNegativeFloat] = where_given([])  # [P], per step, of sharded weights
    # Of ranks that share samples, per step: [P] seconds, bytes that a rank gives; [split] their calls (`spool.Halos`).
    halo_seconds: list[NonNegativeFloat] = where_given([])
    halo_bytes: list[NonNegativeFloat] = where_given([])
    halo_calls: list[list[Text]] = where_given([])
    copy_rates: list[PositiveFloat] = []  # [P], bytes per second read and written while all copy
    # Of control `profile`; None also if its steps were not finished.
    profile: StepProfile | None = where_given(None)
    energy: list[NodeEnergy] = []  # over the windows after the warm-up; empty if they were not finished
    checkpoints: list[Checkpoint] = []
    resumed: Resumption | None = None  # None: the training began with this launch
    # Of a cell with a target; None also if the launch did not end by itself.
    solution: Solution | None = where_given(None)
    # Of that training so far, in order; empty where it is not saved.
    launches: list[TrainingLaunch] = where_given([])
    # Of asynchronous training: {updates that a push had missed: pushes}, over all servers.
    staleness: dict[NonNegativeInt, PositiveInt] = where_given({})
    late_gradients: LateGradients | None = where_given(None)  # where updates take the first gradients to come
    final_loss: list[Annotated[float, Field(allow_inf_nan=True)] | None]  # [P]
    skipped_samples: list[NonNegativeInt | None]  # [P], unreadable samples that were skipped
    gates: list[Gate]
    # Of the list of gates that its launch had to pass (`required_gates`); None: it was written before there was one.
    gates_version: Literal[2] | None = where_given(None)
    failure: Failure | None

    @model_validator(mode="after")
    def _ranks_are_of_the_case(self) -> Self:
        """Every rank that findings look up in lists of P is one of them, once."""
        num_ranks, found = self.case.cell.num_ranks, [rank.rank for rank in self.ranks]
        if len(set(found)) < len(found) or max(found, default=0) >= num_ranks:
            raise ValueError(f"ranks are {found}, of a case of {num_ranks}")
        lists: dict[str, Any] = {name: getattr(self.phases, name) for name in Phases.model_fields}
        lists |= {"final_loss": self.final_loss, "skipped_samples": self.skipped_samples}
        lists["windows.seconds"] = self.windows.seconds.T
        for name, each in lists.items():
            if len(each) != num_ranks:
                raise ValueError(f"{name} is that of {len(each)} ranks, of a case of {num_ranks}")
        return self

    @model_validator(mode="after")
    def _backend_has_a_list_of_gates(self) -> Self:
        """Which gates a record must have is known by its backend."""
        backend = self.case.cell.backend
        if self.gates_version is not None and backend not in NAMES:
            raise ValueError(f"no backend {backend[:40]!r}; known are: {', '.join(NAMES)}")
        return self

    @property
    def clocks(self) -> list[list[int]]:
        """The ranks of each machine since its boot, which share a clock; in the order of their first ranks."""
        by_boot: dict[str, list[int]] = {}
        for rank in self.ranks:
            by_boot.setdefault(rank.boot_id, []).append(rank.rank)
        return list(by_boot.values())

    @property
    def good(self) -> bool:
        """True if the case is done: it ran to its end and every gate passed."""
        return self.failure is None

    @cached_property
    def counted(self) -> Windows:
        """The windows that count: those after the warm-up.

        A training with a target may resume one step before its end: then that is all that the launch has.
        """
        windows = self.windows
        alone = self.solution and windows.num_warm_up == len(windows)
        return windows if alone else windows.after_warm_up()

    @cached_property
    def foreign_cpu(self) -> float | None:
        """The share of CPU time that other programs took over all steady windows; None if it is unknown."""
        return self.windows.foreign_share


# Of CPU time, over a launch. What an idle system does by itself is below 1 % of it.
DISTURBED = 0.05
