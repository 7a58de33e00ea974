"""Images as the samples of a workload: what is accepted, and what training reads."""

from __future__ import annotations

import dataclasses
import os

import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.models.images import data
from dlscale.models.images.decode import training_image
from dlscale.models.images.store import Encoded
from dlscale.models.parallel import deal_rows
from dlscale.models.resnet50 import WORKLOAD
from dlscale.models.samples import BadSample
from dlscale.models.workload import Input

pytestmark = pytest.mark.requires("lmdb", "google_crc32c")
PRESET = dataclasses.replace(WORKLOAD.preset("tiny"), name="small", input_shape=(3, 24, 32), global_batch=4)
FEW_CLASSES = dataclasses.replace(PRESET, name="few", num_classes=2)


def named(data_set):
    """How messages call it: of Flowers-102, the part that is read."""
    return data_set.path / "trnid" if data_set.format == "Flowers-102" else data_set.path


def refusal(path, preset=PRESET, **options):
    skip_bad = options.pop("skip_bad", False)
    with pytest.raises(UsageError) as refused:
        data.check_input(Input(path=path, skip_bad=skip_bad), preset, **options)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def open_samples(path, preset=PRESET, *, seed=(1, 0), skip_bad=False):
    return data.open_samples(Input(path=path, skip_bad=skip_bad), preset, seed=seed)


def test_every_format_feeds_a_training(data_set):
    data.check_input(Input(path=data_set.path), PRESET, num_samples=len(data_set.labels))
    samples = open_samples(data_set.path)
    assert len(samples) == len(data_set.labels)
    indices = np.array([4, 0, 2, 4])
    images, labels = samples.read(indices)
    assert images.shape == (4, 24, 32, 3)
    assert (images.dtype, labels.dtype) == (np.float32, np.int64)
    assert labels.tolist() == [data_set.labels[index] for index in indices]
    for place, index in enumerate(indices):
        stored = Encoded(index=index, data=data_set.data[index], label=0, where="")
        expected = training_image(stored, np.random.default_rng((1, 0, place)), height=24, width=32)
        np.testing.assert_array_equal(images[place], expected)


def test_ranks_that_share_images_have_the_rows_of_the_same_crops(folders):
    preset = dataclasses.replace(PRESET, block_rows=8)
    whole, *parts = (
        data.open_samples(Input(path=folders.path), preset, seed=(1, 0), rows=rows).read(np.array([2, 0]))[0]
        for rows in (None, *(deal_rows(24, block_rows=8, index=index, split=2) for index in range(2)))
    )
    assert [part.shape[1] for part in parts] == [16, 8]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)


def test_the_same_sample_is_cropped_anew_every_time(folders):
    samples = open_samples(folders.path)
    images = [samples.read(np.array([3, 3]))[0] for _ in range(2)]
    flat = np.concatenate(images).reshape(4, -1)
    assert len(np.unique(flat, axis=0)) == 4


def test_crops_depend_on_seed_and_shard_and_on_nothing_else(folders, monkeypatch):
    def read(seed):
        samples = open_samples(folders.path, seed=seed)
        return np.concatenate([samples.read(np.array([0, 5, 8]))[0] for _ in range(2)])

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    many = read((1, 0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    np.testing.assert_array_equal(read((1, 0)), many)
    assert not np.array_equal(read((1, 1)), many)
    assert not np.array_equal(read((2, 0)), many)


@pytest.mark.parametrize("cores", [{0}, {0, 1, 2}])
def test_a_damaged_image_is_named(folders, monkeypatch, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: cores)
    image = folders.path / "bee" / "bee_4.JPEG"
    image.write_bytes(image.read_bytes()[:-300])
    data.check_input(Input(path=folders.path), PRESET)  # looks at the ends only
    samples = open_samples(folders.path)
    samples.read(np.array([3, 5]))
    with pytest.raises(BadSample, match=rf"{image}: the image cannot be decoded \(.*truncated") as refused:
        samples.read(np.array([3, 4, 5]))
    assert refused.value.index == 4


def test_labels_outside_the_classes_are_named_where_only_reading_tells(records):
    """Records say nothing of their classes: the first sample is fine, the last has the third class."""
    message = refusal(records.path, FEW_CLASSES)
    assert f"{records.wheres[8]}: label 2, where preset few has 0 to 1" in message
    samples = open_samples(records.path, FEW_CLASSES)
    samples.read(np.array([0, 5]))
    with pytest.raises(BadSample, match="label 2, where preset few has 0 to 1") as refused:
        samples.read(np.array([0, 6]))
    assert refused.value.index == 6


@pytest.mark.parametrize("name", ["folders", "flowers", "cifar"])
def test_too_many_classes_are_refused_where_they_are_known(name, request):
    data_set = request.getfixturevalue(name)
    num_classes = 10 if name == "cifar" else 3
    message = refusal(data_set.path, FEW_CLASSES, skip_bad=True)
    assert (
        f"{named(data_set)}: has {num_classes} classes, preset few only 2; choose another --preset" in message
    )


def test_fewer_samples_than_a_global_batch(data_set):
    number = len(data_set.labels)
    message = refusal(data_set.path, num_samples=number + 1)
    assert (
        f"{named(data_set)}: need at least {number + 1} samples, one global batch, found {number};" in message
    )


def test_synthetic_input_needs_no_file_and_is_the_default():
    assert data.default_input(PRESET).synthetic
    data.check_input(data.default_input(PRESET), PRESET, num_samples=1000)
    with pytest.raises(UsageError, match="name a --data PATH"):
        data.open_samples(Input(), PRESET, seed=(0, 0))


def test_synthetic_batches_look_like_those_read():
    images, labels = data.synthetic_batch(PRESET, 300, np.random.default_rng(0))
    assert images.shape == (300, 24, 32, 3)
    assert (images.dtype, labels.dtype) == (np.float32, np.int64)
    assert abs(images.mean()) < 0.01
    assert images.std() == pytest.approx(1, abs=0.01)
    assert set(labels.tolist()) == set(range(10))
    again = data.synthetic_batch(PRESET, 300, np.random.default_rng(0))
    np.testing.assert_array_equal(images, again[0])
    np.testing.assert_array_equal(labels, again[1])
