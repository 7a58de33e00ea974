"""What is missing from an HDF5 file is refused, where HDF5 itself reads zeros."""

from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.models.hdf5 import check_stored


def virtual(path: Path, name: str, *, source: str, num_mapped: int = 8) -> None:
    layout = h5py.VirtualLayout((8,), dtype="f4")
    layout[:num_mapped] = h5py.VirtualSource(source, "stored", shape=(8,))[:num_mapped]
    with h5py.File(path, "a") as file:
        file.create_virtual_dataset(name, layout)


def overlapping(path: Path, name: str, parts: Sequence[slice]) -> None:
    layout, source = h5py.VirtualLayout((8,), "f4"), h5py.VirtualSource("stored.h5", "stored", shape=(8,))
    for part in parts:
        layout[part] = source[part]
    with h5py.File(path, "a") as file:
        file.create_virtual_dataset(name, layout)


def write_raw(file: h5py.File, name: str, *, num_bytes: int = 16, filters: Sequence[int] = ()) -> None:
    """Two chunks as they are, the last one of so many bytes, which HDF5 would unpack by filters that it has not."""
    made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    made.set_chunk((4,))
    for number in filters:
        made.set_filter(number, h5py.h5z.FLAG_OPTIONAL, ())
    space, values = h5py.h5s.create_simple((8,)), np.ones(4, np.float32).tobytes()
    dataset = h5py.h5d.create(file.id, name.encode(), h5py.h5t.IEEE_F32LE, space, made)
    dataset.write_direct_chunk((0,), values)
    dataset.write_direct_chunk((4,), values[:num_bytes])


def growing(path: Path, name: str) -> None:
    """A map without an end."""
    source = h5py.VirtualSource("stored.h5", "grows", shape=(8,), maxshape=(None,))
    layout = h5py.VirtualLayout((8,), dtype="f4", maxshape=(None,))
    layout[: h5py.h5s.UNLIMITED] = source[: h5py.h5s.UNLIMITED]
    with h5py.File(path, "a", libver="latest") as file:
        file.create_virtual_dataset(name, layout)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with h5py.File(tmp_path / "stored.h5", "w") as file:
        file["stored"] = np.ones(8, np.float32)
        file.create_dataset("grows", data=np.ones(8, np.float32), maxshape=(None,), chunks=(2,))
        file.create_dataset("packed", data=np.zeros((9, 3)), chunks=(2, 3), compression="gzip")
        file.create_dataset("half", (9, 3), chunks=(2, 3))[:4] = 1
        file.create_dataset("never", (9,))
        file["empty"] = h5py.Empty("f4")
        write_raw(file, "foreign", filters=[32015])
        write_raw(file, "cut", num_bytes=4)
        file["none"] = np.zeros((0, 3))
        file["number"] = 1
    virtual(tmp_path / "stored.h5", "mapped", source="stored.h5")
    virtual(tmp_path / "stored.h5", "moved", source="gone.h5")
    virtual(tmp_path / "stored.h5", "part", source="stored.h5", num_mapped=4)
    virtual(tmp_path / "ring.h5", "stored", source=".")
    virtual(tmp_path / "stored.h5", "turns", source="ring.h5")
    growing(tmp_path / "stored.h5", "growing")
    overlapping(tmp_path / "stored.h5", "twice", [slice(0, 8), slice(2, 4)])
    overlapping(tmp_path / "stored.h5", "gap", [slice(0, 4), slice(2, 6)])
    with h5py.File(tmp_path / "stored.h5", "a") as file:
        file.create_dataset("outside", (8,), "f4", external=[(tmp_path / "secret", 0, 32)])
        file["linked"] = h5py.ExternalLink("ring.h5", "stored")
    return tmp_path / "stored.h5"


@pytest.mark.parametrize(
    "name", ["stored", "grows", "packed", "none", "number", "mapped", "growing", "twice"]
)
def test_what_is_stored_is_taken(path, name):
    with h5py.File(path) as file:
        check_stored(file[name], path)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("half", "'half' was not written whole (2 of 5 chunks were), and HDF5 reads the rest as 0.0"),
        ("never", "'never' was not written whole (no value of it was)"),
        ("moved", "'moved' has its values in gone.h5, which is not there; copy it beside stored.h5"),
        ("outside", "secret, which is no HDF5 file"),
        ("linked", "'stored' is virtual, and its sources are virtual"),
        ("part", "'part' is virtual, with sources for 4 of its 8 values"),
        ("gap", "'gap' is virtual, with sources for 6 of its 8 values"),
        ("empty", "'empty' has no values, and no shape for any"),
        ("foreign", "'foreign' is packed with filter 32015 (no name), which HDF5 does not have here"),
        ("cut", "'cut' was not written whole (20 of 32 bytes of its chunks were)"),
        ("turns", "'turns' is virtual, and its sources are virtual 8 times over, or come back to itself"),
    ],
)
def test_what_hdf5_would_read_as_zeros_is_refused(path, name, said):
    with h5py.File(path) as file, pytest.raises(UsageError) as caught:
        check_stored(file[name], path)
    assert said in str(caught.value)
    assert str(caught.value).startswith(str(path))
