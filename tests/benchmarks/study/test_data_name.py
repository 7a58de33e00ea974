"""How an input stands in a cell: other data, other name."""

from dlscale.benchmarks.study import expand as module
from dlscale.benchmarks.study.expand import data_name


def test_a_files_content_counts(tmp_path):
    path = tmp_path / "events.h5"
    path.write_bytes(b"one")
    first = data_name(path)
    assert first.startswith("events.h5:")
    path.write_bytes(b"two")
    assert data_name(path) != first


def test_a_large_file_is_known_by_size_and_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "WHOLE_BYTES", 100)
    monkeypatch.setattr(module, "END_BYTES", 10)
    path = tmp_path / "maps.npy"
    names = set()
    for content in (b"a" * 200, b"a" * 201, b"b" + b"a" * 199, b"a" * 199 + b"b"):
        path.write_bytes(content)
        names.add(data_name(path))
    assert len(names) == 4


def test_a_folders_files_count(tmp_path):
    folder = tmp_path / "train"
    (folder / "cats").mkdir(parents=True)
    (folder / "cats" / "1.jpg").write_bytes(b"123")
    first = data_name(folder)
    (folder / "cats" / "2.jpg").write_bytes(b"123")
    assert first.startswith("train:")
    assert data_name(folder) != first
