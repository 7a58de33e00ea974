"""How an input stands in a cell: other data, other name."""

import hashlib

import pytest

from dlscale.benchmarks.study import expand as module
from dlscale.benchmarks.study.expand import data_name


def test_a_folders_files_count(tmp_path):
    folder = tmp_path / "train"
    (folder / "cats").mkdir(parents=True)
    (folder / "cats" / "1.jpg").write_bytes(b"123")
    first = data_name(folder)
    (folder / "cats" / "2.jpg").write_bytes(b"123")
    assert first.startswith("train:")
    assert data_name(folder) != first


@pytest.mark.parametrize(
    ("size", "changed", "same"),
    [(8, 4, False), (9, 4, True), (9, 1, False), (9, 2, True), (9, 6, True), (9, 7, False)],
)
def test_of_a_file_above_the_limit_both_ends_count(tmp_path, monkeypatch, size, changed, same):
    monkeypatch.setattr(module, "WHOLE_BYTES", 8)
    monkeypatch.setattr(module, "END_BYTES", 2)
    path = tmp_path / "x.h5"
    content = bytearray(size)
    path.write_bytes(content)
    before = data_name(path)
    content[changed] = 1
    path.write_bytes(content)
    assert (data_name(path) == before) == same


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
