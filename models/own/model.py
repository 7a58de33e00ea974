"""What is known of a user's file without running it (`OwnModel`), and where it is."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from dlscale.base.definitions import Frozen, where_given
from dlscale.base.errors import UsageError
from dlscale.base.strings import Name, Text

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


def known_place(model: OwnModel, place: FilePlace | None) -> FilePlace:
    """Where the file is. Raises UsageError if only its facts are here."""
    if place is None:
        raise UsageError(f"{model.name}: only its facts are here, not the file; give the file as --workloads")
    return place
