"""A user's own model, brought as one Python file, as a workload.

The file has a network, a loss, an optimizer and data; docs/own-model.md says under which names. Nothing of dlscale
is imported there, and nothing is registered here. `OwnModel` (model.py) is what is known of such a file without running
it, so that records can be read where the file is not; `read_facts` (facts.py) finds that out, in a separate process,
which runs the file, checks what it returns and tries a step.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dlscale.base.errors import UsageError
from dlscale.models.own.model import PRESET, FilePlace, OwnModel, known_place
from dlscale.models.workload import SYNTHETIC, Execution, Input, Preset, Workload


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
