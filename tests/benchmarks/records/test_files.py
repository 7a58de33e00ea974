"""Records in files: as those who read all of them see them, and as lists do."""

import pytest

from dlscale.benchmarks.records.files import load_records, summaries, summary
from dlscale.benchmarks.records.store import Store


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "study")
    store.open({"launches": []})
    return store


def test_what_lists_show_has_the_records_ids(store, make_record):
    """Ids are made in another way there."""
    records = [make_record(0), make_record(107, attempt=2, failure="died")]
    for record in records:
        store.add(record)
    shown, _ = summaries(store.folder)
    assert sorted(shown) == sorted(map(summary, records))
    assert {one.case for one in shown} == {record.case.id for record in records}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"schema_version": 4}', b'{"schema_version": 5}'])
def test_lists_name_invalid_files_as_readers_of_all_do(store, make_record, content):
    store.add(make_record())
    (store.records_folder / "other.1.json").write_bytes(content)
    (shown, bad_shown), (records, bad) = summaries(store.folder), load_records(store.folder)
    assert shown == [summary(record) for record in records]
    assert [one.path.name for one in bad_shown] == [one.path.name for one in bad] == ["other.1.json"]
