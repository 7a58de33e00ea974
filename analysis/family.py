"""What points of one figure have in common, and which of them is whose base case."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from dlscale.benchmarks.record import Cell

# Only others are named in titles and file names.
DEFAULT_MEMORY_FORMAT = "channels_last"
DEFAULT_DEVICE = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Family:
    """Everything that a point shares with its base case: all of the cell but backend, ranks and control.

    Cores and threads per rank belong to it, so a base case never has more cores per rank than the point.
    """

    system: str
    workload: str
    preset: str
    framework: str
    environment: str
    scaling_mode: str
    precision: str
    compiled: bool
    memory_format: str
    device: str
    data: str
    cores_per_rank: int
    threads_per_rank: int
    batch: int  # samples: per rank for weak scaling, over all ranks for strong; constant along a curve

    @property
    def constants(self) -> str:
        """In words for people: what does not change along a curve."""
        whose = "per rank and step" if self.scaling_mode == "weak" else "per step over all ranks"
        compiler = "XLA" if self.framework == "tensorflow" else "torch.compile"
        return ", ".join(
            [
                f"{self.batch} sample{'s' * (self.batch > 1)} {whose}",
                self.precision,
                *(compiler if variant == "compiled" else variant for variant in self._variants),
                f"{self.cores_per_rank} core{'s' * (self.cores_per_rank > 1)} per rank",
            ]
        )

    @property
    def title(self) -> str:
        """What was trained, in words for people."""
        how = " ".join([self.framework, *self._variants])
        return f"{self.workload} {self.preset}, {how}, {self.scaling_mode} scaling on {self.system}"

    @property
    def file_stem(self) -> str:
        """The start of file names: `hep_cnn-tiny-torch-weak-fp32-compiled`. May be equal for two families."""
        what = (self.workload, self.preset, self.framework, self.scaling_mode, self.precision)
        return "-".join([*what, *self._variants])

    @property
    def _variants(self) -> list[str]:
        """What differs from the way in which a network is usually run."""
        return [
            *(["compiled"] if self.compiled else []),
            *([self.memory_format] if self.memory_format != DEFAULT_MEMORY_FORMAT else []),
            *([self.device] if self.device != DEFAULT_DEVICE else []),
        ]

    def covers(self, reference: Family) -> bool:
        """Whether a whole-machine reference belongs beside this family: equal but for resources and batch."""
        mine, theirs = (
            replace(one, cores_per_rank=0, threads_per_rank=0, batch=0) for one in (self, reference)
        )
        return mine == theirs


def family_of(cell: Cell, *, system: str) -> Family:
    """The family that a cell belongs to."""
    return Family(
        system=system,
        workload=cell.workload,
        preset=cell.preset,
        framework=cell.framework,
        environment=cell.environment,
        scaling_mode=cell.scaling_mode,
        precision=cell.precision,
        compiled=cell.compiled,
        memory_format=cell.memory_format,
        device=cell.device,
        data=cell.data,
        cores_per_rank=cell.cores_per_rank,
        threads_per_rank=cell.threads_per_rank,
        batch=cell.local_batch if cell.scaling_mode == "weak" else cell.global_batch,
    )


def base_cell(cell: Cell, candidates: Iterable[Cell], *, same_backend: bool) -> Cell | None:
    """Of the cells of the same family, the one that `cell`'s efficiency is relative to; None if missing.

    It trains on 1 rank: (a) with backend `none`, no communication layer; (b) with the same backend and
    options. Of several that differ in servers it is the one with as many servers, else with the fewest.
    """
    found = [
        base
        for base in candidates
        if base.control == "train"
        and base.num_ranks == 1
        and (
            (base.backend, base.backend_options) == (cell.backend, cell.backend_options)
            if same_backend
            else base.backend == "none"
        )
    ]
    return min(found, key=lambda base: (base.num_servers != cell.num_servers, base.num_servers), default=None)
