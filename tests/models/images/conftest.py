"""A tiny data set of nine images in three classes, and writers of every format that are independent of dlscale's."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.io
from PIL import Image

from dlscale.base.errors import UsageError
from dlscale.models.images.tfrecord import _example_class, masked_crc
from dlscale.models.samples import BadSample

NAMES = ("ant", "bee", "cat")
NUM_IMAGES = 9


@dataclass(frozen=True)
class Sample:
    data: bytes
    label: int
    name: str


@dataclass(frozen=True)
class DataSet:
    """A data set on disk, and what reading it must give, in order."""

    format: str
    path: object
    data: list[object]  # encoded images; arrays (32, 32, 3) for CIFAR-10
    labels: list[int]
    num_classes: int | None
    wheres: list[str]  # a part of how each sample is named


def encode(pixels, kind="JPEG", **options):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


def pixels(seed, *, height=40, width=52, channels=3):
    """Smooth, different for every seed, so that JPEG changes little of it."""
    rng = np.random.default_rng(seed)
    shape = (4, 5, channels) if channels > 1 else (4, 5)
    small = Image.fromarray(rng.integers(0, 256, size=shape, dtype=np.uint8))
    return np.array(small.resize((width, height), Image.Resampling.BILINEAR))


@pytest.fixture(scope="session")
def samples():
    """In the order of their labels; every third is a PNG."""
    return [
        Sample(
            data=encode(pixels(index), "PNG" if index % 3 == 2 else "JPEG"),
            label=index // 3,
            name=f"{NAMES[index // 3]}_{index}.{'png' if index % 3 == 2 else 'JPEG'}",
        )
        for index in range(NUM_IMAGES)
    ]


def write_folders(path, samples):
    for sample in samples:
        (path / NAMES[sample.label]).mkdir(parents=True, exist_ok=True)
        (path / NAMES[sample.label] / sample.name).write_bytes(sample.data)
    wheres = [f"{path}/{NAMES[sample.label]}/{sample.name}" for sample in samples]
    return DataSet(
        "class folders",
        path,
        [sample.data for sample in samples],
        [sample.label for sample in samples],
        len(NAMES),
        wheres,
    )


def frame(data):
    length = struct.pack("<Q", len(data))
    return b"".join(
        (length, struct.pack("<I", masked_crc(length)), data, struct.pack("<I", masked_crc(data)))
    )


def message(features):
    """A tensorflow.train.Example, each of whose features has values of one type."""
    example = _example_class()()
    for name, values in features.items():
        feature = example.features.feature[name]
        kind = feature.bytes_list if isinstance(values[0], bytes) else feature.int64_list
        kind.value.extend(values)
    return example.SerializeToString()


def record(sample, first_label=1):
    features = {"image/encoded": [sample.data], "image/class/label": [sample.label + first_label]}
    return frame(message({**features, "image/filename": [sample.name.encode()]}))


def write_records(path, samples, lengths=(5, 1, 3), name="train"):
    """Files of unequal length, labels from 1 as ImageNet's."""
    path.mkdir(parents=True, exist_ok=True)
    rest, wheres = list(samples), []
    for number, length in enumerate(lengths):
        file = path / f"{name}-{number:05d}-of-{len(lengths):05d}"
        records = [record(sample) for sample in rest[:length]]
        file.write_bytes(b"".join(records))
        offsets = np.cumsum([0, *map(len, records)])
        wheres += [f"{file}: record {place} at byte {offsets[place]}" for place in range(length)]
        rest = rest[length:]
    data, labels = [sample.data for sample in samples], [sample.label for sample in samples]
    return DataSet("TFRecord", path, data, labels, None, wheres)


def write_lmdb(path, samples):
    import lmdb

    path.mkdir(parents=True, exist_ok=True)
    with lmdb.open(str(path), map_size=1 << 20) as database, database.begin(write=True) as transaction:
        for index, sample in enumerate(samples):
            transaction.put(b"%08d" % index, struct.pack("<i", sample.label) + sample.data)
        transaction.put(b"__len__", b"%d" % len(samples))
    data, labels = [sample.data for sample in samples], [sample.label for sample in samples]
    return DataSet("LMDB", path, data, labels, None, [f"key {index:08d}" for index in range(len(samples))])


def write_cifar(path, num_files=5, num_records=3):
    path.mkdir(parents=True, exist_ok=True)
    data, labels, wheres = [], [], []
    rng = np.random.default_rng(7)
    for number in range(1, num_files + 1):
        content = b""
        for place in range(num_records):
            planes = rng.integers(0, 256, size=(3, 32, 32), dtype=np.uint8)
            labels.append(int(rng.integers(10)))
            data.append(np.moveaxis(planes, 0, 2))
            wheres.append(f"{path}/data_batch_{number}.bin: record {place} at byte {place * 3073}")
            content += bytes([labels[-1]]) + planes.tobytes()
        (path / f"data_batch_{number}.bin").write_bytes(content)
    (path / "test_batch.bin").write_bytes(bytes(3073))
    return DataSet("CIFAR-10", path, data, labels, 10, wheres)


def write_flowers(path, samples):
    """Image 9 first in the training part, which leaves two images out."""
    (path / "jpg").mkdir(parents=True, exist_ok=True)
    for index, sample in enumerate(samples):
        (path / "jpg" / f"image_{index + 1:05d}.jpg").write_bytes(sample.data)
    labels = np.array([[sample.label + 1 for sample in samples]], dtype=np.uint8)
    parts = {
        "trnid": [[9, 1, 2, 3, 4, 5, 6]],
        "valid": np.array([[7]], dtype=np.uint16),
        "tstid": np.array([[8, 7]]),
    }
    scipy.io.savemat(path / "imagelabels.mat", {"labels": labels})
    scipy.io.savemat(path / "setid.mat", parts)
    order = [8, 0, 1, 2, 3, 4, 5]
    return DataSet(
        "Flowers-102",
        path,
        [samples[index].data for index in order],
        [samples[index].label for index in order],
        len(NAMES),
        [f"{path}/jpg/image_{index + 1:05d}.jpg" for index in order],
    )


@pytest.fixture
def folders(tmp_path, samples):
    return write_folders(tmp_path / "folders", samples)


@pytest.fixture
def records(tmp_path, samples):
    return write_records(tmp_path / "records", samples)


@pytest.fixture
def database(tmp_path, samples):
    return write_lmdb(tmp_path / "lmdb", samples)


@pytest.fixture
def cifar(tmp_path):
    return write_cifar(tmp_path / "cifar-10-batches-bin")


@pytest.fixture
def flowers(tmp_path, samples):
    return write_flowers(tmp_path / "flowers", samples)


@pytest.fixture(params=["folders", "records", "database", "cifar", "flowers"])
def data_set(request):
    """Each format in turn."""
    return request.getfixturevalue(request.param)


def refused(call, *arguments, error=UsageError, **options):
    """The one line with which a call is refused."""
    with pytest.raises(error) as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def bad(store, index):
    """What is wrong with a sample."""
    with pytest.raises(BadSample) as caught:
        store.encoded(index)
    assert caught.value.index == index
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith("leave bad samples out (skip_bad)")
    return message
