"""What a conversion refuses, counts, replaces and leaves behind; and its command line."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import data
from dlscale.models.images.convert import FORMATS, convert
from dlscale.models.samples import BadSample

from .conftest import content, encode, record, refused

pytestmark = pytest.mark.requires("lmdb", "google_crc32c")


# Bad samples


@pytest.mark.parametrize("to", FORMATS)
def test_a_damaged_image_ends_the_conversion_or_is_counted(folders, tmp_path, to):
    image = folders.path / "bee" / "bee_3.JPEG"
    image.write_bytes(image.read_bytes()[:-300])
    with pytest.raises(BadSample, match=f"{image}: the image cannot be decoded") as refused:
        convert(folders.path, tmp_path / "out", to)
    assert refused.value.index == 3
    assert os.listdir(tmp_path) == ["folders"]

    converted = convert(folders.path, tmp_path / "out", to, skip_bad=True)
    assert converted.num_samples == 8
    assert len(converted.skipped) == 1
    assert converted.skipped[0].startswith(f"{image}: the image cannot be decoded (")
    assert "skip_bad" not in converted.skipped[0]
    expected = list(zip(folders.data, folders.labels, strict=True))
    del expected[3]
    assert content(tmp_path / "out") == expected


def test_labels_outside_the_classes_are_bad(records, tmp_path):
    (records.path / "classes.txt").write_text("ant\nbee\n")
    with pytest.raises(BadSample, match=f"{records.wheres[6]}: label 2, where there are 2 classes"):
        convert(records.path, tmp_path / "out", "lmdb")
    assert convert(records.path, tmp_path / "out", "lmdb", skip_bad=True).num_samples == 6


def test_folders_cannot_leave_a_class_out(image_list, tmp_path):
    lines = image_list.path.read_text().splitlines()
    image_list.path.write_text("\n".join(line for line in lines if not line.endswith("1")))
    message = refused(convert, image_list.path, tmp_path / "out", "folders")
    assert "class 00001 (label 1) has no sample" in message
    convert(image_list.path, tmp_path / "out", "lmdb")
    assert {label for _, label in content(tmp_path / "out")} == {0, 2}


# Targets


@pytest.mark.parametrize("to", FORMATS)
def test_a_target_is_replaced_when_told(folders, tmp_path, to):
    convert(folders.path, tmp_path / "out", "lmdb" if to == "folders" else "folders")
    assert "out exists; choose another TARGET, or replace it with --overwrite" in refused(
        convert, folders.path, tmp_path / "out", to
    )
    convert(folders.path, tmp_path / "out", to, overwrite=True)
    assert content(tmp_path / "out") == list(zip(folders.data, folders.labels, strict=True))
    assert sorted(os.listdir(tmp_path)) == ["folders", "out"]


def test_what_holds_no_images_is_not_replaced(folders, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("precious")
    message = refused(convert, folders.path, tmp_path / "thesis", "lmdb", overwrite=True)
    assert "thesis holds something else than images" in message
    (tmp_path / "thesis.txt").write_text("precious")
    assert "holds something else" in refused(
        convert, folders.path, tmp_path / "thesis.txt", "list", overwrite=True
    )
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "precious"
    assert (tmp_path / "thesis.txt").read_text() == "precious"


def test_a_failed_replacement_leaves_the_old(folders, records, tmp_path):
    before = content(records.path)
    (folders.path / "bee" / "bee_3.JPEG").write_bytes(b"")
    with pytest.raises(BadSample):
        convert(folders.path, records.path, "lmdb", overwrite=True)
    assert content(records.path) == before


REFUSED = [
    ("folders", "out", "lmdb", {"num_shards": 2}, "--shards 2 is for TFRecord files, not for --to lmdb"),
    ("folders", "out", "tfrecord", {"num_shards": 10}, "--shards 10: 9 samples make 1 to 9 files"),
    ("folders", "out.txt", "lmdb", {}, "--to lmdb makes a folder; choose a TARGET without .txt"),
    ("folders", "out", "zip", {}, "no format 'zip'; choose one of: folders, tfrecord, lmdb, list"),
    ("folders", "a/b", "lmdb", {}, "there is no folder"),
    ("folders", "folders", "lmdb", {"overwrite": True}, "overlaps with the source"),
    ("folders", "folders/out", "lmdb", {"overwrite": True}, "overlaps with the source"),
    ("folders", ".", "lmdb", {"overwrite": True}, "overlaps with the source"),
    ("folders", "a_file", "lmdb", {"overwrite": True}, "found a file, which is not what would replace it"),
    ("records", "out.txt", "list", {}, "no image file of its own to list; name a folder as TARGET"),
    ("damaged", "out", "lmdb", {"skip_bad": True}, "all 9 samples are bad"),
]


@pytest.fixture
def damaged(folders):
    for image in folders.path.glob("*/*"):
        image.write_bytes(b"")
    return folders


@pytest.mark.parametrize(("source", "target", "to", "options", "told"), REFUSED)
def test_what_is_refused_changes_nothing(request, tmp_path, source, target, to, options, told):
    path = request.getfixturevalue(source).path
    (tmp_path / "a_file").write_text("precious")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert told in refused(convert, path, tmp_path / target, to, **options)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


@pytest.mark.requires("root")
@pytest.mark.parametrize("to", FORMATS)
def test_a_full_disk_is_told_and_left_clean(folders, tmp_path, to):
    noise = np.random.default_rng(0).integers(0, 256, size=(600, 600, 3), dtype=np.uint8)
    (folders.path / "ant" / "large.png").write_bytes(encode(noise, "PNG"))
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(disk)], check=True)
    try:
        assert "free some space or choose another TARGET" in refused(convert, folders.path, disk / "out", to)
        assert os.listdir(disk) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_ctrl_c_leaves_nothing(folders, tmp_path):
    def interrupt(done, total):
        if done == 5:
            raise KeyboardInterrupt

    for to in FORMATS:
        with pytest.raises(KeyboardInterrupt):
            convert(folders.path, tmp_path / "out", to, progress=interrupt)
    assert os.listdir(tmp_path) == ["folders"]


# Command line


def run(*arguments):
    return CliRunner().invoke(data.convert, [str(argument) for argument in arguments])


def test_the_command_counts_what_it_left_out(folders, tmp_path):
    for image in (folders.path / "bee").iterdir():
        image.write_bytes(b"")
    done = run(folders.path, tmp_path / "out", "--to", "lmdb", "--skip-bad")
    assert done.exit_code == 0, done.output
    assert done.output.count("skipped: ") == 3
    assert f"skipped: {folders.path}/bee/bee_3.JPEG: neither a JPEG nor a PNG file" in done.output
    assert (
        f"{tmp_path / 'out'}: 6 samples from class folders, 0.0 MiB of images, 3 bad samples skipped"
        in done.output
    )
    assert len(content(tmp_path / "out")) == 6


def test_the_command_passes_its_options_on(tmp_path, samples):
    source = tmp_path / "train.tfrecord"
    source.write_bytes(b"".join(record(sample, first_label=0) for sample in samples))
    arguments = (source, tmp_path / "out", "--to", "tfrecord", "--shards", 2, "--first-label", 0)
    assert run(*arguments).exit_code == 0
    assert len(list((tmp_path / "out").glob("*.tfrecord"))) == 2
    assert isinstance(run(*arguments).exception, UsageError)
    assert run(*arguments, "--overwrite").exit_code == 0


def test_no_framework_is_imported():
    heavy = ("torch", "tensorflow", "PIL", "lmdb", "google_crc32c", "scipy")
    code = (
        "import sys, dlscale.models.images.data, dlscale.models.images.convert; "
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
