"""A study as its TOML file and the command line define it.

Its tables are in `rules` and `target`; `StudyFile` is study.json: the study with its system and environment. What has
several values makes `variants` (`axes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.config import JsonDict

from dlscale.base import definitions
from dlscale.base.definitions import Frozen, where_given
from dlscale.base.errors import UsageError
from dlscale.base.quantities import Counts, Duration, Words, split_list
from dlscale.base.strings import Name, Text
from dlscale.benchmarks.records.cell import ScalingMode, Setting
from dlscale.benchmarks.records.record import Base
from dlscale.benchmarks.study.axes import (
    OPTION_TABLES,
    changed_value,
    check_variable,
    checked_values,
    leave_out,
    placed,
    stated,
    variant_settings,
    with_axes,
)
from dlscale.benchmarks.study.rules import MOST_LAUNCHES, NumLaunches, Rules
from dlscale.benchmarks.study.servers import check_servers
from dlscale.benchmarks.study.sharding import carried_settings
from dlscale.benchmarks.study.target import TargetRules
from dlscale.benchmarks.systems.system import GPU_BACKEND, System
from dlscale.collectives import NAMES as BACKENDS
from dlscale.collectives import capabilities
from dlscale.collectives.algorithms.registry import NAMES as ALGORITHMS
from dlscale.collectives.algorithms.registry import SYNC
from dlscale.collectives.sharding import NONE
from dlscale.models import NAMES as WORKLOADS
from dlscale.models import load_workload
from dlscale.models.frameworks import FRAMEWORKS
from dlscale.models.own import OwnModel, own_workload
from dlscale.models.workload import Workload

StudyControl = Literal["synthetic", "loader", "exchange", "alone", "profile"]  # beside trainings
LARGEST_SEED = 2**32 - 1  # each rank adds its own number to it
Names = Annotated[Words, Field(min_length=1)]
Sizes = Annotated[Counts, Field(min_length=1)]
EVERYTHING = {"workloads": WORKLOADS, "frameworks": FRAMEWORKS, "backends": BACKENDS}  # what `all` stands for
# Panels of the everyday options in `dlscale run --help`; other fields with a description are set by --set.
WHAT: JsonDict = {"panel": "What"}
WHERE: JsonDict = {"panel": "Where"}
HOW_LONG: JsonDict = {"panel": "How long"}


def _controls(value: Any) -> Any:
    """`none` alone stands for no control."""
    names = split_list(value) if isinstance(value, str) else value
    return [] if names == ["none"] else names


def _without_repetition(controls: list[StudyControl]) -> list[StudyControl]:
    return list(dict.fromkeys(controls))


class Study(Frozen):
    """Which cells are compared, how often each is launched, and how long that may take.

    A field with a description can be set on the command line (`settings`).
    """

    name: Name
    title: Text
    scaling_mode: ScalingMode
    workloads: Names = Field(
        description="Workloads, e.g. hep_cnn,resnet50, or all; a file of your own: mine.py.",
        json_schema_extra=WHAT,
    )
    frameworks: Names = Field(
        description="Frameworks: torch, tensorflow, or all for both.", json_schema_extra=WHAT
    )
    backends: Names = Field(description="Backends, e.g. none,mpi,gloo,ring, or all.", json_schema_extra=WHAT)
    # Whether `all` was given: what is not usable here is then left out, with the reason.
    every_framework: bool = False
    every_backend: bool = False
    # Whether the user named them: of a study's own, those that may not span hosts are left out there.
    named_backends: bool = True
    backend_options: dict[Text, dict[Text, Setting]] = Field(
        {}, description="Options of backends: horovod.cycle_time_ms=0.5|1,grpc_ps.asynchronous=true."
    )
    algorithms: Names = where_given(
        [SYNC], description="Algorithms, each with every backend that carries it: sync,easgd."
    )
    algorithm_options: dict[Text, dict[Text, Setting]] = where_given(
        {}, description="Options of algorithms: easgd.interval=1|8|64."
    )
    shard: Literal["none", "optimizer", "parameters"] = where_given(
        NONE,
        description="Sharded state: none, optimizer, or parameters (with gradients and optimizer); none,optimizer: a "
        "curve each.",
        json_schema_extra=WHAT,
    )
    split: PositiveInt | Literal["auto"] = where_given(
        1,
        description="Ranks per sample, each with rows of it: 1,2,4 or auto, as many as its batch needs; a curve each.",
        json_schema_extra=WHAT,
    )
    servers: Annotated[Words, AfterValidator(check_servers)] = Field(
        ["1/2"],
        description="Parameter servers: numbers, or ratios to the workers, rounded up, e.g. 1/2; several make a sweep.",
    )
    preset: Text | None = Field(
        None,
        description="Preset: paper, small or tiny; default: the system's or the workload's.",
        json_schema_extra=WHAT,
    )
    batch: PositiveInt | None = Field(
        None,
        description="Samples per step: per rank (weak) or in total (strong scaling); 16|32: a curve each.",
        json_schema_extra=WHAT,
    )
    precision: Literal["fp32", "tf32", "bf16"] = Field(
        description="Precision: fp32, bf16, or on GPUs tf32; fp32|bf16: a curve each.", json_schema_extra=WHAT
    )
    compiled: bool = Field(
        False, description="Compiled networks: torch.compile, or XLA in TensorFlow; no|yes: a curve each."
    )
    device: Literal["cpu", "gpu"] = Field(
        "cpu",
        description="Device: cpu, or gpu (one per rank); default: gpu where the system has any.",
        json_schema_extra=WHERE,
    )
    skip_bad: bool = Field(
        False, description="Skip and count samples that cannot be read, instead of failing."
    )
    ranks: Sizes | None = Field(
        None,
        description="Numbers of ranks: 1,2,4, 1:8 or 1:512:x2; default: 1 to one per core.",
        json_schema_extra=WHERE,
    )
    nodes: Sizes | None = Field(
        None,
        description="Numbers of nodes, instead of --ranks, on a system with a scheduler.",
        json_schema_extra=WHERE,
    )
    base: Base | None = Field(
        None,
        description="Base case of efficiencies: 1 rank (default; it joins the ranks), the ranks of one node, or the "
        "smallest number of ranks.",
    )
    ranks_per_node: PositiveInt | None = Field(
        None, description="Ranks per node, on a system with a scheduler; default: the system's."
    )
    partition: Text | None = Field(
        None, description="Partition; default: the system's.", json_schema_extra=WHERE
    )
    launches: NumLaunches | None = Field(
        None,
        description="Launches per cell; default: as many as the comparisons of backends need.",
        json_schema_extra=HOW_LONG,
    )
    budget: Duration | None = Field(
        None,
        description="Wall time for the study, e.g. 240s, 4min or 1h; default: the shortest windows.",
        json_schema_extra=HOW_LONG,
    )
    controls: Annotated[
        list[StudyControl], BeforeValidator(_controls), AfterValidator(_without_repetition)
    ] = Field([], description="Controls beside the trainings, or none.")
    reference_launches: int = Field(
        0, ge=0, le=MOST_LAUNCHES, description="Launches of 1 rank on all cores, as a reference."
    )
    seed: int = Field(
        1,
        ge=0,
        le=LARGEST_SEED,
        description="Seed for launch order and initial weights.",
        json_schema_extra=WHAT,
    )
    rules: Rules = Rules()
    environment_variables: dict[Text, Text] = where_given(
        {}, description="Environment variables of the launches: MPICH_ASYNC_PROGRESS=0|1."
    )
    # Setting -> its values: each a curve of its own. The fields above have the first.
    axes: dict[Text, list[Setting]] = where_given({})
    target: TargetRules | None = where_given(None)  # of a study of time to solution
    # Workload -> facts, of those that are files of the user's.
    own_models: dict[Text, OwnModel] = where_given({})
    # Workload -> the user's file, until the study's folder has a copy: no path is a part of a study.
    own_files: dict[Text, Path] = Field({}, exclude=True)

    def facts(self, workload: str) -> Workload:
        """The facts of one of its workloads. Raises UsageError for an unknown one."""
        if model := self.own_models.get(workload):
            return own_workload(model)
        return load_workload(definitions.one_of("workload", workload, WORKLOADS))

    @model_validator(mode="before")
    @classmethod
    def _read_axes(cls, values: Any) -> Any:
        return with_axes(values) if isinstance(values, dict) else values

    @model_validator(mode="after")
    def _check_variants(self) -> Study:
        for name in self.environment_variables:
            check_variable(name)
        for backend in self.backends:
            self.variants(backend)
        return self

    def variants(self, backend: str, framework: str | None = None) -> list[Study]:
        """The studies of one value each that this one consists of for a backend; that of all first values first.

        Each has one algorithm and one value of `shard`, of those that the backend carries, in that framework if one is
        given; there may be none. Those for `none` have all values but those of backends' options, algorithms and
        `shard`. Raises ValueError.
        """
        algorithms = self.algorithms_over(backend)
        settings_of = {
            algorithm: carried_settings(
                variant_settings(self.axes, backend=backend, algorithm=algorithm),
                own=self.shard,
                backend=backend,
                algorithm=algorithm,
                frameworks=[framework] if framework else self.frameworks,
            )
            for algorithm in algorithms
        }
        nothing_varies = not self.axes and len(self.algorithms) == 1
        if nothing_varies and settings_of == {self.algorithms[0]: [{}]}:
            return [self]
        fields = self.model_dump() | {"axes": {}}
        try:
            return [
                Study.model_validate(placed(fields | {"algorithms": [algorithm]}, settings))
                for algorithm, several in settings_of.items()
                for settings in several
            ]
        except ValidationError as error:
            raise ValueError(definitions.first_problem(error)) from None

    def algorithms_over(self, backend: str) -> list[str]:
        """The study's algorithms that a backend carries; without any exchange synchronous SGD alone."""
        if backend not in BACKENDS:
            return self.algorithms  # refused where backends are looked at
        row = capabilities(backend)
        return [name for name in self.algorithms if name in row.algorithms] if row.exchanges else [SYNC]

    @model_validator(mode="after")
    def _targets_end_trainings(self) -> Study:
        if (rule := self.target and self.target.rule) and not self.target.learning_rate:
            raise ValueError(
                f"optimizer {rule.name} needs a learning rate: the workloads' are those of their own optimizers; "
                "set target.learning_rate"
            )
        return self

    @field_validator("algorithms")
    @classmethod
    def _check_algorithms(cls, value: list[str]) -> list[str]:
        for name in value:
            if name not in ALGORITHMS:
                raise ValueError(f"there is no algorithm {name!r}; choose from: {', '.join(ALGORITHMS)}")
        return list(checked_values(value, what="the list of algorithms"))  # type: ignore[arg-type]


