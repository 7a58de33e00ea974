"""What is kept of a measurement: raw numbers and how they came about. Everything else is derived.

A study expands to cells, a cell is measured in several launches (its cases), and a case yields one record per
attempt. Records are written once and never changed; of a case's attempts the latest good one counts. Changing a
field here is a change of SCHEMA_VERSION. In what is kept of configuration, batch job and nodes, None means: whoever
was asked does not say.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from dlscale.base.definitions import Frozen

Source = Literal["rapl", "pm_counters", "nvml"]


class NodeEnergy(Frozen):
    """What one counter of one node counted over the windows after the warm-up, what lay between them included.

    `joules` is None where it could not be read, and `reason` says why. It is of the whole part of the machine that is
    counted, whoever else used it.
    """

    rank: NonNegativeInt  # who read it
    node: str
    source: Source | None  # None: nobody on that node could read any
    parts: str  # what it counts: "2 packages, 2 dram"; empty where it could not be read
    joules: NonNegativeFloat | None
    seconds: NonNegativeFloat | None  # from the first reading to the last, on the node's clock
    reason: str | None


Setting = str | int | float | bool


class Configuration(Frozen):
    """What was asked for beyond the cell, after defaults, files and the command line; study.json has it whole."""

    study_digest: str  # of the resolved study
    system_digest: str  # of the system's file as it was understood
    skip_bad: bool
    budget_seconds: PositiveFloat
    rules: dict[str, Setting]  # how long to warm up and to measure
    fabric: dict[str, Setting]  # as the system's file states it, in base units; empty where it states none


class Allocation(Frozen):
    """The batch job that a launch ran in."""

    scheduler: str
    job_id: str
    partition: str | None
    num_nodes: PositiveInt | None
    nodes: str | None  # as the scheduler lists them, "sha256:..." where that is long


class NodeFacts(Frozen):
    """A node as the first rank on it found it."""

    rank: NonNegativeInt  # who looked
    node: str
    num_cpus: PositiveInt  # hardware threads that are online
    memory_bytes: PositiveInt
    cache_bytes: PositiveInt | None  # of all caches from the second level on
    numa_domains: PositiveInt | None
    cpu_governor: str | None
    cpu_boost: bool | None
    transparent_huge_pages: str | None
    clock_source: str | None
    device_driver: str | None
    devices: str | None  # their models, as the driver names them
    container: str | None  # digest or name of its image
    switch_path: str | None  # from the top of the fabric's tree to the node, as Slurm knows it
    results_filesystem: str | None  # its type: lustre, nfs4, ext4 ...
    data_filesystem: str | None  # of what the launch reads; None also where that is nothing
    load_before: NonNegativeFloat | None  # over the minute before the backend was connected
    load_after: NonNegativeFloat | None  # over the case's last minute, its own ranks included


SCHEMA_VERSION = 5

Control = Literal["train", "synthetic", "loader", "exchange", "alone", "whole_machine", "canary"]
Evidence = Literal["measured", "emulated", "simulated", "published"]


class Cell(Frozen):
    """What is compared. Two measurements belong together if and only if their cells are equal.

    `control`: `train` is the real thing; `synthetic` trains on fixed resident tensors instead of `data`; `loader` only
    fetches batches; `exchange` only averages buckets of the sizes that the training has; `alone` is one rank at the
    local batch of several, which tells what a smaller batch costs by itself in strong scaling; `whole_machine` is one
    rank on all cores, a reference; none of these is ever a base case. `canary` is a training at the beginning and at
    the end of a job, which shows whether its nodes have changed.
    """

    workload: str
    preset: str
    framework: str
    backend: str
    backend_options: dict[str, Setting] = {}
    environment: str
    scaling_mode: Literal["weak", "strong"]
    num_ranks: PositiveInt
    num_servers: NonNegativeInt = 0
    num_nodes: PositiveInt = 1
    cores_per_rank: PositiveInt
    threads_per_rank: PositiveInt
    local_batch: PositiveInt  # samples per rank and step
    global_batch: PositiveInt  # samples per step over all ranks
    precision: str
    compiled: bool = False  # torch.compile, or XLA in TensorFlow
    memory_format: str = "channels_last"
    device: Literal["cpu", "gpu"] = "cpu"
    control: Control = "train"
    data: str  # the study's: "synthetic", or "<name>:<12 hex digits>" (data_name.py)

    @property
    def num_processes(self) -> int:
        """Workers and servers: the ranks of the launch."""
        return self.num_ranks + self.num_servers

    @property
    def id(self) -> str:
        """Readable, unique, and safe as a file name."""
        digest = hashlib.sha256(json.dumps(self.model_dump(), sort_keys=True).encode()).hexdigest()
        return (
            f"{self.workload}-{self.preset}-{self.framework}-{self.backend}-{self.num_ranks}r"
            f"-{self.control}-{digest[:8]}"
        )


def is_canary(case_id: str) -> bool:
    """Whether a case of that id is a canary: it belongs to a job and not to the study's plan."""
    return "-canary-" in case_id


class Case(Frozen):
    """One launch of a cell. The launches with equal `block` ran close in time, base cases among them."""

    cell: Cell
    block: NonNegativeInt  # also the index of the cell's launch: one launch per cell and block
    position: NonNegativeInt  # where in the block's randomised order it was planned

    @property
    def id(self) -> str:
        """Readable, unique within a study, and safe as a file name."""
        return f"{self.cell.id}-{self.block:02d}"


