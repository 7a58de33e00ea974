"""Repackaging keeps bytes, labels and names, between all formats."""

from __future__ import annotations

import io
import os

import numpy as np
import pytest
from PIL import Image

from dlscale.models.images import open_store
from dlscale.models.images.convert import FORMATS, convert

from .conftest import content, record, refused

pytestmark = pytest.mark.requires("lmdb", "google_crc32c")


def as_pixels(data):
    return data if isinstance(data, np.ndarray) else np.array(Image.open(io.BytesIO(data)))


def in_order_of_labels(samples):
    return sorted(samples, key=lambda sample: sample[1])


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize("name", ["folders", "records", "database", "image_list", "flowers"])
def test_every_byte_and_label_is_kept(name, to, request, tmp_path):
    data_set = request.getfixturevalue(name)
    converted = convert(data_set.path, tmp_path / "out", to)
    expected = list(zip(data_set.data, data_set.labels, strict=True))
    found = content(tmp_path / "out")
    if to == "folders":  # read class by class
        assert sorted(found) == sorted(expected)
        assert [label for _, label in found] == sorted(data_set.labels)
    else:
        assert found == expected
    assert converted.num_samples == len(expected)
    assert converted.num_bytes == sum(len(data) for data in data_set.data)
    assert (converted.source_format, converted.skipped) == (data_set.format, ())
    assert sorted(os.listdir(tmp_path)) == sorted(
        {"out", os.path.relpath(data_set.path, tmp_path).split("/")[0]}
    )


def test_all_the_way_round_from_raw_pixels(cifar, tmp_path):
    """CIFAR-10 -> TFRecord -> list -> LMDB: no pixel and no name of a class is lost."""
    convert(cifar.path, tmp_path / "records", "tfrecord", num_shards=3)
    convert(tmp_path / "records", tmp_path / "list", "list")
    convert(tmp_path / "list", tmp_path / "lmdb", "lmdb")
    for path in (tmp_path / "records", tmp_path / "list", tmp_path / "lmdb"):
        store = open_store(path)
        assert store.classes == cifar.classes
        for index in range(len(store)):
            np.testing.assert_array_equal(as_pixels(store.encoded(index).data), cifar.data[index])
            assert store.encoded(index).label == cifar.labels[index]


def test_names_of_classes_survive_where_folders_have_them(folders, tmp_path):
    convert(folders.path, tmp_path / "lmdb", "lmdb")
    convert(tmp_path / "lmdb", tmp_path / "records", "tfrecord")
    convert(tmp_path / "records", tmp_path / "again", "folders")
    assert sorted(os.listdir(tmp_path / "again")) == ["ant", "bee", "cat", "classes.txt"]
    assert open_store(tmp_path / "again").classes == folders.classes


@pytest.mark.parametrize("to", FORMATS)
def test_names_of_classes_with_line_ends_stay_one_each(folders, tmp_path, to):
    (folders.path / "bee").rename(folders.path / "bee\n of  honey")
    convert(folders.path, tmp_path / "out", to)
    assert open_store(tmp_path / "out").classes == ("ant", "bee of honey", "cat")


def test_names_of_files_survive_where_the_format_has_them(folders, tmp_path):
    convert(folders.path, tmp_path / "records", "tfrecord")
    convert(tmp_path / "records", tmp_path / "again", "folders")
    assert sorted(os.listdir(tmp_path / "again" / "bee")) == sorted(os.listdir(folders.path / "bee"))


@pytest.mark.parametrize(
    "names",
    [("cat", "ant", "bee"), ("a/b", "c", "d"), ("..", "a", "b"), ("ant", "ant", "cat"), ("1", "3", "2")],
    ids=["out of order", "a path", "a way up", "twice the same", "numbers out of order"],
)
def test_names_that_make_no_folders_are_kept_beside_them(image_list, tmp_path, names):
    image_list.path.with_name("train.classes.txt").write_text("\n".join(names))
    convert(image_list.path, tmp_path / "out", "folders")
    assert sorted(os.listdir(tmp_path / "out")) == ["00000", "00001", "00002", "classes.txt"]
    assert open_store(tmp_path / "out").classes == names
    assert in_order_of_labels(content(tmp_path / "out")) == content(image_list.path)


