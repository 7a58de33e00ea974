"""HEP-CNN's data, as `samples.DataModule` asks for it: HDF5 files of events (event_files.py), or folders of them.

The sample that ships with dlscale was made by
`dlscale data hep-cnn --events 4000 --out models/hep_cnn/sample_64.h5`; events/writer.py says what is in it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dlscale.models.dropout import draw_masks
from dlscale.models.errors import UsageError
from dlscale.models.hep_cnn import NETWORKS
from dlscale.models.hep_cnn.dropout import mask_shapes
from dlscale.models.hep_cnn.event_files import EventFile, EventFiles, find_files
from dlscale.models.samples import Arrays
from dlscale.models.workload import Input, Preset

_SAMPLE = Path(__file__).with_name("sample_64.h5")
_SAMPLE_SHAPE = (3, 64, 64)  # (C, H, W)


def default_input(preset: Preset) -> Input:
    """The events that ship with dlscale. Raises UsageError if they do not have the preset's shape."""
    if preset.input_shape != _SAMPLE_SHAPE:
        raise UsageError(
            f"preset {preset.name} of hep_cnn needs events of shape ({_commas(preset.input_shape)}), the "
            f"shipped ones have ({_commas(_SAMPLE_SHAPE)}); {_remedy(preset)} and pass it as --data FILE "
            "(make ... DATA=FILE)"
        )
    return Input(path=_SAMPLE)


def check_input(source: Input, preset: Preset, *, num_samples: int = 1) -> None:
    """Returns if `source` can feed the preset. Cheap: of the images, only each file's first and last are read.

    Raises UsageError if a file is missing, cannot be opened, lacks a dataset, or holds other shapes or types
    than the preset needs, or if all files together hold fewer than `num_samples` events. Unless bad samples are
    to be skipped, a label other than 0 or 1 and damage to the events that were read are refused too.
    """
    if source.path is None:
        return
    with EventFiles(find_files(source.path)) as events:
        for file in events.files:
            _check_layout(file, preset)
            if not source.skip_bad:
                _check_labels(file, preset)
                file.read(np.array([0, len(file) - 1] if len(file) else [], dtype=np.int64))
        if len(events) < num_samples:
            raise UsageError(
                f"{source.path}: needs at least {num_samples} events, one global batch of preset {preset.name}, "
                f"found {len(events)}; take smaller batches or fewer ranks, or {_remedy(preset)}"
            )


def open_samples(source: Input, preset: Preset, *, seed: tuple[int, int]) -> EventFiles:  # noqa: ARG001
    """The events of a checked `source`, open for reading. Nothing about reading them is random."""
    if source.path is None:
        raise ValueError("synthetic input has no file to open")
    return EventFiles(find_files(source.path))


def synthetic_batch(preset: Preset, local_batch: int, rng: np.random.Generator) -> Arrays:
    """Uniform noise in [0, 1), (N, H, W, C) float32, with random labels (N,) int64."""
    channels, height, width = preset.input_shape
    images = rng.random((local_batch, height, width, channels), dtype=np.float32)
    return images, rng.integers(0, 2, local_batch)


def step_inputs(preset: Preset, local_batch: int, rng: np.random.Generator, *, gate: bool) -> Arrays:
    """The dropout masks of a step, each (N, H, W, C) or (N, units) uint8; with `gate` none."""
    if gate:
        return ()
    _, height, width = preset.input_shape
    shapes = mask_shapes(NETWORKS[preset.name], height=height, width=width)
    return tuple(draw_masks(rng, shapes, local_batch))


def _check_layout(file: EventFile, preset: Preset) -> None:
    images, labels = file.images, file.labels
    shape: tuple[int, ...] = images.shape or ()
    channels, *pixels = preset.input_shape
    single = file.layout.axes == "NHW"
    if (1, *shape[1:]) != preset.input_shape if single else shape[1:] != preset.input_shape:
        wanted = pixels if single and channels == 1 else preset.input_shape
        raise UsageError(
            f"{file.path}: preset {preset.name} needs {file.layout.images!r} of shape (N, {_commas(wanted)}), "
            f"found ({_commas(shape)}); choose another --preset, or {_remedy(preset)}"
        )
    # The RPV set's own type is not stated anywhere: both kinds of float are read.
    if images.dtype.newbyteorder("=") != np.float32 and not (single and images.dtype == np.float64):
        raise UsageError(
            f"{file.path}: {file.layout.images!r} must be float32, found {images.dtype}; convert it, "
            f"or {_remedy(preset)}"
        )
    if labels.shape != shape[:1] or labels.dtype.kind not in "biuf":
        raise UsageError(
            f"{file.path}: {file.layout.labels!r} must be one number for each of {shape[0]} events, found "
            f"{labels.dtype} of shape ({_commas(labels.shape)}); mend it, or {_remedy(preset)}"
        )


def _check_labels(file: EventFile, preset: Preset) -> None:
    others = np.setdiff1d(file.labels, (0, 1))
    if len(others):
        found = ", ".join(map(str, others[:3].tolist()))
        raise UsageError(
            f"{file.path}: {file.layout.labels!r} must be 1 (signal) or 0 (background), found {found}; mend it, "
            f"or {_remedy(preset)}"
        )


def _remedy(preset: Preset) -> str:
    channels, _, size = preset.input_shape
    if channels == 1:
        return "take a file of the public RPV data set (group 'all_events' with 'hist' and 'y')"
    return f"make a file with `dlscale data hep-cnn --size {size} --events N --out FILE`"


def _commas(shape: tuple[int, ...] | list[int]) -> str:
    return ", ".join(map(str, shape))
