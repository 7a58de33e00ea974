"""A study: its fields, its axes, and how it is read from a TOML file with what the command line changes.

A field with a description is an option (`settings`). Some fields, options of backends and algorithms and environment
variables are axes where they have several values, each a curve of its own: a list in a file, values between `|` on the
command line. `Study.axes` has them all, and the fields have the first ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

from dlscale.base import definitions
from dlscale.base.definitions import Frozen, read_json, where_given
from dlscale.base.errors import UsageError
from dlscale.base.quantities import Counts, Duration, Words, split_list
from dlscale.base.redaction import SECRET
from dlscale.base.strings import Name, Text, visible
from dlscale.benchmarks.records.cell import ScalingMode, Setting
from dlscale.benchmarks.records.record import Base, Fingerprint
from dlscale.benchmarks.study.rules import MOST_LAUNCHES, NumLaunches, Rules, option
from dlscale.benchmarks.study.target import TargetRules
from dlscale.benchmarks.systems.system import GPU_BACKEND, System
from dlscale.collectives import NAMES as BACKENDS
from dlscale.collectives.algorithms.registry import NAMES as ALGORITHMS
from dlscale.collectives.algorithms.registry import SYNC
from dlscale.collectives.sharding import NONE
from dlscale.models import NAMES as WORKLOADS
from dlscale.models import load_workload
from dlscale.models.frameworks import FRAMEWORKS
from dlscale.models.own import OwnModel, own_workload
from dlscale.models.workload import Workload

LARGEST_SEED = 2**32 - 1  # each rank adds its own number to it
EVERYTHING = {"workloads": WORKLOADS, "frameworks": FRAMEWORKS, "backends": BACKENDS}  # what `all` stands for
AXES = ("batch", "precision", "compiled", "shard", "split")  # fields that may have several values
TARGET_AXES = ("learning_rate",)  # likewise, of the target
OPTION_TABLES = ("backend_options", "algorithm_options")
VARIABLES = "environment_variables"
VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
OWN_VARIABLES = re.compile(r"(OMP|MKL|OPENBLAS)_NUM_THREADS|DLSCALE_.*")


def _check_variables(variables: dict[str, str]) -> dict[str, str]:
    for name in variables:
        if not VARIABLE.fullmatch(name) or OWN_VARIABLES.fullmatch(name) or SECRET.search(name):
            raise ValueError(
                f"{name} cannot be set: give a name in capitals that looks like no secret, and none of the threads' or "
                "DLSCALE_'s, which follow from the ranks"
            )
    return variables


Names = Annotated[Words, Field(min_length=1)]
Sizes = Annotated[Counts, Field(min_length=1)]
Variables = Annotated[
    dict[Text, Annotated[str, Field(coerce_numbers_to_str=True), AfterValidator(visible)]],
    AfterValidator(_check_variables),
]
Controls = Annotated[
    list[Literal["none", "synthetic", "loader", "exchange", "alone", "profile"]],
    BeforeValidator(lambda value: split_list(value) if isinstance(value, str) else value),
]
Options = dict[Text, dict[Text, Setting]]
Axes = dict[Text, Annotated[list[Setting], Field(max_length=64)]]  # setting -> its values


class Study(Frozen):
    """Which cells are compared, how often each is launched, and how long that may take."""

    name: Name
    title: Text
    scaling_mode: ScalingMode
    workloads: Names = option(..., "Workloads, all, or a file of yours: hep_cnn,mine.py.", "What")
    frameworks: Names = option(..., "Frameworks: torch, tensorflow, or all for both.", "What")
    backends: Names = option(..., "Backends, e.g. none,mpi,gloo,ring, or all.", "What")
    # Whether the user named none of them, or all: what is not usable here is then left out, with the reason.
    every_framework: bool = False
    every_backend: bool = False
    backend_options: Options = option({}, "Options of backends: horovod.cycle_time_ms=0.5|1.")
    algorithms: Names = option([SYNC], "Algorithms, where backends carry them: sync,easgd.", given=True)
    algorithm_options: Options = option({}, "Options of algorithms: easgd.interval=1|8|64.", given=True)
    shard: Literal["none", "optimizer", "parameters"] = option(
        NONE, "Sharded state: none, optimizer, or parameters (all of it).", "What", given=True
    )
    split: PositiveInt | Literal["auto"] = option(
        1, "Ranks per sample, each with rows of it, or auto: the fewest needed.", "What", given=True
    )
    servers: Names = option(["1/2"], "Parameter servers: numbers, or ratios to the workers, rounded up: 1/2.")
    preset: Text | None = option(None, "Preset: paper, small or tiny; default: the system's.", "What")
    batch: PositiveInt | None = option(None, "Samples per step: per rank, or in total (strong).", "What")
    precision: Literal["fp32", "tf32", "bf16"] = option(..., "Precision; tf32 is of GPUs alone.", "What")
    compiled: bool = option(False, "Compiled networks: torch.compile, or XLA in TensorFlow.")
    device: Literal["cpu", "gpu"] = option("cpu", "Device; default: gpu where the system has any.", "Where")
    skip_bad: bool = option(False, "Skip and count samples that cannot be read, instead of failing.")
    ranks: Sizes | None = option(None, "Ranks: 1,2,4 or 1:512:x2; default: up to one per core.", "Where")
    nodes: Sizes | None = option(None, "Numbers of nodes, instead of --ranks, with a scheduler.", "Where")
    base: Base | Literal["own"] | None = option(None, "Base case: 1 rank; own: of each backend.")
    ranks_per_node: PositiveInt | None = option(None, "Ranks per node; default: the system's.")
    partition: Text | None = option(None, "Partition; default: the system's.", "Where")
    launches: NumLaunches | None = option(None, "Launches per cell; default: as many as needed.", "How long")
    budget: Duration | None = option(None, "Wall time, e.g. 4min; default: shortest windows.", "How long")
    controls: Controls = option([], "Controls beside the trainings, or none.")
    reference_launches: int = option(0, "Launches of 1 rank on all cores.", ge=0, le=MOST_LAUNCHES)
    seed: int = option(1, "Seed for launch order and initial weights.", ge=0, le=LARGEST_SEED)
    rules: Rules = Rules()
    environment_variables: Variables = option({}, "Variables, e.g. MPICH_ASYNC_PROGRESS=0|1.", given=True)
    axes: Axes = where_given({})
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

    def variants(self, *owners: str) -> list[Study]:
        """The studies of one value of each axis, of options those of `owners` alone. Raises UsageError."""
        axes = {
            name: values
            for name, values in self.axes.items()
            if "." not in name or name.partition(".")[0] in owners
        }
        fields = self.model_dump() | {"axes": {}} if axes else {}
        chosen = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
        return [_valid(placed(fields, values)) for values in chosen] if axes else [self]

    @model_validator(mode="before")
    @classmethod
    def _read_axes(cls, values: Any) -> Any:
        """Moves lists of values to `axes`; the fields keep the first ones."""
        if not isinstance(values, dict):
            return values
        axes = values.get("axes") or {}
        if not isinstance(axes, dict) or not all(isinstance(many, list) and many for many in axes.values()):
            raise ValueError("axes is no table of lists; give e.g. batch = [16, 32] without it")
        axes = axes | {
            name: value for name, value in _settings_in(values) if isinstance(value, list) and value
        }
        fields = placed(values, {name: several[0] for name, several in axes.items()})
        return fields | {"axes": {name: several for name, several in axes.items() if len(several) > 1}}


# Tables of a study's fields.
TABLES: dict[str, type[Frozen]] = {"rules": Rules, "target": TargetRules}


def place_of(name: str) -> tuple[str, ...]:
    """Where a field or a setting is in a study: ("target", "optimizer"), ("backend_options", "ring", "teams")."""
    owner, dot, option = name.partition(".")
    if dot:
        return (owner, option) if owner in TABLES else (OPTION_TABLES[owner in ALGORITHMS], owner, option)
    if name in TARGET_AXES:
        return ("target", name)
    return (VARIABLES, name) if VARIABLE.fullmatch(name) else (name,)


def placed(fields: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a study with these values, by name, in their tables; what should be a table and is none stays."""
    changed = dict(fields)
    for name, value in values.items():
        *tables, last = place_of(name)
        place: Any = changed
        for table in tables:
            if isinstance(place, dict):
                inner = place.get(table)
                place[table] = {} if inner is None else dict(inner) if isinstance(inner, dict) else inner
                place = place[table]
        if isinstance(place, dict):
            place[last] = value
    return changed


