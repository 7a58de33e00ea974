"""Files of HEP-CNN events: what is refused, in which words, and that reading returns what is stored."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

from dlscale.models.errors import UsageError
from dlscale.models.hep_cnn import WORKLOAD
from dlscale.models.hep_cnn.data import EventFile, check_input, default_input
from dlscale.models.workload import Input

SMALL = WORKLOAD.preset("small")
NUM_EVENTS = 20


@pytest.fixture
def path(tmp_path):
    """A file that `check_input` accepts, every event different, in the published layout."""
    path = tmp_path / "events.h5"
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        file.create_dataset(
            "data",
            data=rng.random((NUM_EVENTS, *SMALL.input_shape), dtype=np.float32),
            chunks=(1, *SMALL.input_shape),
            compression="gzip",
        )
        file["label"] = rng.integers(0, 2, NUM_EVENTS)
    return path


def replace(path, name, values):
    with h5py.File(path, "r+") as file:
        del file[name]
        file[name] = values


def refusal(path, preset=SMALL):
    with pytest.raises(UsageError) as refused:
        check_input(Input(path=path), preset)
    message = str(refused.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def test_a_good_file_is_accepted(path):
    check_input(Input(path=path), SMALL)


def test_synthetic_input_needs_no_file():
    check_input(Input(), SMALL)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8, np.bool_])
def test_labels_may_have_any_type_of_number(path, dtype):
    labels = np.arange(NUM_EVENTS) % 2
    replace(path, "label", labels.astype(dtype))
    check_input(Input(path=path), SMALL)
    with EventFile(path) as events:
        read = events.read(np.arange(NUM_EVENTS))[1]
    assert read.dtype == np.int64
    np.testing.assert_array_equal(read, labels)


@pytest.mark.parametrize("name", ["small", "tiny"])
def test_presets_of_64x64_events_have_a_shipped_sample(name):
    preset = WORKLOAD.preset(name)
    check_input(default_input(preset), preset)


def test_the_224x224_preset_says_how_to_make_a_file():
    with pytest.raises(
        UsageError, match=r"dlscale data hep-cnn --size 224 --events N --out FILE.*--data FILE"
    ):
        default_input(WORKLOAD.preset("paper"))


def test_missing_file(tmp_path):
    assert "found no file of that name" in refusal(tmp_path / "nowhere.h5")


def test_folder(tmp_path):
    assert "found a folder" in refusal(tmp_path)


def test_not_hdf5(tmp_path):
    (tmp_path / "events.h5").write_text("data, label\n")
    assert "cannot be opened as HDF5" in refusal(tmp_path / "events.h5")


def test_truncated_file(path):
    path.write_bytes(path.read_bytes()[:-1000])
    assert "truncated" in refusal(path)


@pytest.mark.parametrize("name", ["data", "label"])
def test_missing_dataset(path, name):
    with h5py.File(path, "r+") as file:
        file.move(name, "other")
    message = refusal(path)
    assert "needs datasets 'data' and 'label' and holds:" in message
    assert "other" in message


def test_a_group_is_not_a_dataset(path):
    with h5py.File(path, "r+") as file:
        del file["data"]
        file.create_group("data")
    assert "needs datasets" in refusal(path)


@pytest.mark.parametrize("shape", [(NUM_EVENTS, 3, 32, 32), (NUM_EVENTS, 64, 64, 3), (NUM_EVENTS,), ()])
def test_wrong_shape(path, shape):
    replace(path, "data", np.zeros(shape, np.float32))
    message = refusal(path)
    assert "needs 'data' of shape (N, 3, 64, 64)" in message
    assert f"found ({', '.join(map(str, shape))})" in message


@pytest.mark.parametrize("dtype", [np.float64, np.uint8])
def test_wrong_type(path, dtype):
    replace(path, "data", np.zeros((NUM_EVENTS, *SMALL.input_shape), dtype))
    assert f"must be float32, found {np.dtype(dtype)}" in refusal(path)


@pytest.mark.parametrize(
    "labels", [np.zeros(NUM_EVENTS - 1), np.zeros((NUM_EVENTS, 2)), [b"signal"] * NUM_EVENTS]
)
def test_labels_of_wrong_shape_or_type(path, labels):
    replace(path, "label", labels)
    assert f"must be one number for each of {NUM_EVENTS} events" in refusal(path)


@pytest.mark.parametrize(("bad", "found"), [(2, "2"), (-1, "-1"), (0.5, "0.5"), (np.nan, "nan")])
def test_labels_other_than_0_and_1(path, bad, found):
    labels = np.zeros(NUM_EVENTS, dtype=type(bad))
    labels[7] = bad
    replace(path, "label", labels)
    assert f"found {found};" in refusal(path)


def test_fewer_events_than_one_local_batch(path):
    with h5py.File(path, "r+") as file:
        data, label = file["data"][: SMALL.local_batch - 1], file["label"][: SMALL.local_batch - 1]
    replace(path, "data", data)
    replace(path, "label", label)
    assert f"at least {SMALL.local_batch} events, one local batch, found {SMALL.local_batch - 1}" in refusal(
        path
    )


def test_reading_returns_what_is_stored_in_the_order_asked(path):
    indices = np.array([3, 19, 0, 7, 3])  # unsorted, and one twice
    with h5py.File(path) as file, EventFile(path) as events:
        stored_images, stored_labels = file["data"][:], file["label"][:]
        images, labels = events.read(indices)
        assert len(events) == NUM_EVENTS
    assert (images.dtype, labels.dtype) == (np.float32, np.int64)
    np.testing.assert_array_equal(images, stored_images[indices])
    np.testing.assert_array_equal(labels, stored_labels[indices])


def test_reading_no_events(path):
    with EventFile(path) as events:
        images, labels = events.read(np.array([], dtype=np.int64))
    assert images.shape == (0, *SMALL.input_shape)
    assert labels.shape == (0,)


def test_reading_an_event_that_does_not_exist(path):
    with EventFile(path) as events, pytest.raises(IndexError):
        events.read(np.array([NUM_EVENTS]))


def test_a_damaged_event_is_named(path):
    with h5py.File(path) as file:
        chunk = file["data"].id.get_chunk_info_by_coord((5, 0, 0, 0))
    with path.open("rb+") as file:
        file.seek(chunk.byte_offset)
        file.write(bytes(chunk.size))
    check_input(Input(path=path), SMALL)  # reads the ends only
    with EventFile(path) as events:
        events.read(np.array([4, 6]))
        with pytest.raises(UsageError, match=rf"{path}: event 5 cannot be read .* the file is damaged"):
            events.read(np.array([4, 5, 6]))


@pytest.mark.parametrize("index", [0, NUM_EVENTS - 1])
def test_damage_at_the_ends_is_found_by_the_check(path, index):
    with h5py.File(path) as file:
        chunk = file["data"].id.get_chunk_info_by_coord((index, 0, 0, 0))
    with path.open("rb+") as file:
        file.seek(chunk.byte_offset)
        file.write(bytes(chunk.size))
    assert f"event {index} cannot be read" in refusal(path)
