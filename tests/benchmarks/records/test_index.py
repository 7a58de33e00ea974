"""A cache that may be missing, torn, old or wrong, and never shows."""

import os

import pytest

from dlscale.benchmarks.records import files
from dlscale.benchmarks.records.archive import summary
from dlscale.benchmarks.records.files import INDEX_FILE, parse_record, read_record, summaries
from dlscale.benchmarks.records.store import Store


@pytest.fixture
def store(tmp_path, make_record):
    """Three records, one of them a failure."""
    store = Store(tmp_path / "study")
    store.open({"launches": []})
    for block in range(3):
        store.add(make_record(block, failure="died" if block == 1 else None))
    return store


@pytest.fixture
def reads(monkeypatch):
    """The names of the files that were really read."""
    names = []

    def reading(path):
        names.append(path.name)
        return read_record(path)

    monkeypatch.setattr(files, "read_record", reading)
    return names


def expected(store):
    return sorted(
        summary(parse_record(path, path.read_bytes())) for path in store.records_folder.glob("*.json")
    )


def shown(store):
    found, bad = summaries(store.folder)
    assert bad == []
    return sorted(found)


def test_records_that_were_added_need_not_be_read_again(store, reads):
    assert shown(store) == expected(store)
    assert reads == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda text: text[:-20],
        lambda text: text[:-20] + text,
        lambda text: text.replace(b'"died"', b'"lied"'),
        lambda text: text.replace(b"killed", b"hanged"),
        lambda text: b"\0" * len(text),
        lambda text: b"\xff\n[]\n{}\nnull\n" + text,
        lambda text: text + text,
    ],
)
def test_a_damaged_index_costs_time_only(store, reads, damage):
    path = store.folder / INDEX_FILE
    path.write_bytes(damage(path.read_bytes()))
    assert shown(store) == expected(store)
    reads.clear()
    assert shown(store) == expected(store)
    assert reads == [], "it was made whole"


def test_an_index_of_another_version_is_not_believed(store, reads, monkeypatch):
    monkeypatch.setattr(files, "_SEED", 1)
    assert shown(store) == expected(store)
    assert len(reads) == 3


def test_a_record_that_changed_is_noticed(store, make_record):
    changed = make_record(1)  # no failure any more
    (store.records_folder / summary(changed).file_name).write_text(changed.model_dump_json())
    assert shown(store) == expected(store)
    assert all(one.good for one in shown(store))


def test_a_change_that_keeps_the_size_is_noticed_by_its_time(store):
    path = next(store.records_folder.glob("*-01.1.json"))
    path.write_bytes(path.read_bytes().replace(b'"died"', b'"fell"'))
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    assert "fell" in [one.failure_message for one in shown(store)]


def test_a_record_that_vanished_is_not_shown(store):
    next(store.records_folder.glob("*-01.1.json")).unlink()
    assert len(shown(store)) == 2
    assert shown(store) == expected(store)


def test_records_that_came_otherwise_are_shown(store, make_record, reads):
    other = make_record(7)
    (store.records_folder / summary(other).file_name).write_text(other.model_dump_json())
    assert shown(store) == expected(store)
    assert reads == [summary(other).file_name]
    assert shown(store) == expected(store)
    assert reads == [summary(other).file_name], "read once"


def test_unsound_files_are_named_each_time(store):
    path = next(store.records_folder.glob("*-00.1.json"))
    path.write_bytes(path.read_bytes()[:100])
    for _ in range(2):
        found, bad = summaries(store.folder)
        assert [one.path for one in bad] == [path]
        assert len(found) == 2


def test_where_nothing_can_be_written_the_same_is_shown(store, monkeypatch):
    wanted = expected(store)
    (store.folder / INDEX_FILE).unlink()
    (store.folder / INDEX_FILE).mkdir()  # neither read nor replaced
    assert shown(store) == wanted
    assert shown(store) == wanted


def test_what_cannot_be_indexed_is_still_recorded(store, make_record):
    (store.folder / INDEX_FILE).unlink()
    (store.folder / INDEX_FILE).mkdir()
    store.add(make_record(9))
    assert len(shown(store)) == 4
