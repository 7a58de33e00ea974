"""What a workload states about itself, and what it gives to a backend to train.

Nothing here imports a framework: `Workload.factory` does, on demand, from the workload's underscore module.
Shapes use one legend: N samples, C channels, H height, W width, P ranks.

Weights and gradients cross the border of a replica in one canonical layout, that of TensorFlow: kernels of
convolutions (H, W, in, out), of transposed convolutions (H, W, out, in), of dense layers (in, out). So the two
frameworks' replicas of a workload can exchange weights and be compared number by number.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dlscale.base.errors import UsageError, did_you_mean
from dlscale.models.frameworks import FRAMEWORKS, framework_module
from dlscale.models.layers import Layer
from dlscale.models.optimizers import OptimizerRule
from dlscale.models.parallel import Neighbours, Rows, deal_rows

SYNTHETIC = Path("synthetic")  # in the place of a data file

Weights = list[NDArray[Any]]
"""Trainable weights in canonical order and layout: objectives in order, each one's parameters as registered."""

Indices = NDArray[np.int64]

State = dict[str, NDArray[Any]]
"""All that a training's next steps depend on, by name: weights, what batch norm remembers, what optimizers keep, and
the number of batches drawn. Names and layouts are the framework's own: it fits a replica of the same cell."""

WEIGHT = "weight"  # of what a step changes: trainable weights are `weight.<place>`
SLOTS = "optimizer"  # how names of what optimizers keep begin, with the optimizer's number
NUM_DRAWN = "num_drawn"  # batches: the number of the next step


def counted(num_drawn: int) -> NDArray[np.int64]:
    """The number of batches as an array."""
    return np.array([num_drawn], dtype=np.int64)


