"""The record of a measurement: raw numbers and their provenance. Everything else is derived.

A study expands to cells, a cell is measured in several launches (its cases), and a case yields one record per
attempt. Records are written once and never changed; the latest good attempt of a case counts. A record is made of
`LaunchMetadata`, which the supervisor knows, and of parts that ranks write as events (`spool.TYPES`): a field of one of
these models is in the record where the model is. In configuration, batch job and nodes, None means unknown. Fields that
earlier versions wrote are ignored where a class says so (`extra`). `analysis/record_fields.toml` says which of them
block a comparison.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from functools import cached_property
from typing import Annotated, Final, Literal, Self, get_args

from pydantic import Field, NonNegativeFloat, PositiveFloat, model_validator

from dlscale.base.definitions import Frozen, where_given
from dlscale.base.strings import Moment, Name, Text
from dlscale.benchmarks.records.cell import Case, Cell, Setting
from dlscale.benchmarks.records.windows import Count, CountFromZero, Start, Whole, Windows
from dlscale.collectives.capabilities import NAMES, capabilities
from dlscale.collectives.sharding import NONE

SCHEMA_VERSION = 7  # raised by every change that makes written records unreadable
# Which number of ranks an efficiency is relative to: 1, the most on one node, or the fewest that were asked for.
Base = Literal["1", "node", "smallest"]
BASES: tuple[Base, ...] = get_args(Base)
Evidence = Literal["measured", "emulated", "simulated", "published"]
MIN_PROFILED_STEPS = 200  # of control `profile`: with stamps, and as many without
WholeSteps = Annotated[list[PositiveFloat], Field(min_length=1)]  # seconds of each
DISTURBED = 0.05  # of CPU time, over a launch; what an idle system does by itself is below 1 % of it


class Configuration(Frozen):
    """The resolved configuration beyond the cell, from defaults, files and the command line; study.json has all."""

    study_digest: Text  # of the resolved study
    budget_seconds: PositiveFloat | None  # None: the shortest windows that the rules allow
    rules: dict[Text, Setting]  # durations of warm-up and measurement
    fabric: dict[Text, Setting]  # from the system file, in base units; empty if not given


class Fingerprint(Frozen):
    """Facts that must be equal for measurements on one curve, and further facts about the code and the node."""

    digest: Text  # over commit, versions and node
    commit: Text  # of the checkout, with "+dirty" where it was changed; "unknown" outside one
    versions: dict[Text, Text]  # Python, framework, MPI, compiler ...
    node: dict[Text, Setting]  # CPU model, cores, memory


class LaunchMetadata(Frozen):
    """Facts common to the records of a launch that its ranks cannot know."""

    schema_version: Literal[7] = 7
    study: Name
    system: Name
    started_at: Moment  # UTC, ISO 8601
    order_seed: Whole  # the study's: of initial weights and, with its name and cells, the order within blocks
    fingerprint: Fingerprint
    configuration: Configuration | None = None
    batch_job: Text | None = where_given(None)  # "slurm 4711"
    command: Text
    oversubscribed: bool  # more ranks x cores than the machine has
    environment_variables: dict[Text, Text]  # set variables on the allow-list
    # Version of the list of gates that its cases had to pass (`required_gates`); None: before there was a list.
    gates_version: Literal[2, 3] | None = where_given(None)


class Quantiles(Frozen):
    """One moment over the stamped steps: 5 %, the median, 95 %."""

    low: NonNegativeFloat
    median: NonNegativeFloat
    high: NonNegativeFloat


class GradientReady(Frozen):
    """One tensor of gradients, and when backpropagation had completed it."""

    name: Text
    num_bytes: Count
    ready: Quantiles


class SecondBatch(Frozen):
    """Whole steps of another local batch, taken after all others: they tell what a step costs whatever its batch."""

    local_batch: Count
    seconds: WholeSteps


class StepProfile(Frozen):
    """The steps of a rank over backend `none`; gradients are in the order in which they were completed.

    Every time counts from the start of its step, in seconds. `forward` and `backward` are the ends of the passes: of
    each objective in turn in torch, of all together in TensorFlow. The update is the rest of the step. Half of the
    steps carry stamps, and the other half, taken between them, says what the stamps cost.
    """

    fetched: Quantiles  # the local batch is there
    forward: Annotated[list[Quantiles], Field(min_length=1)]
    backward: Annotated[list[Quantiles], Field(min_length=1)]
    update: Quantiles  # its length
    gradients: Annotated[list[GradientReady], Field(min_length=1)]
    stamped_seconds: WholeSteps
    plain_seconds: WholeSteps  # without stamps, taken between those
    second: SecondBatch | None = where_given(None)

    @model_validator(mode="after")
    def _in_order(self) -> StepProfile:
        if len(self.forward) != len(self.backward):
            raise ValueError("a profile has as many ends of forward as of backward passes")
        return self


class Outcome(Frozen):
    """What every rank of a finished case knows alike."""

    steady: bool | None = None  # whether the warm-up met its steady-state test; None: there was no test
    bucket_bytes: list[Count] = []  # that a step of control `exchange` averages, in order
    # Of asynchronous training: {updates that a push had missed: pushes}, over all servers.
    staleness: dict[CountFromZero, Count] = where_given({})
    profile: StepProfile | None = where_given(None)  # of control `profile`


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
        kept = value if math.isfinite(value) else None
        return cls(name=name, passed=bool(value <= tolerance), value=kept, tolerance=tolerance, detail=detail)

    @classmethod
    def none_of(cls, places: Collection[object], *, name: str, detail: str) -> Self:
        """Whether nothing is wrong at any of the places, which end the detail."""
        return cls.at_most(0.0, float(len(places)), name=name, detail=f"{detail}: {list(places) or 'none'}")

    @classmethod
    def unchecked(cls, name: str, why: str) -> Self:
        """The entry of what could not be looked at."""
        return cls(name=name, passed=True, value=None, tolerance=None, detail=why)


GATES_VERSION: Final = 3  # of `required_gates`; records of an older list are read as they are


def required_gates(cell: Cell, *, diverged: bool = False) -> tuple[str, ...]:
    """The names, of a case of that cell which ran to its end; `diverged`: its weights are no numbers."""
    row, control = capabilities(cell.backend), cell.control
    audited = control not in ("loader", "exchange", "halos", "profile") and not (cell.target and diverged)
    asked = {
        "control gradient": True,
        "broadcast": row.exchanges,
        "split": cell.split > 1 and row.exchanges,
        "loader": control == "loader",
        "exchange": control == "exchange",
        "finite_loss": audited or control == "profile",
        "audit_step audit_scale audit_window audit_samples": audited,
        "audit_count": audited and row.servers,
        "audit_shards": audited and cell.shard != NONE,
        "audit_held_out audit_evaluation": audited and cell.target is not None,
        "identity": audited and row.exchanges,
    }
    return tuple(name for names, is_asked in asked.items() if is_asked for name in names.split())


class Checkpoint(Frozen):
    """A training's state that was saved after `step`."""

    step: Count
    seconds: PositiveFloat  # on the slowest rank, from the end of the step to the start of the next
    num_bytes: Count