def test_files_of_the_same_name_are_both_kept(tmp_path, samples):
    for folder, sample in zip("ab", samples, strict=False):
        (tmp_path / "in" / folder).mkdir(parents=True)
        (tmp_path / "in" / folder / "x.JPEG").write_bytes(sample.data)
    (tmp_path / "in" / "list.txt").write_text("a/x.JPEG 0\nb/x.JPEG 0\n")
    convert(tmp_path / "in", tmp_path / "out", "folders")
    assert sorted(os.listdir(tmp_path / "out" / "00000")) == ["00000001_x.JPEG", "x.JPEG"]
    assert sorted(content(tmp_path / "out")) == sorted((sample.data, 0) for sample in samples[:2])


def test_names_from_records_cannot_leave_their_folder(tmp_path, samples):
    names = [b"../../evil.jpg", b"/evil.jpg", b".hidden.jpg", b"..", b"a b\n.jpg", b"evil.sh", b""]
    (tmp_path / "train.tfrecord").write_bytes(
        b"".join(record(samples[0], **{"image/filename": [name]}) for name in names)
    )
    convert(tmp_path / "train.tfrecord", tmp_path / "out", "folders")
    assert sorted(os.listdir(tmp_path)) == ["out", "train.tfrecord"]
    assert sorted(os.listdir(tmp_path / "out")) == ["00000"]
    assert len(content(tmp_path / "out")) == len(names)
    assert sorted(os.listdir(tmp_path / "out" / "00000")) == [
        "00000001_evil.jpg",
        "00000003.jpg",
        "00000006.jpg",
        "a_b_.jpg",
        "evil.jpg",
        "evil.sh.jpg",
        "hidden.jpg",
    ]


def test_shards_share_the_samples_in_order(folders, tmp_path):
    convert(folders.path, tmp_path / "out", "tfrecord", num_shards=4)
    files = sorted((tmp_path / "out").glob("*.tfrecord"))
    assert [file.name for file in files] == [f"data-{number:05d}-of-00004.tfrecord" for number in range(4)]
    assert [len(open_store(file)) for file in files] == [3, 2, 2, 2]


def test_foreign_records_from_0_are_put_right_once(tmp_path, samples):
    (tmp_path / "train.tfrecord").write_bytes(b"".join(record(sample, first_label=0) for sample in samples))
    assert "--first-label 0" in refused(convert, tmp_path / "train.tfrecord", tmp_path / "out", "tfrecord")
    convert(tmp_path / "train.tfrecord", tmp_path / "out", "tfrecord", first_label=0)
    assert content(tmp_path / "out") == [(sample.data, sample.label) for sample in samples]


# Lists of files where they are


@pytest.mark.parametrize("place", ["train.txt", "below/train.txt", "folders/train.txt"])
def test_a_list_refers_to_the_files_of_its_source(folders, tmp_path, place):
    (tmp_path / "below").mkdir()
    target = tmp_path / place
    convert(folders.path, target, "list")
    up = {"train.txt": "folders/", "below/train.txt": "../folders/", "folders/train.txt": ""}[place]
    first = f"{up}ant/ant_0.JPEG 0"
    assert target.read_text().splitlines()[0] == first
    assert target.with_name("train.classes.txt").read_text() == "ant\nbee\ncat\n"
    assert content(target) == list(zip(folders.data, folders.labels, strict=True))


def test_folders_that_begin_with_a_hash_are_no_comments_in_a_list(folders, tmp_path):
    (folders.path / "ant").rename(folders.path / "#ant")
    convert(folders.path, folders.path / "train.txt", "list")
    assert content(folders.path / "train.txt") == list(zip(folders.data, folders.labels, strict=True))


@pytest.mark.parametrize("name", ["ant\n", " ant"])
def test_names_that_would_break_a_line_are_refused(folders, tmp_path, name):
    (folders.path / "ant").rename(folders.path / name)
    assert "a list cannot hold this name" in refused(
        convert, folders.path, folders.path / "train.txt", "list"
    )
    convert(folders.path, tmp_path / "out", "list")
    assert sorted(content(tmp_path / "out")) == sorted(zip(folders.data, folders.labels, strict=True))


def test_names_of_an_old_list_go_with_it(folders, flowers, tmp_path):
    convert(folders.path, tmp_path / "train.txt", "list")
    convert(flowers.path, tmp_path / "train.txt", "list", overwrite=True)  # knows no names
    assert not (tmp_path / "train.classes.txt").exists()
    assert content(tmp_path / "train.txt") == list(zip(flowers.data, flowers.labels, strict=True))
