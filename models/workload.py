"""What a workload states about itself, and what it gives to a backend to train.

Nothing here imports a framework: `Workload.factory` does, on demand, from the workload's underscore module.
Shapes use one legend: N samples, C channels, H height, W width, P ranks.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from dlscale.models.errors import UsageError

SYNTHETIC = Path("synthetic")  # in the place of a data file

Weights = list[NDArray[Any]]
"""Trainable weights in canonical order: objectives in order, each one's parameters as registered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """The part of every global batch that one rank trains on: `index` of `count`."""

    index: int = 0
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One size of a workload. Batches are samples; `source` says where shape and batches come from."""

    name: str
    input_shape: tuple[int, int, int]  # (C, H, W)
    num_parameters: int  # trainable
    forward_flops_per_sample: int  # 2 per multiply-add; convolutions and dense layers only
    local_batch: int  # per rank, held constant in weak scaling
    global_batch: int  # over all ranks, held constant in strong scaling
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """Where local batches come from: a data file, or fixed resident tensors (`synthetic`)."""

    path: Path | None = None

    @property
    def synthetic(self) -> bool:
        """True if every step trains on the same tensors, so that no time goes into reading."""
        return self.path is None


class Objective(Protocol):
    """One loss and the parameters that it, alone, is differentiated for.

    `loss` maps a local batch to the mean loss over its samples; in torch it is a module, so that
    DistributedDataParallel can wrap it.
    """

    @property
    def parameters(self) -> Sequence[Any]: ...  # noqa: D102
    @property
    def loss(self) -> Any: ...  # noqa: D102
    @property
    def optimizer(self) -> Any: ...  # noqa: D102


class Replica(Protocol):
    """One rank's single-device training program. It knows nothing of ranks."""

    @property
    def objectives(self) -> Sequence[Objective]:
        """In order; all are differentiated and exchanged before any is updated."""
        ...

    def next_batch(self) -> tuple[Any, ...]:
        """The next local batch, ready to be given to every objective's loss."""
        ...

    def weights(self) -> Weights:
        """Copies of the trainable weights."""
        ...

    def load(self, weights: Weights) -> None:
        """Overwrite the trainable weights."""
        ...

    def gradients(self) -> Weights:
        """This replica's own mean gradients on the next local batch, in the order of `weights`."""
        ...


class ReplicaFactory(Protocol):
    """Builds a replica. Backends call it, so that each can build inside its own scope."""

    def __call__(self, *, shard: Shard, seed: int, gate: bool = False) -> Replica:
        """A replica whose initial weights depend on `seed` only.

        With `gate` it is the replica of the gradient gate: plain SGD with learning rate 1, no dropout,
        and the same local batch at every call of `next_batch`.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Frozen facts of a workload; importing it costs nothing and needs no framework."""

    name: str
    title: str
    presets: Mapping[str, Preset]
    default_preset: str
    precisions: tuple[str, ...]
    target_metric: str
    references: tuple[str, ...]
    modules: Mapping[str, str]  # framework -> module with `replica_factory`
    data_module: str  # module with `default_input` and `check_input`

    def preset(self, name: str | None = None) -> Preset:
        """The preset of that name; without a name, the default.

        Raises UsageError for an unknown name.
        """
        wanted = name or self.default_preset
        if wanted not in self.presets:
            raise UsageError(
                f"{self.name} has no preset {wanted!r}; choose one of: {', '.join(self.presets)}"
            )
        return self.presets[wanted]

    def input(self, preset: str, path: Path | None = None) -> Input:
        """The checked input for a preset: the file `path`, or the sample that ships with dlscale.

        The path `synthetic` stands for resident tensors. Raises UsageError if there is no file, or it cannot
        be read or does not fit the preset.
        """
        if path == SYNTHETIC:
            return Input()
        data = importlib.import_module(self.data_module)
        source: Input = Input(path=path) if path else data.default_input(self.preset(preset))
        data.check_input(source, self.preset(preset))
        return source

    def factory(
        self, *, framework: str, preset: str, local_batch: int, precision: str, source: Input
    ) -> ReplicaFactory:
        """Imports the framework and returns what builds this workload's replicas in it."""
        if framework not in self.modules:
            raise UsageError(
                f"{self.name} has no network in {framework!r}; choose one of: {', '.join(self.modules)}"
            )
        module = importlib.import_module(self.modules[framework])
        factory: ReplicaFactory = module.replica_factory(
            preset=self.preset(preset), local_batch=local_batch, precision=precision, source=source
        )
        return factory
