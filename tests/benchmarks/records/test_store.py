import os

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.records import store as module
from dlscale.benchmarks.records.files import file_names
from dlscale.benchmarks.records.store import Store


@pytest.fixture
def store(tmp_path):
    opened = Store(tmp_path / "results" / "study")
    opened.open({"launches": []})
    return opened


def test_only_one_holds_the_lock(store):
    with store.lock(), pytest.raises(UsageError, match="another dlscale"), store.lock():
        pass
    with store.lock():
        pass


def test_a_folder_is_busy_while_somebody_holds_its_lock(store):
    assert not store.busy, "nobody ever locked it"
    with store.lock():
        assert Store(store.folder).busy
    assert not store.busy


@pytest.mark.parametrize("name", module.FOLDERS)
def test_a_link_in_the_place_of_a_folder_is_refused(store, tmp_path, name):
    (tmp_path / "home").mkdir()
    folder = store.folder / name
    if folder.is_dir():
        folder.rmdir()
    folder.parent.mkdir(exist_ok=True)
    folder.symlink_to(tmp_path / "home")
    with pytest.raises(UsageError, match=f"{name} is a symbolic link, which is not followed here"):
        store.open({"launches": []})


def test_an_unreadable_plan_is_told(store):
    (store.folder / "study.json").write_text("{")
    with pytest.raises(UsageError, match=r"study\.json"):
        store.planned()
    (store.records_folder / "case.1.json").write_text('{"schema_version": 5}')
    with pytest.raises(UsageError, match="schema version 5; this version of dlscale reads"):
        store.planned()


def test_study_json_is_written_once(store):
    store.open({"launches": ["other"]})
    assert (store.folder / "study.json").read_text() == '{\n "launches": []\n}', "for people, too"


def test_attempts_are_counted_without_looking_at_the_folder_again(store, make_record, monkeypatch):
    (store.records_folder / f"{make_record().case.id}.9.json").write_text(
        "{"
    )  # invalid, but its number is taken
    looks = []
    monkeypatch.setattr(module, "file_names", lambda study: looks.append(study) or file_names(study))
    case = make_record().case
    assert store.next_attempt(case) == 10
    store.add(make_record(attempt=10, failure="died"))
    assert store.next_attempt(case) == 11
    assert store.next_attempt(make_record(1).case) == 1
    assert len(looks) == 1


def test_an_attempt_that_another_program_wrote_is_not_repeated(store, make_record):
    record = make_record()
    assert store.next_attempt(record.case) == 1
    Store(store.folder).add(record)
    assert store.next_attempt(record.case) == 2
    with pytest.raises(FileExistsError, match="written once"):
        store.add(record)
    assert store.load() == [record]


def test_foreign_names_are_no_attempts(store, make_record):
    for name in (f"{make_record().case.id}.x.json", "notes.json", ".1.json"):
        (store.records_folder / name).write_text("{}")
    assert store.next_attempt(make_record().case) == 1


def test_the_latest_attempt_is_found(store, make_record):
    assert store.latest(make_record().case) is None
    for attempt in (1, 2, 10):
        store.add(make_record(attempt=attempt, failure=f"death {attempt}"))
    store.add(make_record(1))
    assert Store(store.folder).latest(make_record().case).failure.message == "death 10"
    assert Store(store.folder).latest(make_record(1).case).good


def test_what_is_finished_has_a_good_attempt(store, make_record):
    assert Store(store.folder / "nothing").finished() == set()
    store.add(make_record(0, failure="died"))
    store.add(make_record(1, failure="died"))
    store.add(make_record(1, attempt=2))
    assert store.finished() == {make_record(1).case.id}
    (store.records_folder / f"{make_record(2).case.id}.1.json").write_text("{")
    with pytest.raises(UsageError, match="invalid"):
        store.finished()


def test_a_folder_that_cannot_be_locked_is_told(store):
    (store.folder / "lock").mkdir()
    with pytest.raises(UsageError, match=r"cannot write .*lock"), store.lock():
        pass


def test_a_half_written_record_goes_when_nobody_can_be_writing_it(store):
    old, new = (store.records_folder / f".a.1.json.{name}.tmp" for name in ("old", "new"))
    for path in (old, new):
        path.write_text("{")
    os.utime(old, (1e9, 1e9))
    store.open({"launches": []})
    assert [path.exists() for path in (old, new)] == [False, True]
