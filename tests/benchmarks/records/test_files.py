"""Records in files: as those who read all of them see them, and as lists do."""

import pytest

from dlscale.benchmarks.records.files import load_records, summaries, summary
from dlscale.benchmarks.records.store import Store


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "study")
    store.open({"launches": []})
    return store


def both(store):
    """(records, bad files) as whoever reads all of them sees it; lists must show the same."""
    records, bad = load_records(store.folder)
    shown, bad_shown = summaries(store.folder)
    assert sorted(shown) == sorted(map(summary, records))
    assert [one.path for one in bad_shown] == [one.path for one in bad]
    return records, bad


def test_what_lists_show_has_the_records_ids(store, make_record):
    """Ids are made in another way there."""
    records = [make_record(0), make_record(107, attempt=2, failure="died")]
    for record in records:
        store.add(record)
    shown, _ = summaries(store.folder)
    assert sorted((one.case, one.attempt, one.failure_kind) for one in shown) == sorted(
        (record.case.id, record.attempt, record.failure.kind if record.failure else None)
        for record in records
    )


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"schema_version": 4}', b'{"schema_version": 5}'])
def test_lists_name_invalid_files_as_readers_of_all_do(store, make_record, content):
    store.add(make_record())
    (store.records_folder / "other.1.json").write_bytes(content)
    bad_files = both(store)[1]
    assert [bad.path.name for bad in bad_files] == ["other.1.json"]
    assert summaries(store.folder)[1][0].path == bad_files[0].path
