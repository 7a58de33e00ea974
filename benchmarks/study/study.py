"""A study: its fields, its axes, and how it is read from a TOML file with what the command line changes.

A field with a description is an option (`settings`). Some fields, options of backends and algorithms and environment
variables are axes where they have several values, each a curve of its own: a list in a file, values between `|` on the
command line. `Study.axes` has them all, and the fields have the first ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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
from dlscale.base.strings import SECRET, Name, Text, visible
from dlscale.benchmarks.records.cell import ScalingMode, Setting
from dlscale.benchmarks.records.record import Base, Fingerprint
from dlscale.benchmarks.study.rules import MOST_LAUNCHES, NumLaunches, Rules, TargetRules, option
from dlscale.benchmarks.systems.system import GPU_BACKEND, System
from dlscale.collectives import CONTROL
from dlscale.collectives import NAMES as BACKENDS
from dlscale.collectives.algorithms import NAMES as ALGORITHMS
from dlscale.collectives.algorithms import SYNC
from dlscale.collectives.sharding import NONE
from dlscale.models import NAMES as WORKLOADS
from dlscale.models import load_workload
from dlscale.models.frameworks import FRAMEWORKS
from dlscale.models.own import own_workload
from dlscale.models.own.model import OwnModel
from dlscale.models.workload import Workload

LARGEST_SEED = 2**32 - 1  # each rank adds its own number to it
EVERYTHING = {"workloads": WORKLOADS, "frameworks": FRAMEWORKS, "backends": BACKENDS}  # what `all` stands for
# Fields that may have several values; the last one is the target's.
AXES = ("batch", "precision", "compiled", "shard", "split", "learning_rate")
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
in_words = BeforeValidator(lambda value: split_list(value) if isinstance(value, str) else value)
Controls = Annotated[list[Literal["none", "synthetic", "loader", "exchange", "alone", "profile"]], in_words]
Servers = Annotated[
    list[Annotated[str, Field(pattern=r"^0*[1-9]\d*(/0*[1-9]\d*)?$")]], in_words, Field(min_length=1)
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
    servers: Servers = option(
        ["1/2"], "Parameter servers: numbers, or ratios to the workers, rounded up: 1/2."
    )
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
        fields = self.model_dump() | {"axes": {}}
        chosen = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
        return [_valid(placed(fields, values)) for values in chosen] if axes else [self]

    @model_validator(mode="before")
    @classmethod
    def _read_axes(cls, values: Any) -> Any:
        """Moves lists of values to `axes`; the fields keep the first ones."""
        if not isinstance(values, dict):
            return values
        tables = {name: value for name, value in values.items() if isinstance(value, dict)}
        axes = tables.get("axes", {})
        if (values.get("axes") or {}) != axes or not all(isinstance(it, list) and it for it in axes.values()):
            raise ValueError("axes is no table of lists; give e.g. batch = [16, 32] without it")
        found = values | tables.get("target", {}) | tables.get(VARIABLES, {})
        found = {name: value for name, value in found.items() if name in AXES or VARIABLE.fullmatch(name)}
        for table in OPTION_TABLES:
            for owner, options in tables.get(table, {}).items():
                inner = options if isinstance(options, dict) else {}
                found |= {f"{owner}.{name}": value for name, value in inner.items()}
        axes = axes | {name: value for name, value in found.items() if isinstance(value, list) and value}
        fields = placed(values, {name: several[0] for name, several in axes.items()}) if axes else values
        return {**fields, "axes": {name: several for name, several in axes.items() if len(several) > 1}}


# Tables of a study's fields.
TABLES: dict[str, type[Frozen]] = {"rules": Rules, "target": TargetRules}


def placed(fields: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a study with these values of fields and settings, by name, in their tables.

    `batch` is a field, `target.optimizer` one of a table, `ring.teams` and `easgd.interval` are options, and capitals
    make an environment variable.
    """
    changed = dict(fields)
    for name, value in values.items():
        owner, dot, rest = name.partition(".")
        if not dot and name != AXES[-1]:
            place: tuple[str, ...] = (VARIABLES, name) if VARIABLE.fullmatch(name) else (name,)
        elif not dot:
            place = ("target", name)
        else:
            place = (owner, rest) if owner in TABLES else (OPTION_TABLES[owner in ALGORITHMS], owner, rest)
        nested = value
        for part in reversed(place):
            nested = {part: nested}
        changed = merged(changed, nested)
    return changed


def merged(fields: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A table with changes, those of its tables merged likewise; an empty table replaces one."""
    found = dict(fields)
    for name, value in changes.items():
        inner = found.get(name) or {}
        is_table = isinstance(value, dict) and value and isinstance(inner, dict)
        found[name] = merged(inner, value) if is_table else value
    return found


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
            usual["backends"] = [CONTROL, between]
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
    return _valid(merged(own, changes))


def _valid(fields: Mapping[str, Any]) -> Study:
    try:
        return Study.model_validate(fields)
    except ValidationError as error:
        problem = definitions.first_problem(error).removeprefix("the file: ")
        raise UsageError(f"study {fields['name']}: {problem}") from None


STUDY_FILE = "study.json"


def as_now(system: Any) -> Any:
    """What study.json says of a system, without fields that earlier versions had."""
    if isinstance(system, dict):
        system = {name: value for name, value in system.items() if name not in ("aliases", "policy")}
        environments = system.get("environments")
        for environment in environments.values() if isinstance(environments, dict) else ():
            for name in ("stage", "stage_folder") if isinstance(environment, dict) else ():
                environment.pop(name, None)
    return system


class StudyFile(Frozen):
    """study.json, in the folder of a study's results: what resuming it needs."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    study: Study
    system: System
    environment: Text
    fingerprint: Fingerprint
    data: Text | None = None  # as --data gave it
    account: Text | None = None
    walltime: float | None = None  # seconds per job, as --walltime gave it

    _of_earlier = field_validator("system", mode="before")(as_now)


def read_study_file(folder: Path) -> StudyFile:
    """The study in a folder. Raises UsageError if its file is missing or invalid."""
    remedy = "give the folder of a study, or run it again to write a new one"
    return read_json(StudyFile, folder / STUDY_FILE, remedy=remedy)
