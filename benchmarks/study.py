"""From what a user asks for to the cases that answer it, in randomised blocks."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Literal

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt, ValidationError, field_validator

from dlscale.benchmarks import definition
from dlscale.benchmarks.definition import one_of
from dlscale.benchmarks.measure import Rules
from dlscale.benchmarks.record import Case, Cell, Control, Frozen, Setting
from dlscale.benchmarks.units import parse_seconds
from dlscale.collectives import NAMES as BACKENDS
from dlscale.collectives import capabilities
from dlscale.models import NAMES as WORKLOADS
from dlscale.models import load_workload
from dlscale.models.errors import UsageError

START_SECONDS = 2.4  # of a launch until its first window: imports, connection, gates
WARM_UP_SHARE = 1.35  # of a case's windows, warm-up included


class Study(Frozen):
    """A question: which cells are compared, how often each is launched, and how long that may take."""

    name: str
    title: str
    scaling_mode: Literal["weak", "strong"]
    workloads: list[str]
    frameworks: list[str]
    backends: list[str]
    backend_options: dict[str, dict[str, Setting]] = {}
    preset: str | None = None  # None: each workload's default
    precision: str
    ranks: list[PositiveInt] | None = None  # None: up to the machine's cores
    launches: PositiveInt
    budget: PositiveFloat  # seconds; written as "4min" and the like
    controls: list[Literal["synthetic", "loader"]] = []
    reference_launches: NonNegativeInt = 0
    seed: int = 1  # of the order within blocks and of initial weights
    rules: Rules = Rules()

    @field_validator("budget", mode="before")
    @classmethod
    def _read_budget(cls, value: Any) -> Any:
        return parse_seconds(value) if isinstance(value, str) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Cases that share one mpiexec: the training and the controls of one backend on one number of ranks."""

    cases: tuple[Case, ...]
    data: Path | None

    @property
    def cell(self) -> Cell:
        """The first case's cell; backend, ranks and resources are those of all."""
        return self.cases[0].cell

    @property
    def id(self) -> str:
        """Readable, unique within a study, and safe as a file name."""
        return self.cases[0].id


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A study made concrete for a machine: its launches in the order in which they will run."""

    study: Study
    launches: tuple[Launch, ...]
    num_cores: int
    warnings: tuple[str, ...] = field(default=())

    @property
    def digest(self) -> str:
        """Equal for plans that measure the same cells in the same way."""
        cells = sorted({case.id for launch in self.launches for case in launch.cases})
        text = json.dumps([self.study.model_dump(mode="json"), cells], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def case_seconds(self) -> float:
        """Wall time for one case: its share of the budget, or the least that the rules need if that is more."""
        num_cases = sum(len(launch.cases) for launch in self.launches)
        rules = self.study.rules
        least = rules.min_windows * rules.min_window_seconds * WARM_UP_SHARE
        return max(least, (self.study.budget - START_SECONDS * len(self.launches)) / max(1, num_cases))

    def seconds(self, launches: Sequence[Launch]) -> float:
        """Estimated wall time of some launches."""
        return sum(START_SECONDS + self.case_seconds * len(launch.cases) for launch in launches)


def load_study(name: str, **changes: Any) -> Study:
    """The study of that name or TOML file, with those of `changes` that are not None; UsageError if wrong."""
    if name == "time-to-solution":
        raise UsageError(
            "study time-to-solution is not there yet: it comes with prediction; use weak-scaling or strong-scaling"
        )
    study = definition.load(Study, name, folder="studies")
    rules = {key: value for key, value in changes.pop("rules", {}).items() if value is not None}
    values = study.model_dump() | {key: value for key, value in changes.items() if value is not None}
    values["rules"] = values["rules"] | rules
    try:
        return Study.model_validate(values)
    except ValidationError as error:
        raise UsageError(f"study {name}: {definition.first_problem(error)}") from None


def default_ranks(num_cores: int) -> list[int]:
    """Powers of two up to the cores, 3 among them as a size that is none (M6), and the cores themselves."""
    powers = [1 << exponent for exponent in range(num_cores.bit_length()) if 1 << exponent <= num_cores]
    return sorted({*powers, *([3] if num_cores >= 3 else []), num_cores})


def expand(study: Study, *, environment: str, num_cores: int, data: Path | None) -> Plan:
    """All launches of a study. One block holds one launch of every cell, base cases included (M4).

    Cores and threads per rank are constants of the study: the machine's cores over the largest number of
    ranks. Raises UsageError for unknown names and for a global batch that the ranks do not divide.
    """
    ranks = sorted(set(study.ranks or default_ranks(num_cores)))
    cores_per_rank = max(1, num_cores // ranks[-1])
    groups: list[list[tuple[Cell, Path | None]]] = []
    references: list[list[tuple[Cell, Path | None]]] = []
    for workload, framework in product(study.workloads, study.frameworks):
        maker = _CellMaker(study, workload, framework, environment, data)
        for backend, num_ranks in product(study.backends, ranks):
            controls: list[Control] = ["train"]
            if not capabilities(one_of("backend", backend, BACKENDS)).exchanges:
                controls += study.controls
            groups.append([maker.cell(backend, num_ranks, cores_per_rank, control) for control in controls])
        if study.reference_launches and cores_per_rank < num_cores:
            references.append([maker.cell("none", 1, num_cores, "whole_machine")])
    return Plan(
        study=study,
        launches=tuple(_blocks(study, groups, references)),
        num_cores=num_cores,
        warnings=_warnings(ranks, num_cores),
    )


class _CellMaker:
    """The cells of one workload in one framework."""

    def __init__(
        self, study: Study, workload: str, framework: str, environment: str, data: Path | None
    ) -> None:
        facts = load_workload(one_of("workload", workload, WORKLOADS))
        one_of(f"framework with {workload}", framework, facts.modules)
        one_of(f"precision with {workload}", study.precision, facts.precisions)
        self._study, self._framework, self._environment = study, framework, environment
        self._facts, self._preset = facts, facts.preset(study.preset)
        self._source = facts.input(self._preset.name, data)
        self._data_name = "synthetic" if self._source.path is None else _name_of(self._source.path)

    def cell(
        self, backend: str, num_ranks: int, cores_per_rank: int, control: Control
    ) -> tuple[Cell, Path | None]:
        """One cell and the file that it reads."""
        row = capabilities(backend)
        if self._framework not in row.frameworks:
            raise UsageError(
                f"backend {backend} does not train in {self._framework}; it does in: {', '.join(row.frameworks)}"
            )
        local_batch, global_batch = self._batches(num_ranks)
        cell = Cell(
            workload=self._facts.name,
            preset=self._preset.name,
            framework=self._framework,
            backend=backend,
            backend_options=self._study.backend_options.get(backend, {}),
            environment=self._environment,
            scaling_mode=self._study.scaling_mode,
            num_ranks=num_ranks,
            cores_per_rank=cores_per_rank,
            threads_per_rank=cores_per_rank,
            local_batch=local_batch,
            global_batch=global_batch,
            precision=self._study.precision,
            control=control,
            data=self._data_name,
        )
        return cell, self._source.path

    def _batches(self, num_ranks: int) -> tuple[int, int]:
        preset = self._preset
        if self._study.scaling_mode == "weak":
            return preset.local_batch, preset.local_batch * num_ranks
        if preset.global_batch % num_ranks:
            divisors = [str(n) for n in range(1, preset.global_batch + 1) if preset.global_batch % n == 0]
            raise UsageError(
                f"strong scaling of {self._facts.name} ({preset.name}): global batch {preset.global_batch} is "
                f"not a multiple of {num_ranks} ranks; choose RANKS from: {', '.join(divisors)}"
            )
        return preset.global_batch // num_ranks, preset.global_batch


def _blocks(
    study: Study,
    groups: Sequence[list[tuple[Cell, Path | None]]],
    references: Sequence[list[tuple[Cell, Path | None]]],
) -> list[Launch]:
    order = random.Random(study.seed)  # noqa: S311 - an order, not a secret
    launches = []
    for block in range(study.launches):
        members = [*groups, *(references if block < study.reference_launches else [])]
        order.shuffle(members)
        for position, group in enumerate(members):
            cases = tuple(Case(cell=cell, block=block, position=position) for cell, _ in group)
            paths = [path for _, path in group if path]
            launches.append(Launch(cases=cases, data=paths[0] if paths else None))
    return launches


def _warnings(ranks: Sequence[int], num_cores: int) -> tuple[str, ...]:
    over = [num_ranks for num_ranks in ranks if num_ranks > num_cores]
    if not over:
        return ()
    names = ", ".join(str(num_ranks) for num_ranks in over)
    return (
        f"{names} ranks share {num_cores} cores: they take turns, and MPI's waiting takes time from the "
        "others' work; the records say oversubscribed",
    )


def _name_of(path: Path) -> str:
    """File name and content of an input, as it stands in the cell."""
    with path.open("rb") as file:
        return f"{path.name}:{hashlib.file_digest(file, 'sha256').hexdigest()[:12]}"