class Resumption(Frozen):
    """A training that began in an earlier launch and resumed from a checkpoint."""

    step: Count  # the checkpoint's
    seconds: PositiveFloat  # reading and broadcasting it


class Evaluation(Frozen):
    """A training's quality after `step`, on held-out samples. Seconds are the slowest rank's, since the first step.

    Metrics that are not finite numbers, or that could not be computed, are left out.
    """

    step: Count
    samples: Count  # that the weights took up, over all ranks
    training_seconds: NonNegativeFloat
    evaluating_seconds: NonNegativeFloat  # this evaluation included
    loss: float | None  # mean over ranks, of the step's batch; None where it is not a finite number
    metrics: dict[Text, float]


End = Literal["reached", "budget", "diverged"]


class Ended(Frozen, extra="ignore"):
    """How a training with a target ended: there, out of time, or with a loss that is not a number."""

    end: End
    set_up_seconds: NonNegativeFloat  # from the gates to the first step: networks, weights, the trainer
    num_training: Count | None = where_given(None)  # samples of an epoch; None: not written yet


class Solution(Ended):
    """A training with a target, from its first evaluation to its end, when it is evaluated, too."""

    evaluations: Annotated[list[Evaluation], Field(min_length=1)]


class Failure(Frozen):
    """The reason for a missing result. `rank` is the first one that failed, if known."""

    kind: Literal["gate", "error", "killed", "hang", "interrupted", "unavailable"]
    rank: CountFromZero | None
    message: Text
    log_tail: Text = ""


class Phases(Frozen):
    """Seconds on each rank, [P]; null if a phase was not reached."""

    start_up: list[Start | None]  # start of mpiexec to the end of imports and MPI_Init, on monotonic clocks
    import_backend: list[Start | None]  # importing what the backend needs
    connect: list[Start | None]  # joining the backend
    gates: list[Start | None]
    first_step: list[Start | None]
    set_up: list[Start | None] | None = where_given(
        None
    )  # of a training with a target: networks, weights, trainer
    audits: list[Start | None] | None = where_given(None)  # between the windows and after them


class RankPlace(Frozen):
    """The location of a rank. `affinity` lists the CPUs that it was allowed to use while training."""

    rank: CountFromZero
    local_rank: CountFromZero
    node: Text
    boot_id: Text  # hashed; equal on ranks that share a machine
    affinity: list[int]
    gpu: Text | None = where_given(None)  # the UUID of the one that it trained on


class NodeSettings(Frozen):
    """Facts about a node, read by the first rank on it."""

    num_cpus: Count  # online hardware threads
    memory_bytes: Count
    cpu_governor: Text | None
    load_before: NonNegativeFloat | None  # over the minute before the backend was connected
    # How often the kernel had stopped the control group's processes, whose quota of CPU time was used up.
    throttled_before: CountFromZero = where_given(0)