def _settings_in(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """(name, value) of what may be an axis among the fields of a study."""
    tables = {name: value for name, value in fields.items() if isinstance(value, dict)}
    yield from ((name, fields[name]) for name in AXES if name in fields)
    yield from ((name, value) for name, value in tables.get("target", {}).items() if name in TARGET_AXES)
    yield from tables.get(VARIABLES, {}).items()
    for owner, options in (pair for table in OPTION_TABLES for pair in tables.get(table, {}).items()):
        if isinstance(options, dict):
            yield from ((f"{owner}.{name}", value) for name, value in options.items())


def load_study(name: str, /, *, system: System | None = None, **changes: Any) -> Study:
    """The study of that name or TOML file, with the `changes` that are not None. Raises UsageError.

    What neither they nor a file of the user's own say is as the system has it, then as the named study has it.
    """
    study = definitions.load(Study, name, folder="study/studies")
    own = study.model_dump(exclude_unset=True)
    own = placed(own, own.pop("axes", {}))
    changes = {field: value for field, value in changes.items() if value not in (None, {})}
    changes = placed(changes, changes.pop("axes", {}))
    for kind, known in EVERYTHING.items():
        if changes.get(kind) == ["all"]:
            changes[kind] = list(known)
            if kind != "workloads":
                changes[f"every_{kind.removesuffix('s')}"] = True
    from_file, usual = name.endswith(".toml"), dict[str, Any]()
    if system:
        # Goals are those of a study's own presets.
        stated, weak = None if study.target else system.defaults, study.scaling_mode == "weak"
        usual = {"device": system.default_device, "frameworks": stated and stated.frameworks}
        if stated and changes.get("preset") in (None, stated.preset):
            usual |= {"preset": stated.preset, "batch": stated.local_batch if weak else None}
    if not from_file and "backends" not in changes:
        usual["every_backend"] = True
        if changes.get("device", usual.get("device", study.device)) == "gpu":
            between = system.devices.backend if system and system.devices else GPU_BACKEND
            usual["backends"] = ["none", between]
    for field, value in usual.items():
        if value is not None and not (from_file and field in own):
            changes.setdefault(field, value)
    if study.target is None and (asked := changes.get("target")):
        raise UsageError(
            f"study {name} has no target, which belongs to time-to-solution: leave target.{next(iter(asked))} out, or "
            "run that study"
        )
    # A study's own options of what the user leaves out of it go, too.
    for table, kind in zip(OPTION_TABLES, ("backends", "algorithms"), strict=True):
        if named := changes.get(kind):
            own[table] = {owner: options for owner, options in own.get(table, {}).items() if owner in named}
    return _valid(_merged(own, changes))


def _merged(own: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A table with changes, those of its tables merged likewise; an empty table replaces one."""
    return {**own} | {
        name: _merged(own.get(name) or {}, value) if isinstance(value, dict) and value else value
        for name, value in changes.items()
    }


def _valid(fields: Mapping[str, Any]) -> Study:
    try:
        return Study.model_validate(fields)
    except ValidationError as error:
        problem = definitions.first_problem(error).removeprefix("the file: ")
        raise UsageError(f"study {fields['name']}: {problem}") from None


STUDY_FILE = "study.json"


def without_staging(system: Any) -> Any:
    """What study.json says of a system, without fields that earlier versions had."""
    if isinstance(system, dict) and isinstance(system.get("policy"), dict):
        system["policy"].pop("jobs", None)
    if isinstance(system, dict) and isinstance(system.get("environments"), dict):
        for environment in system["environments"].values():
            for name in ("stage", "stage_folder") if isinstance(environment, dict) else ():
                environment.pop(name, None)
    return system


class StudyFile(Frozen):
    """study.json, in the folder of a study's results: what resuming it needs."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    study: Study
    system: System
    environment: Text
    plan_digest: Text = ""
    fingerprint: Fingerprint
    data: Text | None = None  # as --data gave it
    account: Text | None = None
    walltime: float | None = None  # seconds per job, as --walltime gave it

    _of_earlier = field_validator("system", mode="before")(without_staging)


def read_study_file(folder: Path) -> StudyFile:
    """The study in a folder. Raises UsageError if its file is missing or invalid."""
    remedy = "give the folder of a study, or run it again to write a new one"
    return read_json(StudyFile, folder / STUDY_FILE, remedy=remedy)
