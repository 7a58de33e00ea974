"""Packing and unpacking: byte by byte, all or nothing, whenever it is killed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.cli import main
from dlscale.benchmarks.records import packing
from dlscale.benchmarks.records.files import PACK_FILE, load_records, summary
from dlscale.benchmarks.records.store import Store

pytestmark = pytest.mark.requires("pyarrow")

KILLED = Path(__file__).with_name("packing_killed.py")


@pytest.fixture
def store(tmp_path, make_record):
    """A study with five records: a failure, its repetition, three good ones."""
    store = Store(tmp_path / "local" / "weak-scaling-1")
    records = [
        make_record(failure="died"),
        make_record(attempt=2),
        *(make_record(block) for block in (1, 2, 3)),
    ]
    cases = [record.case.model_dump(mode="json") for record in records[1:]]
    store.open({"study": {"name": "weak-scaling"}, "launches": [[case] for case in cases]})
    for record in records:
        store.add(record)
    return store


def files(store):
    return {path.name: path.read_bytes() for path in store.records_folder.iterdir()}


def verb(capsys, *words):
    with pytest.raises(SystemExit) as caught:
        main(list(words))
    return int(caught.value.code or 0), capsys.readouterr()


def test_unpacking_restores_every_byte(store):
    odd = store.records_folder / summary(store.load()[0]).file_name
    odd.write_text(json.dumps(json.loads(odd.read_text()), indent=3))  # the same record in other words
    before = files(store)
    assert packing.pack(store) == 5
    assert files(store) == {}
    assert packing.unpack(store) == 5
    assert files(store) == before
    assert not (store.folder / PACK_FILE).exists()
    assert {path.stat().st_mode & 0o777 for path in store.records_folder.iterdir()} == {0o600}


def test_packing_again_adds_what_came_later(store, make_record):
    before = files(store)
    packing.pack(store)
    assert packing.pack(store) == 0
    fresh = Store(store.folder)
    fresh.add(make_record(0, attempt=3))
    fresh.add(make_record(9))
    later = files(store)
    assert packing.pack(store) == 2
    assert len(store.load()) == 7
    packing.unpack(store)
    assert files(store) == before | later


def test_the_columns_say_what_the_records_do(store):
    import pyarrow.parquet

    packing.pack(store)
    table = pyarrow.parquet.read_table(store.folder / PACK_FILE)
    for row, record in zip(table.to_pylist(), store.load(), strict=True):
        assert (row["case"], row["attempt"], row["good"]) == (record.case.id, record.attempt, record.good)
        assert row["failure_kind"] == (record.failure.kind if record.failure else None)
        assert row["started_at"] == record.started_at
        assert json.loads(row["json"]) == json.loads(record.model_dump_json())
    assert (
        pyarrow.parquet.ParquetFile(store.folder / PACK_FILE).metadata.row_group(0).column(6).compression
        == "ZSTD"
    )


def test_many_groups_of_rows(store, make_record, monkeypatch):
    monkeypatch.setattr("dlscale.benchmarks.records.packing.GROUP_ROWS", 2)
    before, records = files(store), store.load()
    packing.pack(store)
    assert store.load() == records
    packing.unpack(store)
    assert files(store) == before


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("cut.1.json", b"{", "not complete JSON"),
        ("copy.1.json", None, "is that of"),
        ("x.json", b"[]", "invalid"),
    ],
)
def test_what_cannot_be_packed_stops_it_before_anything_is_removed(store, name, content, why):
    one = next(store.records_folder.iterdir())
    (store.records_folder / name).write_bytes(one.read_bytes() if content is None else content)
    before = files(store)
    with pytest.raises(UsageError, match=why):
        packing.pack(store)
    assert files(store) == before
    assert not list(store.folder.glob(f"*{PACK_FILE}*"))


def test_a_pack_that_reads_back_otherwise_removes_nothing(store, monkeypatch):
    before, contents = files(store), packing.files.packed_contents

    def other(path):
        for name, content in contents(path):
            yield name, content.replace(b"0.15", b"0.14")

    monkeypatch.setattr(packing.files, "packed_contents", other)
    with pytest.raises(UsageError, match="nothing was removed"):
        packing.pack(store)
    assert files(store) == before
    assert not list(store.folder.glob(f"*{PACK_FILE}*"))


def test_a_full_disk_is_told_and_loses_nothing(store, monkeypatch):
    before = files(store)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match=r"cannot write .*records\.parquet: No space left on device"):
        packing.pack(store)
    assert files(store) == before


def test_nothing_is_packed_while_somebody_measures(store):
    with Store(store.folder).lock(), pytest.raises(UsageError, match="another dlscale"):
        packing.pack(store)


@pytest.mark.slow
@pytest.mark.parametrize("change", ["pack", "pack again", "unpack"])
def test_killed_at_any_moment_nothing_is_lost(store, make_record, change):
    """SIGKILL before each call that touches a file; the records are complete then, and the same command goes on."""
    for path in sorted(store.records_folder.iterdir())[2:]:
        path.unlink()
    if change != "pack":
        packing.pack(store)
    if change == "pack again":
        Store(store.folder).add(make_record(0, attempt=3))
    wanted = store.load()
    verb = change.split()[0]
    done = subprocess.run(
        [sys.executable, str(KILLED), str(store.folder), verb],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    steps = json.loads(done.stdout)
    assert len(steps) > 10, "too few moments to mean anything"
    for step in steps:
        assert step["killed"] or step is steps[-1]
        assert step["bad"] == []
        assert step["records"] == len(wanted), step
        assert step["status"] == len(wanted), step
        assert step["after"] == len(wanted), step
    assert load_records(store.folder) == (wanted, [])


def test_packing_does_not_make_a_study_the_latest(store, make_record, tmp_path, capsys):
    later = Store(tmp_path / "local" / "strong-scaling-1")
    later.open({"study": {"name": "strong-scaling"}, "launches": []})
    os.utime(store.records_folder, (1e9, 1e9))
    packing.pack(store)
    assert "strong-scaling-1" in verb(capsys, "status", "--results", str(tmp_path))[1].out.splitlines()[-1]
    packing.unpack(store)
    assert "strong-scaling-1" in verb(capsys, "status", "--results", str(tmp_path))[1].out.splitlines()[-1]


@pytest.mark.parametrize("words", ["status --json", "report --json"])
def test_verbs_say_the_same_of_a_packed_study(store, tmp_path, capsys, words):
    (store.records_folder / f"{store.load()[0].case.id}.1.json").rename(
        tmp_path / "failure"
    )  # of a case that is done
    command = [*words.split(), "--results", str(tmp_path)]
    before = verb(capsys, *command)
    assert json.loads(before[1].out)["rows"]
    assert verb(capsys, "export", "--pack", "--results", str(tmp_path))[0] == 0
    assert files(store) == {}
    assert verb(capsys, *command) == before
    assert verb(capsys, "export", "--unpack", "weak", "--results", str(tmp_path))[0] == 0
    assert len(files(store)) == 4
    assert verb(capsys, "export", "pack", "weak-scaling-1", "--results", str(tmp_path))[0] == 0
    assert files(store) == {}


def test_figures_are_drawn_from_a_pack(store, tmp_path, capsys):
    packing.pack(store)
    assert verb(capsys, "figures", "--results", str(tmp_path))[0] == 0
    assert any(store.figures_folder.iterdir())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["export"], "--pack"),
        (["export", "--pack", "--unpack"], "one of"),
        (["export", "--pack", "weather"], "no study 'weather'"),
        (["export", "--pack", "x", "unpack"], "put them after it"),
        (["export", "fax"], "fax"),
    ],
)
def test_mistakes_are_told_in_one_line(store, tmp_path, capsys, words, expected):
    words = [words[0], "--results", str(tmp_path), *words[1:]]
    status, said = verb(capsys, *words)
    assert status == 1
    assert expected in said.err
    assert len(said.err.splitlines()) == 1
