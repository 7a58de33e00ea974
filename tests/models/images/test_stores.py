"""Every format gives the samples that were written, by position, and names what is wrong and where."""

from __future__ import annotations

import os
import shutil
import sys

import numpy as np
import pytest
import scipy.io

from dlscale.models.images import open_store
from dlscale.models.images.decode import evaluation_image
from dlscale.models.samples import BadSample

from .conftest import DataSet, bad, refused

pytestmark = pytest.mark.requires("lmdb", "google_crc32c")


def test_samples_are_those_written_in_their_order(data_set):
    store = open_store(data_set.path)
    assert store.format == data_set.format
    assert len(store) == len(data_set.labels)
    assert store.num_classes == data_set.num_classes
    for index in (*range(len(store)), 0):
        sample = store.encoded(index)
        assert (sample.index, sample.label) == (index, data_set.labels[index])
        assert data_set.wheres[index] in sample.where
        np.testing.assert_array_equal(sample.data, data_set.data[index])
    store.close()


def test_a_data_set_may_be_open_twice(data_set):
    one, other = open_store(data_set.path), open_store(data_set.path)
    one.close()
    np.testing.assert_array_equal(other.encoded(0).data, data_set.data[0])


def labels(values):
    """Writes other labels of Flowers-102."""
    return lambda top: scipy.io.savemat(top / "imagelabels.mat", {"labels": values})


def cut(name, num_bytes):
    return lambda top: (top / name).write_bytes((top / name).read_bytes()[:num_bytes])


def entry(key, value):
    """Puts an entry into an LMDB."""

    def put(top):
        import lmdb

        with lmdb.open(str(top)) as written, written.begin(write=True) as transaction:
            transaction.put(key, value)

    return put


# Format, what is done to its files, which of them is opened, with which options, and what is told.
REFUSED = [
    ("empty", None, "nowhere", {}, "found no file or folder of that name; check the path"),
    ("empty", None, "", {}, "found nothing; check the path"),
    ("empty", lambda top: [(top / f"{n}.csv").touch() for n in "abcd"], "", {}, "found a.csv, b.csv, c.csv ...;"),
    ("empty", lambda top: (top / "ant").mkdir(), "", {"skip_bad": True}, "class folders without a single sample"),
    ("empty", entry(b"00000000_ant_0.JPEG", b"Datum"), "", {}, "needs the keys 00000000, 00000001, ... and __len__"),
    ("folders", None, "..", {}, "class folder without images; if it holds the class folders (ant), name it"),
    ("folders", None, "ant/ant_0.JPEG", {}, "ant_0.JPEG: need class folders, TFRecord files, an LMDB, CIFAR"),
    ("folders", lambda top: (top / "bee/x").symlink_to(".."), "", {"skip_bad": True}, "bee/x: a link to a folder"),
    ("empty", lambda top: [(top / part).mkdir() for part in ("train", "test")], "", {},
     "its folders test, train are parts of a set, not classes"),
    ("folders", lambda top: (top / "x").symlink_to("gone"), "", {}, "x: a link to nothing"),
    ("cifar", lambda top: (top / "data_batch_3.bin").unlink(), "", {},
     "of CIFAR-10's 5 training files it lacks data_batch_3.bin"),
    ("cifar", cut("data_batch_2.bin", 0), "", {}, "needs a multiple of 3073 bytes, found 0"),
    ("cifar", lambda top: os.mkfifo(top / "data_batch_6.bin"), "", {"skip_bad": True}, "and no file; copy the file"),
    ("records", lambda top: (top / "other.tfrecord").symlink_to("gone"), "", {}, "other.tfrecord: a part of the data"),
    *(("database", cut("data.mdb", size), "", {}, "data.mdb: ") for size in (0, 100, 8192)),
    *(("database", entry(b"__len__", number), "", {}, "__len__, their number, and has 10 entries")
      for number in (b"9" * 5000, b"-1", b"0", b"10")),
    *(("flowers", cut(name, 150), "", {}, f"{name}: ") for name in ("imagelabels.mat", "setid.mat")),
    ("flowers", lambda top: scipy.io.savemat(top / "setid.mat", {"a": [1]}), "", {}, "'trnid' cannot be read"),
    ("flowers", lambda top: (top / "setid.mat").unlink(), "", {}, "setid.mat: 'trnid' cannot be read"),
    ("flowers", lambda top: scipy.io.savemat(top / "setid.mat", {"trnid": [[1, 10]]}), "", {},
     "imagelabels.mat has 9 labels, setid.mat names image 10"),
    *(("flowers", labels(values), "", {}, "imagelabels.mat: ")
      for values in ([1.5], [1 + 2j], "text", [[]], {"a": 1}, [float("nan")])),
]  # fmt: skip


@pytest.fixture
def empty(tmp_path):
    return DataSet("", tmp_path, [], [], None, [])


@pytest.mark.parametrize(("name", "damage", "opened", "options", "told"), REFUSED)
def test_what_cannot_be_opened_is_told_in_one_line(request, name, damage, opened, options, told):
    path = request.getfixturevalue(name).path
    if damage:
        damage(path)
    assert told in refused(open_store, (path / opened).resolve(), **options)


@pytest.mark.parametrize(("name", "package"), [("database", "lmdb"), ("records", "google_crc32c")])
def test_a_missing_package_is_named_with_its_extra(name, package, request, monkeypatch):
    path = request.getfixturevalue(name).path
    monkeypatch.setitem(sys.modules, package, None)
    assert f"{path}: {package} is not installed here; pip install 'dlscale[images]'" in refused(
        open_store, path
    )