# Tables of a study's options.
TABLES: dict[str, type[Frozen]] = {"rules": Rules, "target": TargetRules}
# How deep a change goes into tables; it replaces all other fields.
_DEPTHS = dict.fromkeys(OPTION_TABLES, 2) | dict.fromkeys(("environment_variables", *TABLES), 1)


def load_study(name: str, /, *, system: System | None = None, **changes: Any) -> Study:
    """The study of that name or TOML file, with the `changes` that are not None. Raises UsageError.

    What neither they nor a file of the user's own say is as the system has it, then as the named study has it.
    """
    study = definitions.load(Study, name, folder="study/studies")
    for kind, known in EVERYTHING.items():
        if changes.get(kind) == ["all"]:
            changes[kind] = list(known)
            if kind != "workloads":
                changes[f"every_{kind.removesuffix('s')}"] = True
    own = study.model_fields_set if name.endswith(".toml") else set()
    if changes.get("backends") is None and "backends" not in own:
        changes["named_backends"] = False
    for field, value in (_system_defaults(study, system, changes) if system else {}).items():
        if changes.get(field) is None and field not in own:
            changes[field] = value
    device = changes.get("device") or study.device
    if device == "gpu" and changes.get("backends") is None and "backends" not in own:
        changes["backends"] = ["none", system.devices.backend if system and system.devices else GPU_BACKEND]
    if study.target is None and changes.get("target"):
        asked = next(iter(changes["target"]))
        raise UsageError(
            f"study {name} has no target, which belongs to time-to-solution: leave target.{asked} out, or "
            "run that study"
        )
    values = study.model_dump()
    for field, value in changes.items():
        values[field] = changed_value(values.get(field), value, depth=_DEPTHS.get(field, 0))
    named = {setting for setting, value in stated(changes).items() if value is not None}
    # An axis of the study's own gives way to what the user names.
    values["axes"] = {name: several for name, several in values.get("axes", {}).items() if name not in named}
    for table, kind in zip(OPTION_TABLES, ("backends", "algorithms"), strict=True):
        if changes.get(kind) is not None:
            leave_out(values, table, left=set(changes[kind]), named=set(changes.get(table) or {}))
    try:
        return Study.model_validate(values)
    except ValidationError as error:
        problem = definitions.first_problem(error).removeprefix("the file: ")
        raise UsageError(f"study {values['name']}: {problem}") from None


def _system_defaults(study: Study, system: System, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a system has values for; those of a preset only where the user names no other."""
    values: dict[str, Any] = {"device": system.default_device}
    if system.defaults:
        values["frameworks"] = system.defaults.frameworks
        if changes.get("preset") in (None, system.defaults.preset):
            batch = system.defaults.local_batch if study.scaling_mode == "weak" else None
            values |= {"preset": system.defaults.preset, "batch": batch}
    return {field: value for field, value in values.items() if value is not None}
