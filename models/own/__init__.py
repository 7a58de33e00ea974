"""A user's own model, brought as one Python file, as a workload.

The file has a network, a loss, an optimizer and data; docs/own-model.md says under which names. Nothing of dlscale
is imported there, and nothing is registered here. `OwnModel` is what is known of such a file without running it, so
that records can be read where the file is not; `read_facts` (facts.py) finds that out, in a process of its own, which
runs the file, checks what it returns and tries a step.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from dlscale.base.definitions import Frozen, where_given
from dlscale.base.errors import UsageError
from dlscale.base.strings import Name, Text
from dlscale.models.workload import SYNTHETIC, Execution, Input, Preset, Workload

PRESET = "own"  # the only one: a file has one size
SUFFIX = ".py"


class OwnModel(Frozen):
    """The facts of a file and what it makes; part of a cell. No path is among them."""

    file: Name  # its name, without folders
    digest: Text  # the first 12 hex digits of its text's SHA-256
    framework: Name
    num_parameters: PositiveInt  # trainable
    forward_flops_per_sample: NonNegativeInt  # 0: not known
    input_shape: list[int]  # of a sample's first input
    local_batch: PositiveInt
    global_batch: PositiveInt
    optimizer: Text  # its class
    learning_rate: PositiveFloat
    num_samples: PositiveInt
    num_classes: NonNegativeInt  # labels are 0 .. num_classes - 1; 0: they are something else
    metrics: dict[Text, bool]  # name -> whether higher is better
    running_statistics: bool  # whether the network keeps numbers that are no trainable weights
    random: bool  # whether it draws random numbers while training, as dropout does
    skips: bool = where_given(False)  # whether some weights have no gradient in some steps
    whole_tensors: Text = where_given("")  # why its optimizer cannot update a part of a tensor; empty: it can
    whole_network: Text = where_given("")  # why its weights cannot be gathered unit by unit; empty: they can
    clip_norm: float = where_given(0.0)  # of all gradients together; 0: they are not clipped
    scheduled: bool = where_given(False)  # whether the learning rate changes with the step
    bad_sample: Text = where_given(
        ""
    )  # what is wrong with the first that cannot be trained on; empty: none was found
    data: Text  # "<file>:<12 hex digits>", of the samples
    warned: Text = where_given("")  # what the framework warned of in its first steps
    unchecked: Text  # what gates cannot know of such a model, in one line

    @property
    def name(self) -> str:
        """The workload's, which no other text has: `mine.py@0a1b2c3d4e5f`."""
        return f"{self.file}@{self.digest}"


class FilePlace(NamedTuple):
    """Where the text of a file is, and where the user has it: `__file__` while it runs, so that it finds its data."""

    path: Path
    origin: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnWorkload(Workload):
    """The workload of a file. Without its `place` it has facts alone."""

    model: OwnModel
    place: FilePlace | None

    @property
    def frameworks(self) -> tuple[str, ...]:
        return (self.model.framework,)

    def input(
        self,
        preset: str,
        path: Path | None = None,
        *,
        num_samples: int = 1,
        skip_bad: bool = False,
    ) -> Input:
        """The samples of the file. Raises UsageError for another input, and if they are too few."""
        self.preset(preset)
        if path == SYNTHETIC:
            return Input()
        if path is not None:
            raise UsageError(
                f"--data {path} for {self.model.file}, which brings its own data; leave it out, or give --data "
                "synthetic to train on the same samples in every step"
            )
        if self.model.num_samples < num_samples:
            raise UsageError(
                f"{self.model.file}: data() has {self.model.num_samples} samples, and a step needs {num_samples}, one "
                "global batch; give more samples, or take smaller batches or fewer ranks"
            )
        if self.model.bad_sample and not skip_bad:
            raise UsageError(self.model.bad_sample)
        return Input(path=Path(self.model.file), skip_bad=skip_bad)

    def data(self) -> Any:
        """The file's data, a `samples.DataModule`; the file is run when they are opened."""
        from dlscale.models.own.data import OwnData

        return OwnData(self.model, self.place)

    def num_samples(self, source: Input, preset: Preset) -> int:  # noqa: ARG002
        """The number that was counted when the study began."""
        return self.model.num_samples

    def quality(self) -> Any:
        """The file's metrics, a `quality.metric.QualityModule`."""
        from dlscale.models.own.quality import OwnQuality

        return OwnQuality(self.model, self.place)

    def program(self, framework: str, execution: Execution) -> Any:
        from dlscale.models.own.file import load_file

        own = importlib.import_module(f"dlscale.models.own._{framework}")
        file = load_file(known_place(self.model, self.place), self.model.digest)
        return own.programs(file, self.model, execution)

    def at(self, place: FilePlace) -> OwnWorkload:
        """The same, and its file."""
        return replace(self, place=place)


def known_place(model: OwnModel, place: FilePlace | None) -> FilePlace:
    """Where the file is. Raises UsageError if only its facts are here."""
    if place is None:
        raise UsageError(f"{model.name}: only its facts are here, not the file; give the file as --workloads")
    return place


def own_workload(model: OwnModel, place: FilePlace | None = None) -> OwnWorkload:
    """The workload of those facts."""
    preset = Preset(
        name=PRESET,
        input_shape=tuple(model.input_shape),
        num_parameters=model.num_parameters,
        forward_flops_per_sample=model.forward_flops_per_sample,
        local_batch=model.local_batch,
        global_batch=model.global_batch,
        source=model.file,
        learning_rate=model.learning_rate,
        num_classes=model.num_classes,
    )
    return OwnWorkload(
        name=model.name,
        title=model.name,
        presets={PRESET: preset},
        default_preset=PRESET,
        target_metric=next(iter(model.metrics)),
        optimizer=model.optimizer.lower(),
        running_statistics=model.running_statistics,
        references=(),
        model=model,
        place=place,
    )
