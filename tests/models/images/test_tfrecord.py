"""TFRecord files and their messages: the same as TensorFlow's, and what damage is told."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlscale.models.images import open_store, tfrecord
from dlscale.models.images.store import OpenFiles
from dlscale.models.images.tfrecord import read_example

from .conftest import bad, frame, message, record, refused

pytestmark = pytest.mark.requires("lmdb", "google_crc32c", "google.protobuf")
INT64 = st.integers(-(2**63), 2**63 - 1)
# An empty list has no type on the wire, so it cannot come back as it went.
VALUES = st.lists(st.binary(max_size=300), min_size=1, max_size=4) | st.lists(INT64, min_size=1, max_size=4)
FEATURES = st.dictionaries(st.text(max_size=20), VALUES, max_size=5)
# What TensorFlow 2.21 serialises for {a: [b"x", b""], f: [1.5, 2.0], image/class/label: [1, -2, 300]}.
OF_TENSORFLOW = bytes.fromhex(
    "0a490a0c0a016212070a050a01780a000a110a0166120c120a0a080000c03f000000400a260a11696d6167652f636c6173732f6c6162656c"
    "12111a0f0a0d01feffffffffffffffff01ac02"
)


@pytest.fixture(scope="module")
def tensorflow():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import tensorflow

        return tensorflow


@given(FEATURES)
def test_a_message_comes_back(features):
    assert read_example(message(features)) == features


def test_a_message_of_tensorflow_is_read():
    assert read_example(OF_TENSORFLOW) == {"b": [b"x", b""], "image/class/label": [1, -2, 300]}


def test_numbers_that_are_not_packed_are_read():
    """{"n": [1, 300]}, each number a field of its own, as writers of the older syntax have it."""
    assert read_example(bytes.fromhex("0a0e0a0c0a016e12071a05080108ac02")) == {"n": [1, 300]}


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data):
    with contextlib.suppress(ValueError):
        read_example(data)


@pytest.mark.parametrize("place", range(1, len(OF_TENSORFLOW)))
def test_every_cut_of_a_message_is_refused(place):
    with pytest.raises(ValueError, match=r"no tensorflow\.train\.Example"):
        read_example(OF_TENSORFLOW[:place])


def test_without_protobuf_opening_says_what_to_install(records, monkeypatch):
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    tfrecord._example_class.cache_clear()
    try:
        assert "google.protobuf is not installed here; pip install 'dlscale[images]'" in refused(
            open_store, records.path
        )
    finally:
        tfrecord._example_class.cache_clear()


@pytest.mark.requires("tensorflow")
def test_what_tensorflow_writes_is_read_by_us(tensorflow, samples, tmp_path):
    train = tensorflow.train

    def of_bytes(value):
        return train.Feature(bytes_list=train.BytesList(value=[value]))

    for number in range(3):
        with tensorflow.io.TFRecordWriter(str(tmp_path / f"train-{number:05d}-of-00003")) as writer:
            for sample in samples[3 * number : 3 * number + 3]:
                feature = {
                    "image/encoded": of_bytes(sample.data),
                    "image/class/label": train.Feature(int64_list=train.Int64List(value=[sample.label + 1])),
                    "image/class/text": of_bytes(b"a name"),
                    "image/object/bbox/xmin": train.Feature(float_list=train.FloatList(value=[0.25, 0.5])),
                    "image/object/bbox/label": train.Feature(int64_list=train.Int64List(value=[])),
                }
                example = train.Example(features=train.Features(feature=feature))
                writer.write(example.SerializeToString())
    store = open_store(tmp_path)
    read = [store.encoded(index) for index in range(len(store))]
    assert [(sample.data, sample.label) for sample in read] == [
        (sample.data, sample.label) for sample in samples
    ]


def test_a_set_is_named_where_there_are_several(records, samples):
    for name in ("validation-00000-of-00001", "other.tfrecord"):
        (records.path / name).write_bytes((records.path / "train-00001-of-00003").read_bytes())
    message = refused(open_store, records.path)
    assert "holds several sets of TFRecord files: other, train, validation; choose one" in message
    store = open_store(records.path / "train")
    assert [store.encoded(index).data for index in range(len(store))] == records.data
    assert len(open_store(records.path / "validation")) == 1
    assert len(open_store(records.path / "other")) == 1


def test_missing_files_of_a_set_are_counted(records):
    (records.path / "train-00001-of-00003").unlink()
    assert "found 2 of 3 TFRecord files of a set; copy the rest" in refused(open_store, records.path)
    assert len(open_store(records.path, skip_bad=True)) == len(records.labels) - 1


def test_more_files_than_are_kept_open(tmp_path, samples):
    for number, sample in enumerate(samples):
        (tmp_path / f"train-{number:05d}-of-{len(samples):05d}").write_bytes(record(sample))
    files = OpenFiles(limit=2)
    for _ in range(2):
        for path in sorted(tmp_path.iterdir()):
            assert files.read(path, 0, num_bytes=4) == path.read_bytes()[:4]
    descriptors = {os.readlink(f"/proc/self/fd/{number}") for number in files._descriptors.values()}
    assert descriptors == {str(path) for path in sorted(tmp_path.iterdir())[-2:]}
    files.close()


@pytest.mark.parametrize("cut", [1, 4, 100])
def test_a_cut_file_is_named_with_record_and_byte(records, cut):
    file = records.path / "train-00000-of-00003"
    content = file.read_bytes()
    file.write_bytes(content[:-cut])
    where = records.wheres[4]
    told = f"{where}: cut off, it would end at byte {len(content)} and the file ends at {len(content) - cut}"
    assert told in refused(open_store, records.path)
    store = open_store(records.path, skip_bad=True)
    assert len(store) == len(records.labels)
    assert f"{where}: the data do not have the CRC" in bad(store, 4)
    assert store.encoded(5).data == records.data[5]


def test_a_file_cut_within_a_header(records, samples):
    file = records.path / "train-00000-of-00003"
    begin = sum(len(record(sample)) for sample in samples[:4])
    file.write_bytes(file.read_bytes()[: begin + 7])
    assert f"record 4 at byte {begin}: its length does not have the CRC stored with it" in refused(
        open_store, file
    )


def test_a_damaged_length_ends_what_is_known_of_its_file(records, samples):
    file = records.path / "train-00000-of-00003"
    content = bytearray(file.read_bytes())
    begin = len(record(samples[0]))
    content[begin] ^= 1
    file.write_bytes(content)
    told = f"{file}: record 1 at byte {begin}: its length does not have the CRC stored with it"
    assert told in refused(open_store, records.path)
    store = open_store(records.path, skip_bad=True)
    assert len(store) == 2 + 1 + 3
    assert "record 1 at byte" in bad(store, 1)
    assert store.encoded(0).data == records.data[0]
    assert [store.encoded(index).data for index in range(2, 6)] == records.data[5:]


def test_damaged_data_are_found_on_reading(records):
    file = records.path / "train-00002-of-00003"
    content = bytearray(file.read_bytes())
    content[50] ^= 1
    file.write_bytes(content)
    store = open_store(records.path)
    assert f"{records.wheres[6]}: the data do not have the CRC stored with them" in bad(store, 6)


@pytest.mark.parametrize(
    ("features", "told"),
    [
        (
            {"image/class/label": [1]},
            "needs one value 'image/encoded' of type bytes; the record has image/class/label",
        ),
        ({}, "the record has nothing"),
        ({"image/encoded": [b"x"], "image/class/label": [b"1"]}, "'image/class/label' of type int"),
        (
            {"image/encoded": [b"x"], "image/class/label": [1, 2]},
            "'image/class/label' of type int",
        ),
    ],
)
def test_records_without_an_image_or_a_label(tmp_path, features, told):
    (tmp_path / "train.tfrecord").write_bytes(frame(message(features)))
    assert told in bad(open_store(tmp_path), 0)


def test_labels_from_0_are_refused(tmp_path, samples):
    (tmp_path / "train.tfrecord").write_bytes(record(samples[0], first_label=0))
    assert "label 0, where labels count from 1 by ImageNet's convention" in bad(open_store(tmp_path), 0)
