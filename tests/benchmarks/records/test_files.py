"""Records in files, in a pack, and in both."""

import sys

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.records import packing
from dlscale.benchmarks.records.files import PACK_FILE, load_records, summaries, summary
from dlscale.benchmarks.records.store import Store

pytestmark = pytest.mark.requires("pyarrow")


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "study")
    store.open({"launches": []})
    return store


@pytest.fixture
def packed(store, make_record):
    """Attempts 1 and 2 of a case and attempt 1 of another one, packed."""
    records = [make_record(failure="died"), make_record(attempt=2), make_record(1)]
    for record in records:
        store.add(record)
    packing.pack(store)
    return records


def both(store):
    """(records, bad files) as whoever reads all of them sees it; lists must show the same."""
    records, bad = load_records(store.folder)
    shown, bad_shown = summaries(store.folder)
    assert sorted(shown) == sorted(map(summary, records))
    assert [one.path for one in bad_shown] == [one.path for one in bad]
    return records, bad


def write(store, record, text=None):
    path = store.records_folder / summary(record).file_name
    path.write_text((text or record.model_dump_json()) + "\n")
    return path


def test_packed_records_are_the_same_and_in_the_same_order(store, packed):
    assert list(store.records_folder.iterdir()) == []
    assert both(store) == (packed, [])
    assert store.load() == packed


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


def test_later_files_count_too(store, packed, make_record):
    later = make_record(0, attempt=3)
    fresh = Store(store.folder)
    assert fresh.next_attempt(later.case) == 3
    fresh.add(later)
    assert both(store) == ([packed[0], packed[1], later, packed[2]], [])


def test_a_packed_attempt_is_written_once(store, packed):
    with pytest.raises(FileExistsError, match="written once"):
        Store(store.folder).add(packed[0])


def test_a_file_that_says_the_same_as_the_pack_counts_once(store, packed):
    write(store, packed[1])
    assert both(store) == (packed, [])


def test_a_file_that_says_something_else_is_named(store, packed, make_record):
    path = write(store, make_record(1, failure="died after all"))
    records, (bad,) = both(store)
    assert bad.path == path
    assert "differs from the record of that name in records.parquet" in bad.reason
    assert len(records) == 3
    with pytest.raises(UsageError, match="differs"):
        store.load()
    for change in (packing.pack, packing.unpack):
        with pytest.raises(UsageError, match="differs"):
            change(store)
    assert path.exists()


def test_a_file_that_is_cut_off_differs_too(store, packed):
    path = write(store, packed[1], packed[1].model_dump_json()[:200])
    assert [one.path for one in both(store)[1]] == [path]


def test_the_latest_attempt_may_be_packed(store, packed, make_record):
    fresh = Store(store.folder)
    assert fresh.latest(packed[0].case) == packed[1]
    assert fresh.latest(make_record(5).case) is None
    later = make_record(attempt=3)
    fresh.add(later)
    assert fresh.latest(later.case) == later


def test_a_study_without_the_empty_folder_is_still_one(store, packed):
    store.records_folder.rmdir()
    assert both(store) == (packed, [])
    assert Store(store.folder).load() == packed
    assert packing.unpack(store) == 3
    assert both(store) == (packed, [])


def test_a_damaged_pack_is_named_and_hides_no_file(store, packed, make_record):
    path = store.folder / PACK_FILE
    sound = path.read_bytes()
    later = make_record(8)
    store.add(later)
    import pyarrow.parquet

    inside = pyarrow.parquet.ParquetFile(path).metadata.row_group(0).column(6).data_page_offset + 500
    flipped = sound[:inside] + bytes([sound[inside] ^ 4]) + sound[inside + 1 :]
    for damaged in (sound[:-100], b"", flipped):
        path.write_bytes(damaged)
        records, bad = load_records(store.folder)
        assert [one.path for one in bad] == [path]
        assert "restore it" in bad[0].reason
        assert later in records
        with pytest.raises(UsageError, match=PACK_FILE):
            store.load()
        for change in (packing.pack, packing.unpack):
            with pytest.raises(UsageError, match=PACK_FILE):
                change(store)
        assert path.read_bytes() == damaged


def test_a_pack_of_another_version_is_named(store, packed, monkeypatch):
    monkeypatch.setattr("dlscale.benchmarks.records.files.SCHEMA_VERSION", 99)
    records, (bad,) = both(store)
    assert records == []
    assert bad.reason.endswith("this version of dlscale reads 99")


def test_without_pyarrow_one_line_says_what_to_install(store, packed, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for read in (load_records, summaries, lambda _: packing.unpack(store)):
        with pytest.raises(
            UsageError, match=r"pyarrow, which is not installed; pip install 'dlscale\[parquet\]'"
        ):
            read(store.folder)


def test_files_alone_need_no_pyarrow(store, make_record, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    store.add(make_record())
    assert both(store) == ([make_record()], [])
    with pytest.raises(UsageError, match="pip install"):
        packing.pack(store)
    assert both(store) == ([make_record()], [])


def test_a_reader_that_meets_packing_sees_every_record(store, make_record, monkeypatch):
    """The files are listed, then packed and removed, then looked for."""
    for block in range(3):
        store.add(make_record(block))
    wanted = store.load()
    from dlscale.benchmarks.records import files

    listing = files.file_names

    def slow(study):
        names = listing(study)
        monkeypatch.setattr(files, "file_names", listing)
        packing.pack(store)
        return names

    monkeypatch.setattr(files, "file_names", slow)
    assert load_records(store.folder) == (wanted, [])
