"""Data to train on: HDF5, maps, images and what labels them."""

import io
import struct
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import h5py
import numpy as np
from PIL import Image

from dlscale.base.errors import UsageError
from dlscale.models.cosmogan import WORKLOAD as COSMOGAN
from dlscale.models.cosmogan import data as maps
from dlscale.models.hep_cnn import WORKLOAD as HEP_CNN
from dlscale.models.hep_cnn import data as events
from dlscale.models.images import open_store
from dlscale.models.images.decode import evaluation_image
from dlscale.models.images.tfrecord import _example_class, masked_crc
from dlscale.models.workload import Input, Preset
from tests.fuzz.target import Target, file_target


def images(path: Path) -> None:
    """Some of the samples, decoded; refused like the input where there is none."""
    for skip_bad in (False, True):
        try:
            store = open_store(path, skip_bad=skip_bad)
        except UsageError:
            if skip_bad:
                raise
            continue
        try:
            for index in {0, len(store) // 2, len(store) - 1}:
                try:
                    evaluation_image(store.encoded(index), height=32, width=32)
                except UsageError:
                    continue
        finally:
            store.close()


def training_samples(module: ModuleType, preset: Preset, path: Path) -> None:
    """Likewise, of a workload's own data."""
    for skip_bad in (False, True):
        source = Input(path=path, skip_bad=skip_bad)
        try:
            module.check_input(source, preset)
            samples = module.open_samples(source, preset, seed=(0, 0))
            for index in range(min(len(samples), 2)):
                samples.read(np.array([index]))
        except UsageError:
            if skip_bad:
                raise


def encoded(kind: str, mode: str = "RGB") -> bytes:
    """A small image."""
    file = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (24, 20, 3), dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save(file, kind)
    return file.getvalue()


def npy() -> bytes:
    """Three maps."""
    file = io.BytesIO()
    np.save(file, np.zeros((3, 32, 32), np.float32))
    return file.getvalue()


def hdf5(fill: Callable[[Any], object]) -> Callable[[], bytes]:
    """A file of HDF5 as `fill` makes it."""

    def make() -> bytes:
        file = io.BytesIO()
        with h5py.File(file, "w") as made:
            fill(made)
        return file.getvalue()

    return make


def published_layout(made: Any) -> None:
    """Compressed chunks and labels."""
    pixels = np.zeros((4, 3, 64, 64), np.float32)
    made.create_dataset("data", data=pixels, chunks=(1, 3, 64, 64), compression=4)
    made["label"] = np.arange(4) % 2


def virtual(made: Any) -> None:
    """A map of datasets of the same file, without compression."""
    made["a"] = np.zeros((2, 3, 64, 64), np.float32)
    layout = h5py.VirtualLayout(shape=(4, 3, 64, 64), dtype=np.float32)
    for begin in (0, 2):
        layout[begin : begin + 2] = h5py.VirtualSource(".", "a", shape=(2, 3, 64, 64))
    made.create_virtual_dataset("data", layout)
    made["label"] = np.arange(4) % 2


def tfrecords() -> bytes:
    """Three images in frames with checksums."""
    example = _example_class()()
    example.features.feature["image/encoded"].bytes_list.value.append(encoded("JPEG"))
    example.features.feature["image/class/label"].int64_list.value.append(1)
    length, data = struct.pack("<Q", example.ByteSize()), example.SerializeToString()
    return 3 * b"".join(part + struct.pack("<I", masked_crc(part)) for part in (length, data))


def lmdb_file() -> bytes:
    """Three images in a database."""
    import lmdb

    with TemporaryDirectory() as folder:
        with lmdb.open(folder, map_size=1 << 20) as database, database.begin(write=True) as transaction:
            for index in range(3):
                transaction.put(b"%08d" % index, b"\1\0\0\0" + encoded("JPEG"))
            transaction.put(b"__len__", b"3")
        return (Path(folder) / "data.mdb").read_bytes()


def classes(folder: Path) -> None:
    """Two classes, one with a hidden folder."""
    for name in ("ant", "bee"):
        (folder / name).mkdir()
        (folder / name / "a.jpg").write_bytes(encoded("JPEG"))
    (folder / "ant" / ".more").mkdir()
    (folder / "ant" / ".more" / "b.png").write_bytes(encoded("PNG"))


def five_files(folder: Path) -> None:
    """As published, but short."""
    for number in range(1, 6):
        (folder / f"data_batch_{number}.bin").write_bytes(bytes([number]) * 3073)


def of_images(name: str, content: Callable[[], bytes], **fields: Any) -> Target:
    """An image in a folder that is a class."""
    return file_target(f"a/{name}", content, lambda path: images(path.parent.parent), **fields)


TARGETS: dict[str, Target] = {
    "JPEG": of_images("x.jpg", lambda: encoded("JPEG")),
    "JPEG of CMYK": of_images("x.jpg", lambda: encoded("JPEG", "CMYK"), share=0.3),
    "PNG": of_images("x.png", lambda: encoded("PNG")),
    "PNG of a palette": of_images("x.png", lambda: encoded("PNG", "P"), share=0.3),
    "class folders": Target(make=classes, read=images, share=0.5),
    "CIFAR-10, five files": Target(make=five_files, read=images, share=0.3),
    "CIFAR-10": file_target("data_batch_1.bin", lambda: bytes(range(256)) * 37, images),
    "LMDB": file_target("lmdb/data.mdb", lmdb_file, lambda p: images(p.parent), share=2.0),
    "TFRecord": file_target("x.tfrecord", tfrecords, images),
    "maps": file_target("x.npy", npy, lambda p: training_samples(maps, COSMOGAN.preset("tiny"), p)),
    # Each input is a process of its own.
    "events": file_target(
        "x.h5", hdf5(published_layout), lambda p: training_samples(events, HEP_CNN.preset("tiny"), p), share=0.25,
        seconds=60.0,
    ),
    "events in a map": file_target(
        "x.h5", hdf5(virtual), lambda p: training_samples(events, HEP_CNN.preset("tiny"), p), share=0.15, seconds=60.0,
    ),
}  # fmt: skip