# Class folders


def test_an_empty_class_folder_is_named(folders):
    (folders.path / "bat").mkdir()
    (folders.path / "bat" / "notes.md").touch()
    message = refused(open_store, folders.path)
    assert f"{folders.path}/bat: class folder without images" in message
    assert "fill or remove it" in message
    # When bad samples are skipped its label, 1, is there and unused.
    store = open_store(folders.path, skip_bad=True)
    assert store.num_classes == 4
    assert {store.encoded(index).label for index in range(len(store))} == {0, 2, 3}


def test_hidden_entries_and_files_of_other_kinds_are_no_samples(folders):
    (folders.path / ".cache").mkdir()
    (folders.path / "ant" / "._ant_0.JPEG").touch()
    (folders.path / "ant" / "notes.txt").touch()
    store = open_store(folders.path)
    assert len(store) == len(folders.labels)
    assert store.num_classes == 3


def test_images_in_folders_of_a_class_are_its_images(folders):
    for name in ("more", "more/deep"):
        (folders.path / "ant" / name).mkdir()
        (folders.path / "ant" / name / "x.png").write_bytes(folders.data[2])
    store = open_store(folders.path)
    assert len(store) == len(folders.labels) + 2
    labels = [store.encoded(index).label for index in range(len(store))]
    assert labels.count(0) == folders.labels.count(0) + 2


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ant/x.webp", "1 of 4 files are neither JPEG nor PNG, such as x.webp; convert or remove them"),
        ("ant/more/x.gif", "1 of 4 files are neither JPEG nor PNG, such as more/x.gif"),
        ("x.jpg", "1 images next to the class folders (x.jpg) have no label"),
    ],
)
def test_what_would_be_left_out_is_counted_aloud(folders, name, said):
    path = folders.path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"RIFF")
    assert said in refused(open_store, folders.path)
    store = open_store(folders.path, skip_bad=True)
    if "/" in name:  # it is a sample that is skipped and counted
        assert len(store) == len(folders.labels) + 1
        with pytest.raises(BadSample, match="neither a JPEG nor a PNG file"):
            evaluation_image(store.encoded(3), height=8, width=8)


def test_folders_with_numbers_as_names_are_in_their_order(folders):
    for number, name in (("10", "cat"), ("2", "bee"), ("1", "ant")):
        (folders.path / name).rename(folders.path / number)
    store = open_store(folders.path)
    assert [store.encoded(index).label for index in range(len(store))] == folders.labels


def test_an_image_that_is_no_file_is_a_bad_sample_and_not_waited_for(folders):
    images = sorted(path for path in folders.path.rglob("*") if path.is_file())
    images[0].unlink()
    os.mkfifo(images[0])
    images[1].unlink()
    images[1].symlink_to("/dev/zero")
    store = open_store(folders.path)
    for index in (0, 1):
        assert f"{images[index]}: not a regular file" in bad(store, index)


# CIFAR-10


def test_a_single_file_of_cifar(cifar):
    store = open_store(cifar.path / "test_batch.bin")
    assert len(store) == 1
    assert store.encoded(0).label == 0


def test_a_cut_file_of_cifar(cifar):
    file = cifar.path / "data_batch_1.bin"
    file.write_bytes(file.read_bytes()[:-100])
    message = refused(open_store, cifar.path)
    assert (
        f"{file}: CIFAR-10 needs a multiple of 3073 bytes, found 9119: cut off in record 2 at byte 6146"
        in message
    )
    store = open_store(cifar.path, skip_bad=True)
    assert f"{file}: record 2 at byte 6146: cut off after 2973 of 3073 bytes" in bad(store, 2)
    np.testing.assert_array_equal(store.encoded(3).data, cifar.data[3])


# Flowers-102


def test_parts_of_flowers(flowers, samples):
    store = open_store(flowers.path / "tstid")
    assert [store.encoded(index).data for index in range(2)] == [samples[7].data, samples[6].data]
    assert [store.encoded(index).label for index in range(2)] == [2, 2]
    assert len(open_store(flowers.path / "valid")) == 1


# LMDB


def test_damaged_entries_of_a_database(database):
    import lmdb

    with lmdb.open(str(database.path)) as written, written.begin(write=True) as transaction:
        transaction.delete(b"00000003")
        transaction.put(b"other", b"x")
        transaction.put(b"00000004", b"abc")
    store = open_store(database.path)
    assert "key 00000003: missing" in bad(store, 3)
    assert "key 00000004: 3 bytes, too few for a label and an image" in bad(store, 4)


def test_a_database_that_replaced_another_is_never_taken_for_it(database, samples, tmp_path):
    import lmdb

    old = open_store(database.path)
    copy = tmp_path / "copy"
    shutil.copytree(database.path, copy)
    with lmdb.open(str(copy)) as written, written.begin(write=True) as transaction:
        transaction.put(b"00000000", bytes(4) + b"new")
    (copy / "data.mdb").replace(database.path / "data.mdb")
    assert old.encoded(0).data == samples[0].data
    assert "already open in this process" in refused(open_store, database.path)
    old.close()
    assert open_store(database.path).encoded(0).data == b"new"


def test_reading_after_closing_is_a_mistake(database):
    store = open_store(database.path)
    store.close()
    with pytest.raises(ValueError, match="read after it was closed"):
        store.encoded(0)
