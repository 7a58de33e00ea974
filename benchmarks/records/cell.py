"""The unit of comparison and its launches: a study expands to cells, and a cell is measured in several cases.

A curve's name says backend, algorithm, what is sharded, and of the options those that differ: cells are named together.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Literal

from pydantic import Field, PositiveFloat

from dlscale.base.definitions import Frozen, where_given
from dlscale.base.strings import Name, Text
from dlscale.benchmarks.records.windows import Count, CountFromZero, Whole
from dlscale.collectives.algorithms import SYNC
from dlscale.collectives.sharding import NONE
from dlscale.models import load_workload
from dlscale.models.optimizers import OptimizerRule, RateSchedule
from dlscale.models.own import own_workload
from dlscale.models.own.model import OwnModel
from dlscale.models.workload import Preset, Workload

Setting = Text | Whole | float | bool
Control = Literal[
    "train", "synthetic", "loader", "exchange", "halos", "alone", "profile", "whole_machine", "canary"
]
ScalingMode = Literal["weak", "strong"]  # constant along a curve: samples per rank, or over all ranks
AUTO = "auto"  # ranks per sample, as a study may ask for them: as many as the batch needs
Framework = Literal["torch", "tensorflow"]
LearningRateScaling = Literal["none", "linear", "sqrt"]


class Target(Frozen):
    """The quality that a training is to reach on held-out samples, and how it goes there.

    `scaling` says how `learning_rate`, which is used, follows from the rate of 1 rank with the ratio of global batches:
    not at all, in proportion (P. Goyal et al., arXiv:1706.02677), or with the square root (A. Krizhevsky,
    arXiv:1404.5997). `schedule` says how it changes while training, and `optimizer` what it is the rate of.
    """

    metric: Text  # of the workload's `quality.METRICS`
    threshold: float
    held_out: float = Field(gt=0, lt=1)  # share of the samples (`models/samples.py`)
    evaluate_every: Count  # steps
    max_seconds: PositiveFloat  # training and evaluating; then the training ends short of the target
    max_samples: Count | None = where_given(None)  # likewise, over all ranks
    learning_rate: PositiveFloat
    scaling: LearningRateScaling = "none"
    schedule: RateSchedule | None = where_given(None)  # None: the rate is constant
    optimizer: OptimizerRule | None = where_given(None)  # None: the network's own

    def rate(self, samples: int) -> float:
        """The learning rate of the step that begins after so many samples over all ranks."""
        return self.schedule.rate(self.learning_rate, samples) if self.schedule else self.learning_rate


class Cell(Frozen):
    """The unit of comparison. Two measurements belong together if and only if their cells are equal.

    `control`: `train` is the real thing; `synthetic` trains on fixed resident tensors instead of `data`; `loader` only
    fetches batches; `exchange` only averages buckets of the sizes that the training has; `halos` only exchanges rows as
    ranks do that share samples; `alone` is one rank at the local batch of several, or with one's rows of samples, which
    shows what a smaller batch and thin blocks cost alone; `profile` trains one rank and stamps when in a step each
    gradient is complete; `whole_machine` is one rank on all cores, a reference; none of these is ever a base case.
    `canary`, in older records, is a training at the beginning and at the end of a job.

    Fields at which most cells have the default are not written there, so that ids stay when a field is added.
    """

    workload: Name
    own: OwnModel | None = where_given(None)  # a user's file, after which the workload is named
    preset: Name
    framework: Framework
    backend: Name
    backend_options: dict[Text, Setting] = {}
    algorithm: Name = where_given(SYNC)
    algorithm_options: dict[Text, Setting] = where_given({})
    shard: Name = where_given(NONE)  # the state of which a rank holds only its part
    # Ranks per sample, each with rows of it: a replica. Those of `none` compute on their rows and exchange nothing; it
    # may be 1 of them alone.
    split: Count = where_given(1)
    environment: Text
    variables: dict[Text, Text] = where_given({})  # of the environment, that the study sets
    scaling_mode: ScalingMode
    num_ranks: Count
    num_servers: CountFromZero = 0
    num_nodes: Count = 1
    cores_per_rank: Count
    threads_per_rank: Count
    local_batch: Count  # samples per replica (a rank, where it has whole samples) and step
    global_batch: Count  # samples per step over all ranks
    precision: Name
    compiled: bool = False  # torch.compile, or XLA in TensorFlow
    device: Literal["cpu", "gpu"] = "cpu"
    control: Control = "train"
    target: Target | None = where_given(None)  # None: what is measured is speed alone
    data: Text  # the study's data: "synthetic", or "<name>:<12 hex digits>" (study/cells.py)

    @property
    def facts(self) -> Workload:
        """What is known of its workload; of a user's file what the cell has. Raises UsageError for an unknown one."""
        return own_workload(self.own) if self.own else load_workload(self.workload)

    @property
    def method(self) -> str:
        """Backend, an algorithm other than synchronous SGD, and what is sharded: `ring, optimizer sharded`."""
        method = self.backend if self.algorithm == SYNC else f"{self.backend} {self.algorithm}"
        return method if self.shard == NONE else f"{method}, {self.shard} sharded"

    @property
    def batch(self) -> int:
        """The samples that are constant along its curve: per rank (weak), or over all ranks (strong)."""
        if self.scaling_mode == "strong":
            return self.global_batch
        return self.local_batch // self.split

    @property
    def preset_facts(self) -> Preset:
        """What is known of its preset."""
        return self.facts.preset(self.preset)

    @property
    def num_processes(self) -> int:
        """The ranks of the launch: workers and servers."""
        return self.num_ranks + self.num_servers

    @cached_property
    def id(self) -> str:
        """Readable, unique, safe as a file name, and the same whatever order the names of a table have."""
        text = json.dumps(json.loads(self.model_dump_json()), sort_keys=True)
        return (
            f"{self.workload}-{self.preset}-{self.framework}-{self.backend}-{self.num_ranks}r"
            f"-{self.control}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        )


def split_needed(num_ranks: int, global_batch: int) -> int:
    """The fewest ranks per sample with which a batch is dealt out evenly: ranks / batch beyond the batch."""
    return next(
        split
        for split in range(1, num_ranks + 1)
        if num_ranks % split == 0 and global_batch % (num_ranks // split) == 0
    )


class Case(Frozen):
    """One launch of a cell. The launches with equal `block` ran close in time, base cases among them."""

    cell: Cell
    block: CountFromZero  # also the index of the cell's launch: one launch per cell and block
    position: CountFromZero  # in the block's randomised order

    @cached_property
    def id(self) -> str:
        """Readable, unique within a study, and safe as a file name."""
        return f"{self.cell.id}-{self.block:02d}"


# They vary less than a training: shorter windows, and no more than the rules ask for.
SHORT_CONTROLS = ("exchange", "halos", "loader")
WITHOUT_SAMPLES = ("exchange", "halos")  # those that communicate only

# Settings of a cell that separate families, other than the options of backends.
SETTINGS = ("batch", "precision", "compiled")
OF_METHOD = ("shard", "split")  # those that a cell's method says


def options_place(cell: Cell) -> tuple[tuple[str, bool, float, str], ...]:
    """The sort key of options and variables: by name, numbers by size."""
    options = cell.backend_options | cell.algorithm_options | cell.variables

    def key(name: str, value: Setting) -> tuple[str, bool, float, str]:
        try:
            return name, False, float(value), ""
        except ValueError:
            return name, True, 0.0, str(value)

    return tuple(key(name, value) for name, value in sorted(options.items()))


def setting_of(cell: Cell, name: str) -> Setting | None:
    """The cell's value of a setting: batch along its curve, `horovod.cycle_time_ms`, a variable, or None."""
    if name == "learning_rate":
        return cell.target.learning_rate if cell.target else None
    if name in (*SETTINGS, *OF_METHOD):
        value: Setting | None = getattr(cell, name)
        return value
    owner, dot, option = name.partition(".")
    if not dot:
        return cell.variables.get(name)
    if owner == cell.algorithm:
        return cell.algorithm_options.get(option)
    return cell.backend_options.get(option) if owner == cell.backend else None


def setting_text(name: str, value: object) -> str:
    """`cycle_time_ms=5`, `batch 32`, `compiled`, `optimizer sharded`: a value in a curve's name."""
    texts = {
        "compiled": "compiled" if value else "not compiled",
        "precision": str(value),
        "shard": "not sharded" if value == NONE else f"{value} sharded",
        "learning_rate": f"learning rate {value:g}" if isinstance(value, float) else "",
    }
    if name in ("batch", "split"):
        return f"{name} {value}"
    return texts.get(name) or f"{name.partition('.')[2] or name}={value}"


def curve_names(cells: Mapping[str, Cell], *, settings: Sequence[str] = ()) -> dict[str, str]:
    """Cell id -> the name of its curve: the method, and of the options those in which the cells of its method differ.

    One set of options of a method is shown whole, as there is nothing to tell apart. With `settings`, of different
    families, the name has those of them, and the variables, in which any two trainings differ. Learning rates are in it
    where a study tries several for equal cells.
    """
    variables = sorted({name for cell in cells.values() for name in cell.variables}) if settings else []
    shared = _differing(cells.values(), [*settings, *variables])
    if rates_are_tried(cells.values()):
        shared.append("learning_rate")
    by_method: dict[str, dict[str, Cell]] = {}
    for cell_id, method in _methods(cells).items():
        by_method.setdefault(method, {})[cell_id] = cells[cell_id]
    names = {}
    for method, own in by_method.items():
        options = sorted(
            {f"{cell.backend}.{name}" for cell in own.values() for name in cell.backend_options}
            | {f"{cell.algorithm}.{name}" for cell in own.values() for name in cell.algorithm_options}
        )
        shown = _differing(own.values(), options) or options
        for cell_id, cell in own.items():
            inner, outer = (
                [setting_text(name, value) for name in part if (value := setting_of(cell, name)) is not None]
                for part in (shown, shared)
            )
            names[cell_id] = ", ".join([f"{method} ({', '.join(inner)})" if inner else method, *outer])
    return names


def _methods(members: Mapping[str, Cell]) -> dict[str, str]:
    """Cell id -> its method and how samples are split: `ring, split 2`.

    Where each number of ranks has one split, they are one curve, and 1 rank, which has whole samples, belongs to it.
    """
    along = {"num_ranks", "num_nodes", "split", "local_batch", "global_batch", "control", "data"}
    curves: dict[str, dict[str, Cell]] = {}
    for cell_id, cell in members.items():
        curves.setdefault(f"{cell.batch} {cell.model_dump_json(exclude=along)}", {})[cell_id] = cell
    methods = {}
    for own in curves.values():
        forms = {(cell.num_ranks, cell.split) for cell in own.values() if cell.control == "train"}
        beyond = {split for num_ranks, split in forms if num_ranks > 1}
        is_one = max(beyond, default=1) > 1 and len({num_ranks for num_ranks, _ in forms}) == len(forms)
        shared = AUTO if len(beyond) > 1 else max(beyond, default=1)
        for cell_id, cell in own.items():
            split = shared if is_one else cell.split
            methods[cell_id] = cell.method if split == 1 else f"{cell.method}, split {split}"
    return methods


def rates_are_tried(cells: Iterable[Cell]) -> bool:
    """Whether two cells differ in their learning rate alone; those that follow the batch do not."""
    rates: dict[str, set[float]] = {}
    for cell in cells:
        if cell.target:
            rules = cell.target.model_dump_json(exclude={"learning_rate": True, "schedule": {"first_rate"}})
            alike = f"{rules} {cell.model_dump_json(exclude={'target'})}"
            rates.setdefault(alike, set()).add(cell.target.learning_rate)
    return any(len(several) > 1 for several in rates.values())


def _differing(cells: Iterable[Cell], names: Iterable[str]) -> list[str]:
    """The settings that are not the same in all trainings."""
    cells = [cell for cell in cells if cell.control == "train"]
    return [name for name in names if len({repr(setting_of(cell, name)) for cell in cells}) > 1]