def num_sharing(cases: Iterable[Case]) -> int:
    """How many of a launch's cases share its time. Exchanges alone take the least that the rules ask for."""
    return sum(case.cell.control != "exchange" for case in cases)


class Window(Frozen):
    """K steps between two stamps on every rank; the barrier before the first stamp is not inside.

    `start_seconds` counts on the node's monotonic clock from the first window's earliest start, so that
    maximum - minimum over ranks is the start skew. Where ranks do not step together a window has a fixed time instead:
    `num_steps` are then the most that a rank took, and what counts is `num_applied`.
    """

    phase: Literal["warmup", "steady"]
    num_steps: PositiveInt
    num_applied: NonNegativeInt | None = None  # local batches of all ranks that the weights took up
    rank_steps: list[NonNegativeInt] | None = None  # [P]
    start_seconds: list[float]  # [P]
    seconds: list[float]  # [P]
    step_seconds: list[list[float]] | None = None  # [P][num_steps], where the control needs them
    bucket_seconds: list[list[float]] | None = None  # [P][buckets], over all steps; of control `exchange`


class Gate(Frozen):
    """A check of correctness; a failed one makes the record a failure."""

    name: str
    passed: bool
    value: float | None  # the worst deviation on any rank, in units of `tolerance`'s quantity
    tolerance: float | None
    detail: str


class Parity(Frozen):
    """Whether a workload's networks in the two frameworks are the same; without that they are not compared."""

    workload: str
    preset: str  # of the numbers; structure is compared for every preset
    precision: str
    num_parameters: dict[str, int]  # framework -> of that preset, trainable
    checks: list[Gate]

    @property
    def passed(self) -> bool:
        """True if every check is."""
        return all(check.passed for check in self.checks)


class Checkpoint(Frozen):
    """A training's state, saved while all ranks stood still."""

    step: PositiveInt  # after which it was saved, over all launches of the training
    seconds: PositiveFloat  # from the last step's end until the next may begin: copied, written, on the disk
    num_bytes: PositiveInt


class Resumption(Frozen):
    """A training that began in an earlier launch and resumed from a checkpoint."""

    step: PositiveInt  # the checkpoint's
    seconds: PositiveFloat  # reading it, and giving it to all ranks


class Failure(Frozen):
    """Why there is no result. `rank` is the one that failed first, where that is known."""

    kind: Literal["gate", "error", "killed", "hang", "interrupted", "unavailable"]
    rank: NonNegativeInt | None
    message: str
    log_tail: str = ""


class Phases(Frozen):
    """Seconds on each rank, [P]; null where a phase was not reached."""

    start_up: list[float | None]  # start of mpiexec to the end of imports and MPI_Init
    import_backend: list[float | None]  # importing what the backend needs
    connect: list[float | None]  # joining the backend
    gates: list[float | None]
    first_step: list[float | None]
    warm_up: list[float | None]


class RankFacts(Frozen):
    """Where a rank ran. `affinity` lists the CPUs it was allowed to use while it trained."""

    rank: NonNegativeInt
    local_rank: NonNegativeInt
    node: str
    boot_id: str  # hashed; ranks with equal ones share a machine
    affinity: list[int]
    num_threads: PositiveInt
    peak_rss_bytes: NonNegativeInt


class Fingerprint(Frozen):
    """What must be equal for measurements to lie on one curve, and what should be known beside it."""

    digest: str  # over code_digest, versions and node
    code_digest: str  # of the files that are measured: networks, backends, timed loop
    source_digest: str = ""  # likewise, with what compiled parts were made from: equal on every machine
    commit: str  # of the checkout, with "+dirty" where it was changed; "unknown" outside one
    versions: dict[str, str]  # Python, framework, MPI, compiler ...
    node: dict[str, Setting]  # CPU model, cores, memory


class Record(Frozen):
    """One attempt at one case."""

    schema_version: Literal[5] = 5
    study: str
    system: str
    evidence: Evidence
    case: Case
    attempt: PositiveInt
    started_at: str  # UTC, ISO 8601
    order_seed: int  # the study's seed: of the randomised order within blocks, and of initial weights
    fingerprint: Fingerprint
    configuration: Configuration | None = None
    allocation: Allocation | None = None  # None: not in a batch job
    command: str
    oversubscribed: bool  # more ranks x cores than the machine has
    ranks: list[RankFacts]
    servers: list[RankFacts] = []  # ranks that served, in order
    nodes: list[NodeFacts] = []  # those of the ranks and servers, in order
    backend_settings: dict[str, Setting]  # what the backend decided by itself
    environment_variables: dict[str, str]  # those on the allow-list that were set
    phases: Phases
    steady: bool | None  # whether the warm-up met its steady-state test
    windows: list[Window]
    bucket_bytes: list[PositiveInt] = []  # that a step of control `exchange` averages, in order
    copy_rates: list[
        PositiveFloat
    ] = []  # [P], bytes per second read and written while all ranks copy; likewise
    energy: list[NodeEnergy] = []  # of the windows after the warm-up; empty: it never came to their end
    checkpoints: list[Checkpoint] = []
    resumed: Resumption | None = None  # None: the training began with this launch
    final_loss: list[Annotated[float, Field(allow_inf_nan=True)] | None]  # [P]
    skipped_samples: list[NonNegativeInt | None]  # [P], unreadable ones that were left out
    gates: list[Gate]
    failure: Failure | None

    @property
    def good(self) -> bool:
        """True if the case is done: it ran to its end and every gate passed."""
        return self.failure is None
