"""Switch points for one machine and number of ranks, in a JSON file that `dlscale collectives tune` writes."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dlscale.base.errors import UsageError
from dlscale.base.files import read_regular, write_atomically

if TYPE_CHECKING:
    from dlscale.collectives.ring import _engine

# What the numbers of a plan mean: to be raised with every change that makes older ones bad advice.
ENGINE_VERSION = 2

KIB, MIB = 2**10, 2**20
NO_LIMIT = 2**63
MAX_VARIANTS = 8  # as many as src/node/online_tuner.hpp has room for
WRITE_ONE = "write one where you train: mpiexec -n RANKS dlscale collectives tune FILE"

Size = int  # in bytes


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)


class PlanKey(_Part):
    """The ranks, nodes, MPI and CPU that a plan was made for. Elsewhere its numbers may be the worst."""

    operation: str = "allreduce"  # the others follow it
    dtype: str = "float32"  # others by their bytes
    num_ranks: int = Field(ge=1)
    num_nodes: int = Field(ge=1)
    node_size: int = Field(ge=1)  # ranks on the largest node
    num_lanes: int = Field(ge=1)  # ranks on the smallest node
    mpi: str
    cpu: str
    engine: int = ENGINE_VERSION


class CopyVariant(_Part):
    """How large messages move inside a node (src/node/staged.hpp)."""

    chunk_bytes: Size = Field(ge=4 * KIB, le=64 * MIB)
    prefetch: bool = Field(alias="ahead")  # its name in the file
    streaming: bool


class NodePlan(_Part):
    """Inside a node; 0 and an empty list leave it to the engine. Untimed operations use the first variant."""

    one_shot_bytes: Size = Field(ge=0, le=16 * MIB)
    variants: list[CopyVariant] = Field(max_length=MAX_VARIANTS, alias="manners")  # its name in the file
    block_bytes: Size = Field(ge=64 * KIB, le=1024 * MIB)

    def engine_variants(self) -> list[tuple[int, bool, bool]]:
        """The variants in the engine's form."""
        return [(variant.chunk_bytes, variant.prefetch, variant.streaming) for variant in self.variants]


class Segment(_Part):
    """The longest message of buffers up to a size."""

    up_to_bytes: Size = Field(ge=1, le=NO_LIMIT)
    segment_bytes: Size = Field(ge=256, le=2**30)


class NetworkPlan(_Part):
    """Between nodes (src/network/tuning.hpp)."""

    one_shot_bytes: Size = Field(ge=0, le=NO_LIMIT)
    recursive_doubling_bytes: Size = Field(ge=0, le=NO_LIMIT)
    halving_doubling_bytes: Size = Field(ge=0, le=NO_LIMIT)
    direct_bytes: Size = Field(ge=0, le=NO_LIMIT)
    tree_bytes: Size = Field(ge=0, le=NO_LIMIT)
    segments: list[Segment] = Field(min_length=1, max_length=64)
    direct_segment_bytes: Size = Field(ge=256, le=2**30)
    window: int = Field(ge=1, le=64)

    @model_validator(mode="after")
    def _ascending(self) -> NetworkPlan:
        limits = [segment.up_to_bytes for segment in self.segments]
        if limits != sorted(set(limits)) or limits[-1] != NO_LIMIT:
            raise ValueError(f"segments must ascend in up_to_bytes and end with {NO_LIMIT}")
        return self

    def engine_tuning(self) -> _engine.NetworkTuning:
        """The switch points in the engine's form."""
        from dlscale.collectives.ring import _engine

        segments = [(segment.up_to_bytes, segment.segment_bytes) for segment in self.segments]
        return _engine.NetworkTuning(**{**dict(self), "segments": segments})


