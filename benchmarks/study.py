"""A study: what a user asks, from its TOML file and the command line."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt, ValidationError, field_validator

from dlscale.benchmarks import definition
from dlscale.benchmarks.measure import Rules
from dlscale.benchmarks.record import Frozen, Setting
from dlscale.benchmarks.servers import check_servers
from dlscale.benchmarks.units import parse_seconds
from dlscale.collectives import NAMES as BACKENDS
from dlscale.models import NAMES as WORKLOADS
from dlscale.models.errors import UsageError
from dlscale.models.workload import FRAMEWORKS

EVERYTHING = {"workloads": WORKLOADS, "frameworks": FRAMEWORKS, "backends": BACKENDS}  # what `all` stands for


class Study(Frozen):
    """A question: which cells are compared, how often each is launched, and how long that may take."""

    name: str
    title: str
    scaling_mode: Literal["weak", "strong"]
    workloads: list[str]
    frameworks: list[str]
    backends: list[str]
    every_backend: bool = (
        False  # `all` was asked for: those that cannot be used here are left out, with the reason
    )
    backend_options: dict[str, dict[str, Setting]] = {}
    servers: list[str] = ["1/2"]  # of backends that have them: counts, or ratios to the workers, rounded up
    preset: str | None = None  # None: each workload's default
    batch: PositiveInt | None = (
        None  # samples: per rank if weak, over all ranks if strong; None: the preset's
    )
    precision: Literal["fp32", "bf16"]
    compiled: bool = False  # by torch.compile, or XLA in TensorFlow
    memory_format: Literal["channels_last", "channels_first"] = "channels_last"
    device: Literal["cpu", "gpu"] = "cpu"
    skip_bad: bool = False  # leave out and count samples that cannot be read, instead of failing
    ranks: list[PositiveInt] | None = None  # None: up to the machine's cores, or as `nodes` says
    nodes: list[PositiveInt] | None = None  # on systems with a scheduler
    ranks_per_node: PositiveInt | None = None  # None: the system's
    partition: str | None = None  # None: the system's
    allocations: PositiveInt = 1  # jobs that the launches of a cell are spread over, at least (M5)
    launches: PositiveInt
    budget: PositiveFloat  # seconds; written as "4min" and the like
    controls: list[Literal["synthetic", "loader", "exchange", "alone"]] = []
    reference_launches: NonNegativeInt = 0
    seed: int = 1  # of the order within blocks and of initial weights
    rules: Rules = Rules()

    @field_validator("servers")
    @classmethod
    def _check_servers(cls, value: list[str]) -> list[str]:
        return check_servers(value)

    @field_validator("budget", mode="before")
    @classmethod
    def _read_budget(cls, value: Any) -> Any:
        return parse_seconds(value) if isinstance(value, str) else value


def load_study(name: str, **changes: Any) -> Study:
    """The study of that name or TOML file, with those of `changes` that are not None; UsageError if wrong."""
    if name == "time-to-solution":
        raise UsageError(
            "study time-to-solution is not there yet: it comes with prediction; use weak-scaling or strong-scaling"
        )
    study = definition.load(Study, name, folder="studies")
    for kind, known in EVERYTHING.items():
        if changes.get(kind) == ["all"]:
            changes[kind] = list(known)
            if kind == "backends":
                changes["every_backend"] = True
    options = changes.pop("backend_options", None) or {}
    rules = {key: value for key, value in changes.pop("rules", {}).items() if value is not None}
    values = study.model_dump() | {key: value for key, value in changes.items() if value is not None}
    values["rules"] = values["rules"] | rules
    for backend, settings in options.items():
        values["backend_options"][backend] = values["backend_options"].get(backend, {}) | settings
    try:
        return Study.model_validate(values)
    except ValidationError as error:
        raise UsageError(f"study {name}: {definition.first_problem(error)}") from None
