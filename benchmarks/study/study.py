"""A study: its TOML file, what the command line changes in it, and its axes.

A field with a description is an option (`settings`). Some fields, options of backends and algorithms and environment
variables are axes where they have several values, each a curve of its own: a list in a file, values between `|` on the
command line. `Study.axes` has them all, and the fields have the first ones.
"""

from __future__ import annotations

import math
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
    model_validator,
)

from dlscale.base import definitions
from dlscale.base.definitions import Frozen, read_json, where_given
from dlscale.base.errors import UsageError, unknown
from dlscale.base.quantities import Counts, Duration, Words, split_list
from dlscale.base.redaction import SECRET
from dlscale.base.strings import Name, Text
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

StudyControl = Literal["synthetic", "loader", "exchange", "alone", "profile"]  # beside trainings
LARGEST_SEED = 2**32 - 1  # each rank adds its own number to it
MOST_VARIANTS = 64  # of a backend: more make no study that ends
EVERYTHING = {"workloads": WORKLOADS, "frameworks": FRAMEWORKS, "backends": BACKENDS}  # what `all` stands for
AXES = ("batch", "precision", "compiled", "shard", "split")  # fields that may have several values
TARGET_AXES = ("learning_rate",)  # likewise, of the target
OPTION_TABLES = ("backend_options", "algorithm_options")
VARIABLES = "environment_variables"
VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
OWN_VARIABLES = re.compile(r"(OMP|MKL|OPENBLAS)_NUM_THREADS|DLSCALE_.*")


def _read_controls(value: Any) -> Any:
    """Controls without repetition; `none` alone stands for no control."""
    names = split_list(value) if isinstance(value, str) else value
    known = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return ([] if names == ["none"] else list(dict.fromkeys(names))) if known else names


def check_servers(specs: list[str]) -> list[str]:
    """Returns the specs if each is a number (`2`) or a ratio of servers to workers (`1/2`). Raises ValueError."""
    for spec in specs:
        if not re.fullmatch(r"0*[1-9]\d*(/0*[1-9]\d*)?", spec):
            raise ValueError(
                f"{spec!r} is not a number of servers; give a number such as 2, or a ratio such as 1/2"
            )
    return specs


def _check_algorithms(names: list[str]) -> list[str]:
    for name in names:
        if name not in ALGORITHMS:
            raise ValueError(unknown("algorithm", name, ALGORITHMS))
    return checked_values(names, what="the list of algorithms")


Names = Annotated[Words, Field(min_length=1)]
Sizes = Annotated[Counts, Field(min_length=1)]
Algorithms = Annotated[Words, AfterValidator(_check_algorithms)]
Servers = Annotated[Words, Field(min_length=1), AfterValidator(check_servers)]
Options = dict[Text, dict[Text, Setting]]