class NodeFacts(NodeSettings, extra="ignore"):
    """A node of a case."""

    node: Text
    load_after: NonNegativeFloat | None  # over the case's last minute, its own ranks included
    throttled_after: CountFromZero = where_given(0)

    @property
    def num_throttled(self) -> int:
        """How often it stopped them from the launch's begin to the case's end."""
        return max(0, self.throttled_after - self.throttled_before)


Source = Literal["rapl", "pm_counters", "nvml"]


class EnergyReading(Frozen, extra="ignore"):
    """One counter of a node, over the windows after the warm-up and the time between them.

    `joules` is None if the counter could not be read, and `reason` says why. It covers the whole counted part of the
    machine, including other users' load.
    """

    source: Source | None  # None: no counter on that node could be read
    joules: NonNegativeFloat | None = None
    seconds: NonNegativeFloat | None = None  # from the first reading to the last, on the node's clock
    reason: Text | None = None
    rank: CountFromZero = where_given(0)  # that read it: in a record, as its node
    node: Text = where_given("")


class GpuMemory(Frozen):
    """The most memory of a GPU that was taken while windows ran, in bytes; None: the framework does not tell."""

    allocated_bytes: CountFromZero  # of tensors
    reserved_bytes: CountFromZero | None = None  # taken from the driver for them
    total_bytes: CountFromZero | None = None  # of the GPU


class StateBytes(Frozen):
    """The memory that a training's state takes on one rank, in bytes; None: the framework does not tell."""

    parameters: CountFromZero
    gradients: CountFromZero | None
    optimizer: CountFromZero | None


class RankFacts(RankPlace, extra="ignore"):
    """A rank of a case."""

    peak_rss_bytes: CountFromZero = 0  # the most memory over the launch so far; 0: it did not finish the case
    gpu_memory: GpuMemory | None = where_given(None)
    state_bytes: StateBytes | None = where_given(None)  # at the end of a training


class Record(Outcome, LaunchMetadata, extra="ignore"):
    """One attempt at one case."""

    evidence: Evidence
    case: Case
    attempt: Count
    ranks: list[RankFacts]
    servers: list[RankFacts] = []  # server ranks, in order
    nodes: list[NodeFacts] = []  # those of the ranks and servers, in order
    backend_settings: dict[Text, Setting]  # chosen by the backend itself
    phases: Phases
    windows: Windows
    skipped_samples: list[CountFromZero | None]  # unreadable ones, of each rank that came to the case's end
    gather_seconds: list[NonNegativeFloat] = where_given([])  # [P], per step, of sharded weights
    # Of ranks that share samples, per step while windows ran: [P] seconds, waiting for the others included, and bytes
    # that a rank gives; [split] their calls in order: `exchange <up> <down>`, `sum <all>`, `gather <own>`, in bytes.
    halo_seconds: list[NonNegativeFloat] = where_given([])
    halo_bytes: list[NonNegativeFloat] = where_given([])
    halo_calls: list[list[Text]] = where_given([])
    energy: list[EnergyReading] = []  # over the windows after the warm-up; empty if they were not finished
    checkpoints: list[Checkpoint] = []
    resumed: Resumption | None = None  # None: the training began with this launch
    # Of a cell with a target; None also if the launch did not end by itself.
    solution: Solution | None = where_given(None)
    gates: list[Gate]
    failure: Failure | None

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        """What findings look up in lists of P ranks is there once, and the backend has a list of gates."""
        cell, numbers = self.case.cell, [rank.rank for rank in self.ranks]
        if len(set(numbers)) < len(numbers) or max(numbers, default=0) >= cell.num_ranks:
            raise ValueError(f"ranks are {numbers}, of a case of {cell.num_ranks}")
        columns = self.phases.model_dump(exclude_none=True) | {"windows.seconds": self.windows.seconds.T}
        for name, column in columns.items():
            if len(column) != cell.num_ranks:
                raise ValueError(f"{name} is that of {len(column)} ranks, of a case of {cell.num_ranks}")
        if self.gates_version is not None and cell.backend not in NAMES:
            raise ValueError(f"no backend {cell.backend[:40]!r}; known are: {', '.join(NAMES)}")
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

    @property
    def missing_gates(self) -> list[str]:
        """Names of the gates that a good record must have and lacks, in order; none where its list is an older one."""
        if self.gates_version != GATES_VERSION or self.failure is not None:
            return []
        diverged = self.solution is not None and self.solution.end == "diverged"
        present = {gate.name for gate in self.gates}
        return [name for name in required_gates(self.case.cell, diverged=diverged) if name not in present]

    @cached_property
    def counted(self) -> Windows:
        """The windows that count: those after the warm-up.

        A training with a target may resume one step before its end: then that is all that the launch has.
        """
        windows = self.windows
        alone = self.solution and windows.num_warm_up == len(windows)
        return windows if alone else windows.after_warm_up()
