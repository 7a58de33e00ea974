"""Families of comparable points, and the base case of each point.

A family is everything that a point has in common with its base case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.prediction import PredictionRecord
from dlscale.benchmarks.records.record import Base

# Titles and file names name only values other than these.
DEFAULT_DEVICE = "cpu"


# Of samples, by scaling mode: what does not change along a curve.
_BATCHES = {
    "weak": "per rank and step",
    "strong": "per step over all ranks",
}


class _OfCell(Protocol):
    @property
    def cell(self) -> Cell: ...


T = TypeVar("T", bound=_OfCell)


def on_most_ranks(items: Iterable[T]) -> list[T]:
    """Those of the cells with the largest number of ranks among them."""
    items = list(items)
    most = max((item.cell.num_ranks for item in items), default=0)
    return [item for item in items if item.cell.num_ranks == most]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Family:
    """Everything that a point shares with its base case: all of the cell but backend, ranks and control.

    Cores and threads per rank belong to it, so a base case never has more cores per rank than the point.
    """

    system: str
    workload: str
    preset: str
    framework: str
    environment: str  # with the variables that the study sets
    scaling_mode: str
    precision: str
    compiled: bool
    device: str
    tokens_per_sample: int = field(
        default=0, repr=False, compare=False
    )  # follows; 0 where samples are no sequences
    data: str
    cores_per_rank: int
    threads_per_rank: int
    batch: int  # samples: per rank for weak scaling, over all ranks for strong; constant along a curve

    @property
    def constants(self) -> str:
        """What does not change along a curve, in words."""
        whose = _BATCHES[self.scaling_mode]
        compiler = "XLA" if self.framework == "tensorflow" else "torch.compile"
        return ", ".join(
            [
                f"{self._samples} {whose}",
                self.precision,
                *(compiler if variant == "compiled" else variant for variant in self._variants),
                f"{self.cores_per_rank} core{'s' * (self.cores_per_rank > 1)} per rank",
                *self.environment.split(", ")[1:],
            ]
        )

    @property
    def _samples(self) -> str:
        """`8 samples`, or what a sample is: `8 sequences of 128 tokens`."""
        ending = "s" * (self.batch > 1)
        if self.tokens_per_sample:
            return f"{self.batch} sequence{ending} of {self.tokens_per_sample} tokens"
        return f"{self.batch} sample{ending}"

    @property
    def title(self) -> str:
        how = " ".join([self.framework, *self._variants])
        return f"{self.workload} {self.preset}, {how}, {self.scaling_mode} scaling on {self.system}"

    @property
    def file_stem(self) -> str:
        """The start of file names: `hep_cnn-tiny-torch-weak-fp32-compiled`. May be equal for two families."""
        what = (self.workload, self.preset, self.framework, self.scaling_mode, self.precision)
        return "-".join([*what, *(re.sub(r"[^\w.]+", "-", variant) for variant in self._variants)])

    @property
    def _variants(self) -> list[str]:
        """The settings that differ from the defaults: compilation, device."""
        return [
            *(["compiled"] if self.compiled else []),
            *([self.device] if self.device != DEFAULT_DEVICE else []),
        ]

    def covers(self, reference: Family) -> bool:
        """Whether a whole-machine reference belongs to this family: equal except for resources and batch."""
        mine, theirs = (
            replace(family, cores_per_rank=0, threads_per_rank=0, batch=0) for family in (self, reference)
        )
        return mine == theirs


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SeveralFamilies(Family):
    """What families of one study have in common, for figures of all their curves; a curve's name has the rest."""

    @property
    def constants(self) -> str:
        """What no curve changes; the rest is in their names."""
        cores = f"{self.cores_per_rank} core{'s' * (self.cores_per_rank > 1)} per rank"
        return f"{cores}; each curve is relative to base cases of its own"


def common_family(family: Family) -> SeveralFamilies:
    """The family without batch, precision, compilation and variables."""
    fields = {name: getattr(family, name) for name in Family.__dataclass_fields__}
    own: dict[str, object] = {"batch": 1, "precision": "", "compiled": False}
    return SeveralFamilies(**fields | own | {"environment": family.environment.split(", ")[0]})


def environment_text(cell: Cell) -> str:
    """The environment with the variables that the study sets: `default, MPICH_ASYNC_PROGRESS=1`."""
    return ", ".join(
        [cell.environment, *(f"{name}={value}" for name, value in sorted(cell.variables.items()))]
    )


def family_of(cell: Cell, *, system: str) -> Family:
    """The family that a cell belongs to."""
    return Family(
        system=system,
        workload=cell.workload,
        preset=cell.preset,
        framework=cell.framework,
        environment=environment_text(cell),
        scaling_mode=cell.scaling_mode,
        precision=cell.precision,
        compiled=cell.compiled,
        device=cell.device,
        tokens_per_sample=tokens_per_sample(cell),
        data=cell.data,
        cores_per_rank=cell.cores_per_rank,
        threads_per_rank=cell.threads_per_rank,
        batch=cell.batch,
    )


def tokens_per_sample(trained: Cell | PredictionRecord) -> int:
    """The tokens of a sample; 0 where it is no sequence, or its workload is not known here."""
    try:
        return trained.preset_facts.tokens_per_sample
    except (UsageError, ImportError):  # of another version's records
        return 0


def curve_order(family: Family, cell: Cell, evidence: str) -> tuple[object, ...]:
    """Orders the points of curves: by family, backend and options, and each curve's by its ranks."""
    options = tuple(sorted((name, str(value)) for name, value in cell.options.items()))
    return family, cell.method, options, cell.num_ranks, cell.num_servers, cell.num_nodes, evidence


def base_ranks(cells: Iterable[Cell], base: Base) -> int:
    """The number of ranks of the base cases of a family, whose cells these are; 1 where there is no other."""
    trained = [cell for cell in cells if cell.control == "train"]
    if base == "node":
        return max((cell.num_ranks for cell in trained if cell.num_nodes == 1), default=1)
    if base == "smallest":
        return min((cell.num_ranks for cell in trained), default=1)
    return 1


def base_cell(
    cell: Cell, candidates: Iterable[Cell], *, same_backend: bool, num_ranks: int = 1
) -> Cell | None:
    """The base case of `cell`'s efficiency, from the cells of the same family; None if missing.

    It trains on `num_ranks`, with backend `none`, no communication layer, or with the same backend, algorithm and
    options. If several differ in servers, the one with as many servers, else the one with the fewest; likewise in ranks
    per sample.
    """
    bases = [
        base
        for base in candidates
        if base.control == "train"
        and base.num_ranks == num_ranks
        and (
            (base.base_method, base.options) == (cell.base_method, cell.options)
            if same_backend
            else base.backend == "none"
        )
    ]

    def unlike(base: Cell) -> tuple[object, ...]:
        splits = base.split != cell.split, base.split
        return base.num_servers != cell.num_servers, base.num_servers, *splits

    return min(bases, key=unlike, default=None)