class Study(Frozen):
    """Which cells are compared, how often each is launched, and how long that may take."""

    name: Name
    title: Text
    scaling_mode: ScalingMode
    workloads: Names = option(
        ..., "Workloads, e.g. hep_cnn,resnet50, or all; a file of your own: mine.py.", "What"
    )
    frameworks: Names = option(..., "Frameworks: torch, tensorflow, or all for both.", "What")
    backends: Names = option(..., "Backends, e.g. none,mpi,gloo,ring, or all.", "What")
    # Whether `all` was given: what is not usable here is then left out, with the reason.
    every_framework: bool = False
    every_backend: bool = False
    # Whether the user named them: of a study's own, those that may not span hosts are left out there.
    named_backends: bool = True
    backend_options: Options = option(
        {}, "Options of backends: horovod.cycle_time_ms=0.5|1,grpc_ps.asynchronous=true."
    )
    algorithms: Algorithms = option(
        [SYNC], "Algorithms, each with every backend that carries it: sync,easgd.", given=True
    )
    algorithm_options: Options = option({}, "Options of algorithms: easgd.interval=1|8|64.", given=True)
    shard: Literal["none", "optimizer", "parameters"] = option(
        NONE,
        "Sharded state: none, optimizer, or parameters (all of it); none,optimizer: a curve each.",
        "What",
        given=True,
    )
    split: PositiveInt | Literal["auto"] = option(
        1,
        "Ranks per sample, each with rows of it: 1,2,4, or auto: the fewest needed; a curve each.",
        "What",
        given=True,
    )
    servers: Servers = option(
        ["1/2"], "Parameter servers: numbers, or ratios to the workers such as 1/2, rounded up."
    )
    preset: Text | None = option(
        None, "Preset: paper, small or tiny; default: the system's or the workload's.", "What"
    )
    batch: PositiveInt | None = option(
        None, "Samples per step: per rank (weak) or in total (strong); 16|32: a curve each.", "What"
    )
    precision: Literal["fp32", "tf32", "bf16"] = option(
        ..., "Precision: fp32, bf16, or on GPUs tf32; fp32|bf16: a curve each.", "What"
    )
    compiled: bool = option(
        False, "Compiled networks: torch.compile, or XLA in TensorFlow; no|yes: a curve each."
    )
    device: Literal["cpu", "gpu"] = option(
        "cpu", "Device: cpu, or gpu (one per rank); default: gpu where the system has any.", "Where"
    )
    skip_bad: bool = option(False, "Skip and count samples that cannot be read, instead of failing.")
    ranks: Sizes | None = option(
        None, "Numbers of ranks: 1,2,4, 1:8 or 1:512:x2; default: 1 to one per core.", "Where"
    )
    nodes: Sizes | None = option(
        None, "Numbers of nodes, instead of --ranks, on a system with a scheduler.", "Where"
    )
    base: Base | Literal["own"] | None = option(
        None, "Base case: 1 rank (default), own (of each backend, too), a full node, or the smallest number."
    )
    ranks_per_node: PositiveInt | None = option(
        None, "Ranks per node, on a system with a scheduler; default: the system's."
    )
    partition: Text | None = option(None, "Partition; default: the system's.", "Where")
    launches: NumLaunches | None = option(
        None, "Launches per cell; default: as many as the comparisons of backends need.", "How long"
    )
    budget: Duration | None = option(
        None, "Wall time for the study, e.g. 240s, 4min or 1h; default: the shortest windows.", "How long"
    )
    controls: Annotated[list[StudyControl], BeforeValidator(_read_controls)] = option(
        [], "Controls beside the trainings, or none."
    )
    reference_launches: int = option(
        0, "Launches of 1 rank on all cores, as a reference.", ge=0, le=MOST_LAUNCHES
    )
    seed: int = option(1, "Seed for launch order and initial weights.", ge=0, le=LARGEST_SEED)
    rules: Rules = Rules()
    environment_variables: dict[Text, Text] = option(
        {}, "Environment variables of the launches: MPICH_ASYNC_PROGRESS=0|1.", given=True
    )
    axes: dict[Text, list[Setting]] = where_given({})  # setting -> its values
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

    def values_of(self, setting: str) -> list[Any]:
        """All values of an axis among the fields: `study.values_of("shard")`."""
        return list(self.axes.get(setting, [getattr(self, setting)]))

    def variants(self, *owners: str) -> list[Study]:
        """The studies of one value of each axis; the first has all first values.

        Axes of options are those of `owners`, a backend and an algorithm, alone. Raises UsageError for a value that is
        not valid, and for too many variants.
        """
        own = {
            name: values
            for name, values in self.axes.items()
            if "." not in name or name.partition(".")[0] in owners
        }
        if (number := math.prod(map(len, own.values()))) > MOST_VARIANTS:
            raise UsageError(
                f"the axes {', '.join(own)} make {number} curves of {', '.join(owners[:1])}, and {MOST_VARIANTS} are "
                "the most; give fewer values"
            )
        if not own:
            return [self]
        fields = self.model_dump() | {"axes": {}}
        try:
            return [
                Study.model_validate(placed(fields, dict(zip(own, chosen, strict=True))))
                for chosen in product(*own.values())
            ]
        except ValidationError as error:
            raise UsageError(f"study {self.name}: {definitions.first_problem(error)}") from None

    @model_validator(mode="before")
    @classmethod
    def _read_axes(cls, values: Any) -> Any:
        """Moves lists of values to `axes`; the fields keep the first ones."""
        if not isinstance(values, dict):
            return values
        known = values.get("axes") or {}
        if not (isinstance(known, dict) and all(isinstance(several, list) for several in known.values())):
            raise ValueError("axes is no table of lists; give e.g. batch = [16, 32] without it")
        variables = values.get(VARIABLES)
        for name in [*(variables if isinstance(variables, dict) else ()), *filter(VARIABLE.fullmatch, known)]:
            check_variable(name)
        axes = known | {name: value for name, value in settings_in(values) if isinstance(value, list)}
        if not axes:
            return values
        for name, several in axes.items():
            checked_values(several, what=name)
        fields = placed(values, {name: several[0] for name, several in axes.items()})
        fields["axes"] = {name: several for name, several in axes.items() if len(several) > 1}
        return fields

    @model_validator(mode="after")
    def _check_learning_rate(self) -> Study:
        if (rule := self.target and self.target.rule) and not self.target.learning_rate:
            raise ValueError(
                f"optimizer {rule.name} needs a learning rate: the workloads' are those of their own optimizers; "
                "set target.learning_rate"
            )
        return self


