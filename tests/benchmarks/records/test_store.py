"""A study's folder: its lock and links, its attempts, and what is refused as a record."""

import json
from functools import reduce
from operator import getitem

import pytest

from dlscale.base.errors import UsageError
from dlscale.base.files import locked
from dlscale.benchmarks.records import store as module
from dlscale.benchmarks.records.record import GATES_VERSION, SCHEMA_VERSION
from dlscale.benchmarks.records.store import BadFile, Store, load_records, read_record
from tests.made_records import NODE, solved
from tests.made_records import make_record as made_record


@pytest.fixture
def store(tmp_path):
    opened = Store(tmp_path / "results" / "study")
    opened.open({"launches": []})
    return opened


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


@pytest.mark.parametrize("version", [1, SCHEMA_VERSION - 1, SCHEMA_VERSION + 1])
def test_a_record_of_another_schema_is_refused_in_one_line_that_names_it(store, make_record, version):
    """Whatever else has changed in it: fields that are no longer there, and those that were not yet."""
    store.add(make_record(0))
    (path,) = store.records_folder.glob("*.json")
    content = json.loads(path.read_text()) | {"schema_version": version, "lost": 1}
    del content["phases"]
    path.write_text(json.dumps(content))
    reason = f"schema version {version}; this version of dlscale reads {SCHEMA_VERSION}"
    assert load_records(store.folder)[1] == [BadFile(path=path, reason=reason)]
    with pytest.raises(UsageError, match=f"{path.name} is invalid: {reason}"):
        store.load()


def test_one_dlscale_measures_into_a_folder(store):
    assert not store.busy, "it was never locked"
    with locked(store.folder / module.LOCK, held="another dlscale"):
        assert Store(store.folder).busy
        with (
            pytest.raises(UsageError, match="another dlscale"),
            locked(store.folder / module.LOCK, held="another dlscale"),
        ):
            pass
    assert not store.busy
    (store.folder / "lock").unlink()
    (store.folder / "lock").mkdir()
    with pytest.raises(UsageError, match=r"cannot write .*lock"), locked(store.folder / module.LOCK, held=""):
        pass


def test_attempts_are_counted_and_written_once(store, make_record):
    case = make_record().case
    for name in (f"{case.id}.x.json", "notes.json", ".1.json"):
        (store.records_folder / name).write_text("{}")
    assert store.next_attempt(case) == 1
    for attempt in (1, 2, 10):
        Store(store.folder).add(make_record(attempt=attempt, failure=f"death {attempt}"))
    assert store.next_attempt(case) == 11
    with pytest.raises(FileExistsError, match="written once"):
        store.add(make_record(attempt=10))
    (store.records_folder / f"{case.id}.19.json").write_text("{")
    assert store.next_attempt(case) == 20


def test_a_folder_that_nothing_was_measured_into_has_no_records(store):
    assert Store(store.folder / "nothing").load() == []


def test_canaries_of_earlier_versions_are_in_no_study(store):
    store.add(made_record(control="canary"))
    assert load_records(store.folder) == ([], [])


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"schema_version": 4}', b'{"schema_version": 7}'])
def test_an_invalid_file_is_named_and_the_others_are_read(store, make_record, content):
    store.add(make_record())
    (store.records_folder / "other.1.json").write_bytes(content)
    records, bad = load_records(store.folder)
    assert records == [make_record()]
    assert [one.path.name for one in bad] == ["other.1.json"]
    with pytest.raises(UsageError, match="invalid"):
        store.load()


@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [
        (("ranks", 0, "rank"), 7, "ranks are [7, 1], of a case of 2"),
        (("ranks", 0, "rank"), 1, "ranks are [1, 1], of a case of 2"),
        (("started_at",), "noon", "started_at: 'noon' is no date and time; write "),
        (("started_at",), "9999-12-31T23:59:59-10:00", "-10:00' is no date and time; write "),
        (("case", "cell", "framework"), "mx", "framework: input should be 'torch' or 'tensorflow'"),
        (
            ("case", "cell", "backend"),
            "carrier_pigeon",
            "no backend 'carrier_pigeon'; known are: none, mpi, ",
        ),
        (("case", "cell", "local_batch"), 2**63, "local_batch: input should be less than 9007199254740992"),
        (("phases", "gates"), [], "gates is that of 0 ranks"),
        (("phases", "connect"), [1e308, 1.0], "phases.connect.0: input should be less than 9007199254740992"),
        (("solution", "evaluations"), [], "solution.evaluations: list should have at least 1 item"),
    ],
)
def test_what_findings_could_not_use_is_refused_in_one_line(store, make_record, place, value, problem):
    """They look up a rank in lists of all ranks, gates by backend, and the last evaluation."""
    record = solved(make_record(0), {"step": 10, "seconds": 1.0, "auc": 0.95})
    content = json.loads(record.model_copy(update={"gates_version": GATES_VERSION}).model_dump_json())
    *folders, name = place
    reduce(getitem, folders, content)[name] = value
    path = store.folder / "x.1.json"
    path.write_text(json.dumps(content))
    found = read_record(path)
    assert isinstance(found, BadFile)
    assert problem in found.reason
    assert "\n" not in found.reason


def test_fields_that_are_no_longer_read_do_not_make_a_record_invalid(store, make_record):
    """Of a record, a rank and a node."""
    record = make_record().model_copy(update={"nodes": [NODE]})
    content = json.loads(record.model_dump_json())
    for table in (content, content["ranks"][0], content["nodes"][0]):
        table["of_an_earlier_version"] = [1e9]
    path = store.folder / "x.1.json"
    path.write_text(json.dumps(content))
    assert read_record(path) == record
