"""A study's folder: its lock and links, its attempts, and what is refused as a record."""

import json
import os
from functools import reduce
from operator import getitem

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.records import store as module
from dlscale.benchmarks.records.record import GATES_VERSION, SCHEMA_VERSION
from dlscale.benchmarks.records.store import BadFile, Store, load_records, parse_record
from tests.made_records import TARGET, solved
from tests.made_records import make_record as training


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


def test_an_invalid_attempt_takes_a_number(store, make_record):
    case = make_record().case
    (store.records_folder / f"{case.id}.9.json").write_text("{")
    assert store.next_attempt(case) == 10
    with pytest.raises(UsageError, match="is invalid: not complete JSON"):
        store.latest(case)


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


@pytest.mark.parametrize("version", [1, SCHEMA_VERSION - 1, SCHEMA_VERSION + 1])
def test_a_record_of_another_schema_is_refused_in_one_line_that_names_it(store, make_record, version):
    """Whatever else has changed in it: fields that are no longer there, and those that were not yet."""
    path = store.add(make_record(0))
    content = json.loads(path.read_text()) | {"schema_version": version, "lost": 1}
    del content["phases"]
    path.write_text(json.dumps(content))
    reason = f"schema version {version}; this version of dlscale reads {SCHEMA_VERSION}"
    assert load_records(store.folder)[1] == [BadFile(path=path, reason=reason)]
    with pytest.raises(UsageError, match=f"{path.name} is invalid: {reason}"):
        store.load()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"schema_version": 4}', b'{"schema_version": 7}'])
def test_an_invalid_file_is_named_and_the_others_are_read(store, make_record, content):
    store.add(make_record())
    (store.records_folder / "other.1.json").write_bytes(content)
    records, bad = load_records(store.folder)
    assert records == [make_record()]
    assert [one.path.name for one in bad] == ["other.1.json"]


@pytest.mark.parametrize(
    ("place", "change", "problem"),
    [
        (("ranks", 0, "rank"), lambda _: 7, "ranks are [7, 1], of a case of 2"),
        (("ranks", 0, "rank"), lambda _: 1, "ranks are [1, 1], of a case of 2"),
        (("started_at",), lambda _: "noon", "started_at: 'noon' is no date and time; write "),
        (("started_at",), lambda _: "9999-12-31T23:59:59-10:00", "-10:00' is no date and time; write "),
        (("case", "cell", "framework"), lambda _: "mx", "no framework 'mx'; known are: "),
        (("phases", "gates"), lambda _: [], "gates is that of 0 ranks"),
        (("phases", "connect"), lambda _: [1e308, 1.0], "phases.connect.0: less than 9007199254740992"),
    ],
)
def test_what_findings_could_not_use_is_refused(store, make_record, place, change, problem):
    """They look up a rank in lists of all ranks, and what they know of a framework."""
    content = json.loads(make_record(0).model_dump_json())
    *folders, name = place
    table = reduce(getitem, folders, content)
    table[name] = change(table[name])
    found = parse_record(store.folder / "x.1.json", json.dumps(content).encode())
    assert isinstance(found, BadFile)
    assert problem in found.reason
    assert "\n" not in found.reason


def test_a_record_of_an_unknown_backend_whose_gates_nobody_knows_is_refused_alone(store, make_record):
    record = make_record(0).model_copy(update={"gates_version": GATES_VERSION})
    content = json.loads(record.model_dump_json())
    content["case"]["cell"]["backend"] = "carrier_pigeon"
    found = parse_record(store.folder / "x.1.json", json.dumps(content).encode())
    assert isinstance(found, BadFile)
    assert "no backend 'carrier_pigeon'; known are: none, mpi, " in found.reason


def test_a_count_that_no_column_of_a_table_could_hold_is_refused(store, make_record):
    content = make_record(0).model_dump_json()
    batch = make_record(0).case.cell.local_batch
    changed = content.replace(f'"local_batch":{batch}', f'"local_batch":{2**63}')
    assert changed != content
    found = parse_record(store.folder / "x.json", changed.encode())
    assert isinstance(found, BadFile)
    assert "more than 18 digits" in found.reason


def test_a_training_that_ended_was_evaluated(store):
    """Tables have the last evaluation."""
    record = solved(training(target=TARGET), {"step": 10, "seconds": 1.0, "auc": 0.95})
    content = json.loads(record.model_dump_json())
    content["solution"]["evaluations"] = []
    found = parse_record(store.folder / "x.1.json", json.dumps(content).encode())
    assert isinstance(found, BadFile)
    assert "solution.evaluations: a list of at least 1 is expected" in found.reason
    assert "\n" not in found.reason


def test_a_long_number_in_a_text_is_text(store, make_record):
    record = make_record(failure=f"seed: {2**70}, size: {2**64}")
    store.add(record)
    assert store.load() == [record]
    long = record.model_copy(update={"backend_settings": {"seed": 2**70}})
    with pytest.raises(ValueError, match="more than 18 digits"):
        store.add(long.model_copy(update={"attempt": 2}))


def test_fields_that_are_no_longer_read_do_not_make_a_record_invalid(store, make_record):
    content = json.loads(make_record().model_dump_json())
    content["copy_rates"], content["ranks"][0]["num_threads"] = [1e9, 1e9], 1
    assert parse_record(store.folder, json.dumps(content).encode()) == make_record()
