"""Files of HEP-CNN events: what is refused, in which words, and that reading returns what is stored."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from contextlib import contextmanager

import h5py
import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.models import hdf5
from dlscale.models.hep_cnn import WORKLOAD
from dlscale.models.hep_cnn.data import (
    EventFiles,
    check_input,
    default_input,
    open_samples,
    step_inputs,
    synthetic_batch,
)
from dlscale.models.samples import BadSample
from dlscale.models.workload import Input

SMALL = WORKLOAD.preset("small")
RPV = dataclasses.replace(SMALL, name="rpv", input_shape=(1, 64, 64))
NUM_EVENTS = 20


@pytest.fixture
def path(tmp_path):
    """A file that `check_input` accepts, every event different, in the published layout."""
    return make_file(tmp_path / "events.h5")


def make_file(path, *, num_events=NUM_EVENTS, seed=0):
    rng = np.random.default_rng(seed)
    with h5py.File(path, "w") as file:
        file.create_dataset(
            "data",
            data=rng.random((num_events, *SMALL.input_shape), dtype=np.float32),
            chunks=(1, *SMALL.input_shape) if num_events else None,
            compression="gzip" if num_events else None,
        )
        file["label"] = rng.integers(0, 2, num_events)
    return path


@pytest.fixture
def rpv_path(tmp_path):
    """A file in the layout of the RPV set, with more datasets than are read."""
    path = tmp_path / "rpv.h5"
    rng = np.random.default_rng(1)
    with h5py.File(path, "w") as file:
        file["all_events/hist"] = rng.random((NUM_EVENTS, 64, 64), dtype=np.float32)
        file["all_events/y"] = rng.integers(0, 2, NUM_EVENTS).astype(np.float32)
        file["all_events/weight"] = rng.random(NUM_EVENTS)
    return path


def damage(path, event):
    with h5py.File(path) as file:
        chunk = file["data"].id.get_chunk_info_by_coord((event, 0, 0, 0))
    with path.open("rb+") as file:
        file.seek(chunk.byte_offset)
        file.write(bytes(chunk.size))


def replace(path, name, values):
    with h5py.File(path, "r+") as file:
        del file[name]
        file[name] = values


def refusal(path, preset=SMALL, *, num_samples=1):
    with pytest.raises(UsageError) as refused:
        check_input(Input(path=path), preset, num_samples=num_samples)
    message = str(refused.value)
    assert str(path) in message
    assert "\n" not in message
    return message


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8, np.bool_])
def test_labels_may_have_any_type_of_number(path, dtype):
    labels = np.arange(NUM_EVENTS) % 2
    replace(path, "label", labels.astype(dtype))
    check_input(Input(path=path), SMALL)
    with EventFiles([path]) as events:
        read = events.read(np.arange(NUM_EVENTS))[1]
    assert read.dtype == np.int64
    np.testing.assert_array_equal(read, labels)


def test_the_224x224_preset_says_how_to_make_a_file():
    with pytest.raises(
        UsageError, match=r"hep_events.py FILE --size 224 --events N and pass it as --data FILE"
    ):
        default_input(WORKLOAD.preset("paper"))


def put(name, values):
    return lambda path: replace(path, name, values)


def move(name, other="other"):
    def moved(path):
        with h5py.File(path, "r+") as file:
            file.move(name, other)

    return moved


def labels_with(value):
    return put("label", np.array([0] * 7 + [value] + [0] * 12, dtype=type(value)))


def a_group(path):
    with h5py.File(path, "r+") as file:
        del file["data"]
        file.create_group("data")


def in_a_folder(path):
    path.unlink()
    path.mkdir()
    make_file(path / "val.h5")


def of_itself(path):
    """A map of itself, which ends a process that reads it by a signal."""
    layout = h5py.VirtualLayout((NUM_EVENTS, *SMALL.input_shape), dtype="f4")
    layout[:] = h5py.VirtualSource(".", "data", shape=layout.shape)
    with h5py.File(path, "r+") as file:
        del file["data"]
        file.create_virtual_dataset("data", layout)


def begun(path):
    with h5py.File(path, "r+") as file:
        del file["data"]
        shape = (NUM_EVENTS, *SMALL.input_shape)
        file.create_dataset("data", shape, "f4", chunks=(1, *SMALL.input_shape))[:2] = 1


def written_to(path):
    """Another program has it open."""
    program = f"import h5py, time; file = h5py.File({str(path)!r}, 'r+'); print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as writer:
        writer.stdout.readline()
        yield
        writer.kill()


def waiting(path):
    """Its images are in another file, which is opened as long as nobody writes to it."""
    os.mkfifo(path.with_name("fifo.h5"))
    with h5py.File(path, "r+") as file:
        del file["data"]
        file["data"] = h5py.ExternalLink("fifo.h5", "data")


def beside_a_link(path):
    """In a folder, whose other file was not copied."""
    content = path.read_bytes()
    path.unlink()
    path.mkdir()
    (path / "train_1.h5").write_bytes(content)
    (path / "Train_2.H5").symlink_to("gone.h5")


NEEDS = "needs datasets 'data' and 'label' or 'all_events/hist' and 'all_events/y', and holds: "
TRAINING = "'train' in their names that end in .h5 or .hdf5, found val.h5"
REFUSED = [
    ("nowhere", lambda path: path.unlink(), "found no file of that name"),
    ("an empty folder", lambda path: (path.unlink(), path.mkdir()), "found no HDF5 file"),
    ("no training file", in_a_folder, TRAINING),
    ("a link to nothing", beside_a_link, "Train_2.H5: a part of the data by its name, and no file"),
    ("not HDF5", lambda path: path.write_text("data, label\n"), "cannot be opened as HDF5"),
    ("truncated", lambda path: path.write_bytes(path.read_bytes()[:-1000]), "truncated"),
    ("no data", move("data"), f"{NEEDS}label, other"),
    ("no labels", move("label"), f"{NEEDS}data, other"),
    ("no name", move("data", b"\xff"), f"{NEEDS}label, b'\\xff'"),
    ("a group", a_group, "needs datasets"),
    *(
        (f"shape {shape}", put("data", np.zeros(shape, np.float32)), f"of shape (N, 3, 64, 64), found {told}")
        for shape, told in [
            ((NUM_EVENTS, 3, 32, 32), "(20, 3, 32, 32)"),
            ((NUM_EVENTS, 64, 64, 3), "(20, 64, 64, 3)"),
            ((NUM_EVENTS,), "(20)"),
            ((), "()"),
        ]
    ),
    *(
        (
            dtype,
            put("data", np.zeros((NUM_EVENTS, *SMALL.input_shape), dtype)),
            f"must be float32, found {dtype}",
        )
        for dtype in ("float64", "uint8")
    ),
    *(
        (f"labels {number}", put("label", labels), f"must be one number for each of {NUM_EVENTS} events")
        for number, labels in enumerate(
            [np.zeros(NUM_EVENTS - 1), np.zeros((NUM_EVENTS, 2)), [b"signal"] * NUM_EVENTS]
        )
    ),
    *((f"label {bad}", labels_with(bad), f"found {bad};") for bad in (2, -1, 0.5, np.nan)),
    ("of itself", of_itself, "'data' is virtual"),
    ("begun", begun, "'data' was not written whole (2 of 20 chunks were)"),
    ("no events", lambda path: make_file(path, num_events=0), "at least 1 events"),
    ("damaged begin", lambda path: damage(path, 0), "event 0 cannot be read"),
    ("damaged end", lambda path: damage(path, NUM_EVENTS - 1), f"event {NUM_EVENTS - 1} cannot be read"),
]


@pytest.mark.parametrize(("harm", "told"), [pytest.param(*case, id=name) for name, *case in REFUSED])
def test_a_file_that_does_not_fit_is_refused(path, harm, told):
    harm(path)
    assert told in refusal(path)


def test_a_file_that_another_program_writes_to_is_waited_for(path):
    with contextmanager(written_to)(path):
        assert "another program has it open for writing; wait for it" in refusal(path)


def test_a_file_that_hdf5_never_ends_reading_is_refused(path, monkeypatch):
    monkeypatch.setattr(hdf5, "LIMIT_SECONDS", 1)
    waiting(path)
    assert "HDF5 did not end reading it within 1 s; the file is damaged" in refusal(path)


def test_fewer_events_than_are_needed(path):
    check_input(Input(path=path), SMALL, num_samples=NUM_EVENTS)
    told = f"at least {NUM_EVENTS + 1} events, one global batch of preset small, found {NUM_EVENTS};"
    assert told in refusal(path, num_samples=NUM_EVENTS + 1)


def test_reading_returns_what_is_stored_in_the_order_asked(path):
    indices = np.array([3, 19, 0, 7, 3])  # unsorted, and one twice
    with h5py.File(path) as file, EventFiles([path]) as events:
        stored_images, stored_labels = file["data"][:], file["label"][:]
        images, labels = events.read(indices)
        assert len(events) == NUM_EVENTS
        assert events.read(indices[:0])[0].shape == (0, 64, 64, 3)
    assert (images.dtype, labels.dtype) == (np.float32, np.int64)
    assert images.flags["C_CONTIGUOUS"]
    np.testing.assert_array_equal(images, np.moveaxis(stored_images[indices], 1, 3))
    np.testing.assert_array_equal(labels, stored_labels[indices])


def test_the_rpv_set_has_one_channel(rpv_path):
    check_input(Input(path=rpv_path), RPV, num_samples=NUM_EVENTS)
    with h5py.File(rpv_path) as file:
        hist, y = file["all_events/hist"][:], file["all_events/y"][:]
    with open_samples(Input(path=rpv_path), RPV, seed=(0, 0)) as events:
        images, labels = events.read(np.array([2, 1]))
    np.testing.assert_array_equal(images, hist[[2, 1], :, :, None])
    np.testing.assert_array_equal(labels, y[[2, 1]])
    assert (images.dtype, labels.dtype) == (np.float32, np.int64)


def test_a_file_and_a_preset_of_other_channels(path, rpv_path):
    assert "'all_events/hist' of shape (N, 3, 64, 64), found (20, 64, 64)" in refusal(rpv_path)
    message = refusal(path, RPV)
    assert "'data' of shape (N, 1, 64, 64), found (20, 3, 64, 64); choose another --preset" in message
    assert "public RPV data set" in message
    with pytest.raises(UsageError, match=r"preset rpv .* public RPV data set .* --data FILE"):
        default_input(RPV)


@pytest.fixture
def folder(tmp_path):
    """Training files of unequal length, one of them empty, among others; as one: b1, b2, c."""
    folder = tmp_path / "set"
    folder.mkdir()
    lengths = {"b2_train.hdf5": 0, "c_train.h5": 4, "b1_train.h5": 3, "a_val.h5": 5}
    for seed, (name, num_events) in enumerate(lengths.items()):
        make_file(folder / name, num_events=num_events, seed=seed)
    (folder / "train.txt").write_text("no events")
    return folder


def test_a_folder_is_one_sequence(folder):
    source = Input(path=folder)
    check_input(source, SMALL, num_samples=7)
    assert "at least 8 events" in refusal(folder, num_samples=8)
    indices = np.array([6, 0, 3, 2, 6])
    with open_samples(source, SMALL, seed=(0, 0)) as events:
        assert len(events) == 7
        images, labels = events.read(indices)
        for wrong in (-1, 7):
            with pytest.raises(IndexError):
                events.read(np.array([wrong]))
        assert events.read(np.array([], dtype=np.int64))[0].shape == (0, 64, 64, 3)
    with EventFiles([folder / "b1_train.h5"]) as first, EventFiles([folder / "c_train.h5"]) as last:
        whole_images, whole_labels = (
            np.concatenate(both)
            for both in zip(first.read(np.arange(3)), last.read(np.arange(4)), strict=True)
        )
    np.testing.assert_array_equal(images, whole_images[indices])
    np.testing.assert_array_equal(labels, whole_labels[indices])


def test_bad_events_of_a_folder_are_named_by_file_and_counted_over_all(folder):
    damage(folder / "c_train.h5", 1)
    with open_samples(Input(path=folder), SMALL, seed=(0, 0)) as events:
        with pytest.raises(BadSample, match=r"c_train\.h5: event 1 cannot be read") as bad:
            events.read(np.array([0, 4]))
        assert bad.value.index == 4


def test_a_folder_with_a_file_of_another_shape(folder):
    replace(folder / "c_train.h5", "data", np.zeros((4, 3, 32, 32), np.float32))
    with pytest.raises(UsageError, match=r"c_train\.h5: .* found \(4, 3, 32, 32\)"):
        check_input(Input(path=folder), SMALL)


@pytest.mark.parametrize("index", [-1, NUM_EVENTS])
def test_reading_an_event_that_does_not_exist(path, index):
    with EventFiles([path]) as events, pytest.raises(IndexError):
        events.read(np.array([index]))


def test_a_damaged_event_is_named(path):
    damage(path, 5)
    check_input(Input(path=path), SMALL)  # reads the ends only
    with EventFiles([path]) as events:
        events.read(np.array([4, 6]))
        with pytest.raises(BadSample, match=rf"{path}: event 5 cannot be read .* the file is damaged") as bad:
            events.read(np.array([4, 5, 6]))
    assert bad.value.index == 5


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_pixel_that_is_no_number_is_named(path, value):
    with h5py.File(path, "r+") as file:
        file["data"][7, 1, 2, 3] = value
    refused = pytest.raises(BadSample, match=r"event 7 has a pixel that is not a finite number")
    with EventFiles([path]) as events, refused as bad:
        events.read(np.array([7]))
    assert bad.value.index == 7


@pytest.mark.parametrize("value", [2, -1, 0.5, np.nan])
def test_a_label_that_is_none_is_named(path, value):
    labels = np.zeros(NUM_EVENTS)
    labels[7] = value
    replace(path, "label", labels)
    with EventFiles([path]) as events, pytest.raises(BadSample, match=rf"event 7 has the label {labels[7]},"):
        events.read(np.array([6, 7]))


def test_what_is_to_be_skipped_is_not_refused(path):
    damage(path, 0)
    labels = np.zeros(NUM_EVENTS)
    labels[7] = 2
    replace(path, "label", labels)
    check_input(Input(path=path, skip_bad=True), SMALL)


def test_synthetic_batches_have_the_form_of_read_ones(path):
    images, labels = synthetic_batch(SMALL, 64, np.random.default_rng(3))
    with EventFiles([path]) as events:
        for made, read in zip((images, labels), events.read(np.arange(2)), strict=True):
            assert (made.dtype, made.shape[1:]) == (read.dtype, read.shape[1:])
    assert len(images) == len(labels) == 64
    assert set(labels) == {0, 1}
    assert 0 <= images.min() < 0.01
    assert 0.99 < images.max() < 1


@pytest.mark.parametrize("name", WORKLOAD.presets)
def test_masks_are_drawn_anew_for_every_step(name):
    preset = WORKLOAD.preset(name)
    rng = np.random.default_rng(4)
    first, second = (step_inputs(preset, 2, rng, gate=False) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert one.dtype == np.uint8
        assert np.any(one != other)
    assert step_inputs(preset, 2, rng, gate=True) == ()
