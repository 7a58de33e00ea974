"""Records in files: as those who read all of them see them, and as lists do."""

import json
from functools import reduce
from operator import getitem

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.files import BadFile, load_records, parse_record, summaries, summary
from dlscale.benchmarks.records.record import SCHEMA_VERSION
from dlscale.benchmarks.records.required_gates import GATES_VERSION
from dlscale.benchmarks.records.store import Store
from tests.made_records import TARGET, solved
from tests.made_records import make_record as training


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


@pytest.mark.parametrize("version", [1, SCHEMA_VERSION - 1, SCHEMA_VERSION + 1])
def test_a_record_of_another_schema_is_refused_in_one_line_that_names_it(store, make_record, version):
    """Whatever else has changed in it: fields that are no longer there, and those that were not yet."""
    path = store.add(make_record(0))
    content = json.loads(path.read_text()) | {"schema_version": version, "lost": 1}
    del content["phases"]
    path.write_text(json.dumps(content))
    reason = f"schema version {version}; this version of dlscale reads {SCHEMA_VERSION}"
    for read in (load_records, summaries):
        assert read(store.folder)[1] == [BadFile(path=path, reason=reason)]
    with pytest.raises(UsageError, match=f"{path.name} is invalid: {reason}"):
        store.load()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"schema_version": 4}', b'{"schema_version": 7}'])
def test_lists_name_invalid_files_as_readers_of_all_do(store, make_record, content):
    store.add(make_record())
    (store.records_folder / "other.1.json").write_bytes(content)
    (shown, bad_shown), (records, bad) = summaries(store.folder), load_records(store.folder)
    assert shown == [summary(record) for record in records]
    assert [one.path.name for one in bad_shown] == [one.path.name for one in bad] == ["other.1.json"]


@pytest.mark.parametrize(
    ("place", "change", "problem"),
    [
        (("ranks", 0, "rank"), lambda _: 7, "ranks are [7, 1], of a case of 2"),
        (("ranks", 0, "rank"), lambda _: 1, "ranks are [1, 1], of a case of 2"),
        (("started_at",), lambda _: "noon", "started_at: 'noon' is no date and time; write "),
        (("started_at",), lambda _: "9999-12-31T23:59:59-10:00", "-10:00' is no date and time; write "),
        (("case", "cell", "framework"), lambda _: "mx", "no framework 'mx'; known are: "),
        (("final_loss",), lambda each: each[:1], "final_loss is that of 1 ranks"),
        (("skipped_samples",), lambda each: each * 2, "skipped_samples is that of 4 ranks"),
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