def check_names(state: State, wanted: Mapping[str, Iterable[int]]) -> None:
    """Returns if the state has exactly those names and shapes. Raises UsageError."""
    missing, unknown = sorted(set(wanted) - set(state)), sorted(set(state) - set(wanted))
    if missing or unknown:
        what = f"without {missing[0]}" if missing else f"with {unknown[0]}, which is unknown here"
        raise UsageError(f"the checkpoint belongs to another training: {what}")
    for name, shape in wanted.items():
        if state[name].shape != tuple(shape):
            raise UsageError(
                f"the checkpoint belongs to another training: {name} has shape {state[name].shape}, here {tuple(shape)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """The part of every global batch that one rank trains on: `index` of `count`.

    With `neighbours` it is the part of a replica of several ranks, of which each trains on its rows of all samples.
    """

    index: int = 0
    count: int = 1
    neighbours: Neighbours | None = None  # None: whole samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One size of a workload. Batches are samples; `source` says where shape and batches come from."""

    name: str
    input_shape: tuple[int, ...]  # (C, H, W), (T,) tokens; of a user's own model its first input's
    num_parameters: int  # trainable
    forward_flops_per_sample: int  # 2 per multiply-add of convolutions and matrix products, no others
    local_batch: int  # per rank, held constant in weak scaling
    global_batch: int  # over all ranks, held constant in strong scaling
    source: str
    learning_rate: float  # of every objective's optimizer
    num_classes: int = 0  # labels are 0 .. num_classes - 1; 0 where there are no labels
    tokens_per_sample: int = 0  # 0 where a sample is no sequence
    block_rows: int = 0  # the product of all strides, where ranks can share a sample by rows; 0: they cannot

    @property
    def largest_split(self) -> int:
        """The most ranks that can share a sample: its blocks of rows; 1 where it stays whole."""
        return max(1, self.input_shape[1] // self.block_rows) if self.block_rows else 1

    def rows(self, neighbours: Neighbours) -> Rows:
        """A rank's rows of every sample. Raises UsageError where samples stay whole, or have too few blocks."""
        if not self.block_rows:
            raise UsageError(
                f"split {neighbours.split} was asked for, but samples of preset {self.name} stay whole; leave it out"
            )
        return deal_rows(
            self.input_shape[1], block_rows=self.block_rows, index=neighbours.index, split=neighbours.split
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How a framework runs the network; a part of what is compared, and recorded.

    `precision` bf16 computes in bfloat16 and keeps weights, gradients and updates in float32 (autocast in torch, the
    mixed-precision policy in TensorFlow); tf32 is float32 of which a GPU rounds the factors of products; fp64, for
    references alone, computes in float64. `compiled` is torch.compile, or XLA in TensorFlow. On `device` gpu a replica
    lives on the GPU that its process has taken (`prepare`).
    """

    precision: str = "fp32"
    compiled: bool = False
    device: str = "cpu"  # one of DEVICES
    learning_rate: float | None = None  # of every optimizer; None: the workload's own
    optimizer: OptimizerRule | None = None  # of every objective; None: the network's own


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """The source of local batches: a data file or folder, or fixed resident tensors (`synthetic`).

    `skip_bad`: a sample that cannot be read is left out and counted, instead of ending the training. `held_out` is the
    share of the samples that no batch has, for measuring quality. Trainings with another `order` see the samples in
    another one.
    """

    path: Path | None = None
    skip_bad: bool = False
    held_out: float = 0.0
    order: int = 0

    @property
    def synthetic(self) -> bool:
        """True if every step trains on the same tensors, so that no time goes into reading."""
        return self.path is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One mean loss over a local batch, and the parameters that it, alone, is differentiated for.

    How the loss is computed is between a framework's replicas and its integration.
    """

    names: tuple[str, ...]  # of the parameters
    parameters: tuple[Any, ...]
    optimizer: Any


class Replica(Protocol):
    """One rank's single-device training program. It knows nothing of ranks."""

    framework: str  # that it is written in, one of `FRAMEWORKS`
    device: str  # to compute on, one of DEVICES
    objectives: Sequence[Objective]  # in order; all are differentiated and exchanged before any is updated

    def next_batch(self) -> tuple[Any, ...]:
        """The next local batch, ready to be given to every objective's loss."""

    def weights(self) -> Weights:
        """Copies of the trainable weights."""

    def load(self, weights: Weights) -> None:
        """Overwrite the trainable weights."""

    def gradients(self) -> Weights:
        """This replica's own mean gradients on the next local batch, in the order of `weights`.

        New arrays without gaps, whose axes may lie in memory in another order, the same on all shards.
        """

    def apply(self, gradients: Weights) -> None:
        """Update the weights once by every objective's optimizer, with these gradients in the order of `weights`."""

    def losses(self) -> list[float]:
        """Mean losses of the last `gradients`, one per objective; none before the first."""

    def learning_rate(self) -> float:
        """That of the first objective's optimizer, which all have where nobody set them one by one.

        Raises UsageError for an optimizer whose rate cannot be read.
        """

    def set_learning_rate(self, learning_rate: float) -> None:
        """From the next step on, every optimizer has that rate; a trainer that holds the replica too.

        Raises UsageError where the rate is fixed: in a graph of TensorFlow 1.
        """

    def last_samples(self) -> Indices | None:
        """Indices of the samples in the last local batch; None where all steps train on the same tensors."""

    def num_samples(self) -> int:
        """Samples of the input; 0 where all steps train on the same tensors."""

    def slots(self) -> State:
        """What the optimizers keep, as `state` names it: valid until the next step or `restore`, not to be changed."""

    def held(self, *, slots: bool = True) -> State:
        """The trainable weights as `weight.<place>`, the number of batches drawn, and `slots`; as little is copied.

        Valid and not to be changed like `slots`. Elements of an array are in an order of the framework's own.
        """

    def names(self) -> list[str]:
        """Names of the trainable weights, in the order of `weights`; the same in both frameworks."""

    def outputs(self) -> Weights:
        """The networks' outputs for the next local batch, as training sees it: logits (N, ...), float32."""

    def state(self) -> State:
        """Copies of all that the next steps depend on."""

    def restore(self, state: State) -> None:
        """Go on where a replica of the same cell was when it gave its `state`, as often as it is asked to.

        A replica that a trainer holds has to be restored before its first step. Raises UsageError if the state is of
        another replica.
        """

    def predict(self, *samples: NDArray[Any]) -> NDArray[Any]:
        """(N, ...) of samples as `samples.Samples.read` gives them, as after training: without dropout."""

    def num_skipped(self) -> int:
        """Samples that were left out because they could not be read (`Input.skip_bad`)."""


class ReplicaFactory(Protocol):
    """Builds a replica. Backends call it, so that each can build inside its own scope."""

    def __call__(self, *, shard: Shard, seed: int, gate: bool = False, drawn: bool = True) -> Replica:
        """A replica whose initial weights depend on `seed` only; unless they are `drawn` they are any.

        With `gate` it is the replica of the gradient gate: plain SGD with learning rate 1, no dropout,
        and the same local batch at every call of `next_batch`.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Frozen facts of a workload; importing it costs nothing and needs no framework.

    Its folder `dlscale.models.<name>` holds `_torch.py` and `_tensorflow.py`, each with `program`, and `data.py` with
    the functions of `samples.DataModule`.
    """

    name: str
    title: str
    presets: Mapping[str, Preset]
    default_preset: str
    target_metric: str
    optimizer: str = ""  # of all objectives, by MLPerf's names; empty: not stated
    num_slots: int | None = None  # numbers that they keep of each weight; None: not stated
    running_statistics: bool = True  # whether batch norm keeps some, which are no trainable weights
    # What a step of a preset computes, in forward order; None: not stated.
    layers: Callable[[Preset], Sequence[Layer]] | None = None
    references: tuple[str, ...]

    @property
    def frameworks(self) -> tuple[str, ...]:
        """The frameworks that its network is written in: the underscore files of its folder."""
        return tuple(
            name for name in FRAMEWORKS if importlib.util.find_spec(f"dlscale.models.{self.name}._{name}")
        )

    def check_framework(self, framework: str) -> None:
        """Returns if the network is written in that framework. Raises UsageError."""
        if framework not in self.frameworks:
            raise UsageError(
                f"{self.name} has no network in {framework}; choose --frameworks from: {', '.join(self.frameworks)}"
            )

    def preset(self, name: str | None = None) -> Preset:
        """The preset of that name; without a name, the default. Raises UsageError for an unknown name."""
        wanted = name or self.default_preset
        if wanted not in self.presets:
            hint = did_you_mean(wanted, self.presets)
            raise UsageError(
                f"{self.name} has no preset {wanted!r}{hint}; choose one of: {', '.join(self.presets)}"
            )
        return self.presets[wanted]

    def input(
        self,
        preset: str,
        path: Path | None = None,
        *,
        num_samples: int = 1,
        skip_bad: bool = False,
    ) -> Input:
        """The input for a preset: `path`, which is checked, or the sample that ships with dlscale.

        The path `synthetic` stands for resident tensors. `num_samples` is how many of the file's the study needs at
        least: one global batch. Raises UsageError if there is no such file, or it cannot be read or does not
        fit the preset.
        """
        if path == SYNTHETIC:
            return Input()
        data, facts = self.data(), self.preset(preset)
        if path is None:
            shipped: Input = data.default_input(facts)
            return replace(shipped, skip_bad=skip_bad)
        source = Input(path=path, skip_bad=skip_bad)
        data.check_input(source, facts, num_samples=num_samples)
        return source

    def data(self) -> Any:
        """The workload's data module, a `samples.DataModule`; imports no framework."""
        return importlib.import_module(f"dlscale.models.{self.name}.data")

    def num_samples(self, source: Input, preset: Preset) -> int:
        """The number of samples of a checked input that is not synthetic."""
        return len(self.data().open_samples(source, preset, seed=(0, 0)))

    def quality(self) -> Any:
        """The module with the workload's measures of quality, a `quality.metric.QualityModule`.

        Raises UsageError if there is none.
        """
        if not importlib.util.find_spec(f"dlscale.models.{self.name}.quality"):
            raise UsageError(
                f"{self.name} has no measure of quality that a training could reach; choose another workload"
            )
        return importlib.import_module(f"dlscale.models.{self.name}.quality")

    def program(self, framework: str, execution: Execution) -> Any:  # noqa: ARG002
        """What builds its networks and objectives in that framework: (preset, gate=...) -> the framework's program."""
        return importlib.import_module(f"dlscale.models.{self.name}._{framework}").program

    def factory(
        self,
        *,
        framework: str,
        preset: str,
        local_batch: int,
        source: Input,
        execution: Execution | None = None,
    ) -> ReplicaFactory:
        """Imports the framework and returns what builds this workload's replicas in it. Raises UsageError."""
        execution = execution or Execution()
        self.check_framework(framework)
        shared = framework_module(framework)
        factory: ReplicaFactory = shared.replica_factory(
            self.program(framework, execution),
            self.data(),
            preset=self.preset(preset),
            local_batch=local_batch,
            source=source,
            execution=execution,
        )
        return factory