def default_network(num_nodes: int) -> NetworkPlan:
    """The engine's own switch points between so many nodes."""
    from dlscale.collectives.ring import _engine

    tuning = _engine.default_tuning(num_nodes)
    values = {name: getattr(tuning, name) for name in NetworkPlan.model_fields}
    segments = [Segment(up_to_bytes=min(up_to, NO_LIMIT), segment_bytes=n) for up_to, n in tuning.segments]
    return NetworkPlan(**{**values, "segments": segments})


class Timing(_Part):
    """One line of the measurements: seconds of an operation by each variant that was tried. For people only."""

    question: str
    message_bytes: Size
    default: str  # the variant without a plan
    seconds: dict[str, float]


class TuningPlan(_Part):
    """A plan file."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    key: PlanKey
    node: NodePlan
    network: NetworkPlan
    timings: list[Timing] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPlan:
    """A plan with the name and digest that records give it."""

    plan: TuningPlan
    name: str
    digest: str


def write_plan(plan: TuningPlan, path: Path) -> None:
    """`path` holds the plan, whole or not at all. Raises UsageError if it cannot be written."""
    content = plan.model_dump_json(by_alias=True, indent=2) + "\n"
    write_atomically(path, content, mode=0o644, remedy="free space or choose another place for the plan")


def parse_plan(path: Path) -> tuple[TuningPlan, bytes]:
    """The plan in `path`, whatever it was made for, and the file's bytes. Raises UsageError if it is no plan."""
    try:
        content = read_regular(path)
    except OSError as error:
        raise UsageError(f"plan {path} cannot be read: {error.strerror}; {WRITE_ONE}") from None
    try:
        return TuningPlan.model_validate_json(content), content
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise UsageError(
            f"{path} is no plan: {place + ': ' if place else ''}{first['msg']}; {WRITE_ONE}"
        ) from None


def check_key(plan: TuningPlan, path: Path, name: str, here: int | str) -> None:
    """Returns if the plan in `path` was made for that value of a field of its key. Raises UsageError."""
    made_for = getattr(plan.key, name)
    if made_for != here:
        raise UsageError(
            f"plan {path} was made for {name} {made_for!r}, but here it is {here!r}; {WRITE_ONE}"
        )


def read_plan(path: Path, key: PlanKey) -> LoadedPlan:
    """The plan in `path`. Raises UsageError if it is no plan, or made for something other than `key`."""
    plan, content = parse_plan(path)
    for name in PlanKey.model_fields:
        check_key(plan, path, name, getattr(key, name))
    return LoadedPlan(plan=plan, name=path.name, digest=hashlib.sha256(content).hexdigest()[:16])


def load_plan(path: str, control: Any, here: tuple[int, int]) -> LoadedPlan:
    """The plan in `path`, as rank 0 reads it, for ranks whose pieces are `here`; collective.

    Raises UsageError on all ranks as `read_plan`.
    """
    key = key_here(control, here)
    outcome: LoadedPlan | UsageError | None = None
    if control.Get_rank() == 0:
        try:
            outcome = read_plan(Path(path), key)
        except UsageError as error:
            outcome = error
    outcome = control.bcast(outcome)
    if isinstance(outcome, UsageError):
        raise outcome
    if outcome is None:
        raise RuntimeError("rank 0 sent no plan")
    return outcome


def key_here(control: Any, here: tuple[int, int]) -> PlanKey:
    """The key of a plan for the ranks of `control`, the same on all; collective. `here`: this rank's `piece_here`."""
    from mpi4py import MPI

    sizes = Counter(control.allgather(here))
    return PlanKey(
        num_ranks=control.Get_size(),
        num_nodes=len(sizes),
        node_size=max(sizes.values()),
        num_lanes=min(sizes.values()),
        # Open MPI adds who built it where; the version is all that matters.
        mpi=" ".join(MPI.Get_library_version().split("\n", 1)[0].split(",", 1)[0].split()),
        cpu=", ".join(sorted(set(control.allgather(_cpu_model())))),
    )


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model", "CPU part"):  # the latter two on ARM
            return value.strip()
    return "unknown"
