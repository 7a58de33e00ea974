"""The unit of comparison and its launches: a study expands to cells, and a cell is measured in several cases."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import cached_property, lru_cache
from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from dlscale.base.definitions import Frozen, where_given
from dlscale.base.strings import Name, Text
from dlscale.collectives.algorithms.registry import SYNC
from dlscale.collectives.sharding import NONE
from dlscale.models import load_workload
from dlscale.models.optimizers import OptimizerRule, RateSchedule
from dlscale.models.own import OwnModel, own_workload
from dlscale.models.workload import Preset, Workload

Setting = Text | int | float | bool
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
    held_out: float = Field(gt=0, lt=1)  # share of the samples (`models/held_out.py`)
    evaluate_every: PositiveInt  # steps
    max_seconds: PositiveFloat  # training and evaluating; then the training ends short of the target
    max_samples: PositiveInt | None = where_given(None)  # likewise, over all ranks
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
    split: PositiveInt = where_given(1)
    environment: Text
    variables: dict[Text, Text] = where_given({})  # of the environment, that the study sets
    scaling_mode: ScalingMode
    num_ranks: PositiveInt
    num_servers: NonNegativeInt = 0
    num_nodes: PositiveInt = 1
    cores_per_rank: PositiveInt
    threads_per_rank: PositiveInt
    local_batch: PositiveInt  # samples per replica (a rank, where it has whole samples) and step
    global_batch: PositiveInt  # samples per step over all ranks
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
    def options(self) -> dict[str, Setting]:
        """The backend's options and the algorithm's, for names and orders."""
        return self.backend_options | self.algorithm_options

    @property
    def num_processes(self) -> int:
        """The ranks of the launch: workers and servers."""
        return self.num_ranks + self.num_servers

    @cached_property
    def id(self) -> str:
        """Readable, unique, and safe as a file name."""
        return (
            f"{self.workload}-{self.preset}-{self.framework}-{self.backend}-{self.num_ranks}r"
            f"-{self.control}-{_digest(self.model_dump_json())}"
        )


@lru_cache(maxsize=4096)
def _digest(text: str) -> str:
    """8 digits for a JSON table, whatever order its names have; a study has many objects of each cell."""
    return hashlib.sha256(json.dumps(json.loads(text), sort_keys=True).encode()).hexdigest()[:8]


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
    block: NonNegativeInt  # also the index of the cell's launch: one launch per cell and block
    position: NonNegativeInt  # in the block's randomised order

    @cached_property
    def id(self) -> str:
        """Readable, unique within a study, and safe as a file name."""
        return f"{self.cell.id}-{self.block:02d}"


# They vary less than a training: shorter windows, and no more than the rules ask for.
SHORT_CONTROLS = ("exchange", "halos", "loader")
WITHOUT_SAMPLES = ("exchange", "halos")  # those that communicate only


def num_sharing(cases: Iterable[Case]) -> int:
    """The number of cases that share a launch's time: all but the short controls."""
    return sum(case.cell.control not in SHORT_CONTROLS for case in cases)
