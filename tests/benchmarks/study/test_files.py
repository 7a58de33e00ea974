"""Files that somebody else wrote: a wrong definition or plan is one line, and other data are another name."""

import hashlib
from pathlib import Path

import pytest

from dlscale.base import definitions
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.store import Store
from dlscale.benchmarks.study.expand import data_name
from dlscale.benchmarks.study.study import load_study, read_study_file
from dlscale.benchmarks.systems.system import load_system

DEEP = 100_000
HOSTILE = [
    pytest.param(b"a = " + b"[" * DEEP, id="lists in lists"),
    pytest.param(b"a = " + b"{b = " * DEEP, id="tables in tables"),
    pytest.param(b"a = " + b"9" * 5000, id="5000 digits"),
    pytest.param(b"title = " + b"9" * 400, id="400 digits"),
    pytest.param(b"a." * 900 + b"b = 1", id="tables by dots"),
    pytest.param(b'title = "x"\n' + b"#" * (17 << 20), id="17 MiB"),
    pytest.param(b"budget = inf", id="infinity"),
    pytest.param(b'name = "\xff"', id="no UTF-8"),
    pytest.param(b"controls = [{}]", id="a table for a name"),
    pytest.param(b"\x00" * 100, id="zeros"),
]


def refused(load, path):
    """The words with which it is refused; empty if it is not."""
    try:
        load(str(path))
    except UsageError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("content", HOSTILE)
@pytest.mark.parametrize("load", [load_study, load_system])
def test_a_hostile_definition_is_one_line(tmp_path, content, load):
    path = tmp_path / "mine.toml"
    path.write_bytes(content)
    said = refused(load, path)
    assert said
    assert "\n" not in said


@pytest.mark.parametrize("load", [load_study, load_system])
def test_a_name_that_no_file_can_have_is_one_line(load):
    for name in ("x" * 5000 + ".toml", "a\0b.toml"):
        assert "\n" not in refused(load, name)


@pytest.mark.parametrize(
    "content",
    [
        b"[" * DEEP,
        b"[]",
        b"null",
        b'{"launches": 5}',
        b'{"launches": [[5]]}',
        b'{"launches": {"a": 1}}',
        b"\xff",
    ],
)
def test_a_hostile_plan_is_one_line(tmp_path, content):
    (tmp_path / "study.json").write_bytes(content)
    with pytest.raises(UsageError, match=r"study\.json: .*run the study again") as caught:
        Store(tmp_path).planned()
    assert "\n" not in str(caught.value)


def test_a_mark_of_utf_8_is_read_over_and_utf_16_is_named(tmp_path):
    text = definitions.names("study/studies")["weak-scaling"].read_text()
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8-sig")
    assert load_study(str(path)).backends == ["none", "mpi", "gloo", "ring"]
    path.write_text(text, encoding="utf-16")
    assert "utf-8" in refused(load_study, path)


def test_a_folders_files_count(tmp_path):
    folder = tmp_path / "train"
    (folder / "cats").mkdir(parents=True)
    (folder / "cats" / "1.jpg").write_bytes(b"123")
    first = data_name(folder)
    (folder / "cats" / "2.jpg").write_bytes(b"123")
    assert first.startswith("train:")
    assert data_name(folder) != first


def test_above_256_mebibytes_the_size_and_a_mebibyte_at_both_ends_count(tmp_path):
    """Names stand in records: other limits would make other cells of the same files."""
    size, mebibyte = 256 * 1024 * 1024 + 1, 1024 * 1024
    path = tmp_path / "x.h5"
    with path.open("wb") as file:
        file.truncate(size)  # takes no space
        file.seek(mebibyte - 1)
        file.write(b"abc")
        file.seek(size - mebibyte - 1)
        file.write(b"def")
    digest = hashlib.sha256(f"{size}\0".encode() + bytes(mebibyte - 1) + b"a" + b"ef" + bytes(mebibyte - 2))
    assert data_name(path) == f"x.h5:{digest.hexdigest()[:12]}"


@pytest.mark.parametrize(
    "folder", ["results/reference/two-cores/profile", "tests/golden/records/servers-3f9de700"]
)
def test_studies_of_earlier_versions_are_read(folder):
    assert read_study_file(Path(__file__).parents[3] / folder).system.environments