# Tables of a study's fields.
TABLES: dict[str, type[Frozen]] = {"rules": Rules, "target": TargetRules}


def place_of(name: str) -> tuple[str, ...]:
    """Where a field or a setting is in a study: ("target", "optimizer"), ("backend_options", "ring", "teams")."""
    owner, dot, option = name.partition(".")
    if owner in TABLES and dot:
        return (owner, option)
    if dot:
        return (OPTION_TABLES[owner in ALGORITHMS], owner, option)
    if name in TARGET_AXES:
        return ("target", name)
    return (VARIABLES, name) if VARIABLE.fullmatch(name) else (name,)


def settings_in(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """(name, value) of what may be an axis among the fields of a study."""
    yield from ((name, fields[name]) for name in AXES if name in fields)
    tables = {name: fields.get(name) for name in ("target", VARIABLES, *OPTION_TABLES)}
    known = {name: value for name, value in tables.items() if isinstance(value, dict)}
    yield from ((name, value) for name, value in known.get("target", {}).items() if name in TARGET_AXES)
    yield from known.get(VARIABLES, {}).items()
    for table in OPTION_TABLES:
        for owner, options in known.get(table, {}).items():
            if isinstance(options, dict):
                yield from ((f"{owner}.{option}", value) for option, value in options.items())


def placed(fields: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a study with these settings in place. Raises ValueError for those of a target that is not there.

    A field that should be a table and is none stays as it is, to be refused as a field.
    """
    changed = dict(fields)
    for name, value in settings.items():
        *tables, last = place_of(name)
        place = changed
        for table in tables:
            inner = place.get(table)
            if table == "target" and not isinstance(inner, dict):
                raise ValueError(f"{name} is of a study's target, and this study has none; leave it out")
            if not isinstance(inner, dict | None):
                break
            place[table] = dict(inner or {})
            place = place[table]
        else:
            place[last] = str(value) if tables == [VARIABLES] else value
    return changed


def checked_values(values: list[Any], *, what: str) -> list[Any]:
    """The values of an axis. Raises ValueError if there is none, or one is empty or there twice."""
    if not values or "" in values:
        raise ValueError(f"{what} has an empty value; write values as in 16|32")
    for place, value in enumerate(values):  # true is not 1
        if any(
            value == other and isinstance(value, bool) == isinstance(other, bool) for other in values[:place]
        ):
            raise ValueError(f"{what} has the value {value} twice; give each once")
    return values


def check_variable(name: str) -> None:
    """Returns if a study may set that environment variable. Raises ValueError."""
    if not VARIABLE.fullmatch(name):
        raise ValueError(f"{name!r} is no environment variable; give a name in capitals")
    if OWN_VARIABLES.fullmatch(name):
        raise ValueError(f"{name} is dlscale's own: it follows from the ranks and the system's placement")
    if SECRET.search(name):
        raise ValueError(
            f"{name} looks like a secret, which would be in every record; choose another variable"
        )


def load_study(name: str, /, *, system: System | None = None, **changes: Any) -> Study:
    """The study of that name or TOML file, with the `changes` that are not None. Raises UsageError.

    What neither they nor a file of the user's own say is as the system has it, then as the named study has it.
    """
    study = definitions.load(Study, name, folder="study/studies")
    own = study.model_fields_set if name.endswith(".toml") else set()
    changes = {field: value for field, value in changes.items() if value not in (None, {})}
    for kind, known in EVERYTHING.items():
        if changes.get(kind) == ["all"]:
            changes[kind] = list(known)
            if kind != "workloads":
                changes[f"every_{kind.removesuffix('s')}"] = True
    if system:
        defaults = system_defaults(study, system, changes).items()
        changes = {field: value for field, value in defaults if field not in own} | changes
    if "backends" not in own | changes.keys():
        changes["named_backends"] = False
        if changes.get("device", study.device) == "gpu":
            gpu_backend = system.devices.backend if system and system.devices else GPU_BACKEND
            changes["backends"] = ["none", gpu_backend]
    if study.target is None and (asked := changes.get("target")):
        raise UsageError(
            f"study {name} has no target, which belongs to time-to-solution: leave target.{next(iter(asked))} out, or "
            "run that study"
        )
    values = _merged(_without_left_out(study, changes), changes)
    named = {setting for setting, _ in settings_in(changes)}
    # An axis of the study's own gives way to what the user names.
    values["axes"] = changes.get("axes", {}) | {
        setting: several for setting, several in values.get("axes", {}).items() if setting not in named
    }
    try:
        return Study.model_validate(values)
    except ValidationError as error:
        problem = definitions.first_problem(error).removeprefix("the file: ")
        raise UsageError(f"study {values['name']}: {problem}") from None


def system_defaults(study: Study, system: System, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a system has values for; those of a preset only where the user names no other."""
    values: dict[str, Any] = {"device": system.default_device}
    if (own := system.defaults) and study.target is None:  # goals are those of the study's own presets
        values["frameworks"] = own.frameworks
        if changes.get("preset") in (None, own.preset):
            batch = own.local_batch if study.scaling_mode == "weak" else None
            values |= {"preset": own.preset, "batch": batch}
    return {field: value for field, value in values.items() if value is not None}


def _without_left_out(study: Study, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The study's fields without its own options of backends and algorithms that the user leaves out of it."""
    values = study.model_dump()
    for table, kind, known in zip(
        OPTION_TABLES, ("backends", "algorithms"), (BACKENDS, ALGORITHMS), strict=True
    ):
        gone = set(known) - set(changes.get(kind) or known) - set(changes.get(table) or ())
        values[table] = {
            owner: options for owner, options in values.get(table, {}).items() if owner not in gone
        }
        axes = values.get("axes", {})
        values["axes"] = {
            name: several for name, several in axes.items() if name.partition(".")[0] not in gone
        }
    return values


def _merged(own: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A table with changes, those of its tables merged likewise; an empty table replaces one."""
    return {**own} | {
        name: _merged(own.get(name) or {}, value) if isinstance(value, dict) and value else value
        for name, value in changes.items()
    }


STUDY_FILE = "study.json"


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


def read_study_file(folder: Path) -> StudyFile:
    """The study in a folder. Raises UsageError if its file is missing or invalid."""
    return read_json(
        StudyFile,
        folder / STUDY_FILE,
        remedy="give the folder of a study, or run it again to write a new one",
    )
