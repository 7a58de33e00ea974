"""A spool that a killed dlscale left in a bad state becomes a failure that names it, and later runs go on."""

import os
import random
import shutil

import pytest

from dlscale.benchmarks.launch import supervisor
from dlscale.benchmarks.launch.supervisor import LOG_FILE, METADATA_FILE, collect_leftovers
from dlscale.benchmarks.rank.spec import LaunchSpec
from dlscale.benchmarks.records.cell import Case
from dlscale.benchmarks.records.record import LaunchMetadata
from dlscale.benchmarks.records.spool import SPEC_FILE, CaseEnd, CaseResult, Gate, MeasuredWindow, SpoolWriter
from dlscale.benchmarks.records.store import Store
from tests.benchmarks.spools import launch_spec, leave_launch, metadata_of, rank_info
from tests.fuzz.damage import damaged

NUM_RANKS = 2


@pytest.fixture
def left_behind(tmp_path, make_record):
    """left_behind(): the study's store, and the whole spool of a launch that had ended both of its cases."""
    record = make_record(0)
    control = Case(cell=record.case.cell.model_copy(update={"control": "synthetic"}), block=0, position=0)
    cases = [record.case, control]

    def make():
        shutil.rmtree(tmp_path / "study", ignore_errors=True)
        store = Store(tmp_path / "study")
        store.open({"launches": []})
        folder = store.spool_folder / record.case.id
        leave_launch(folder, launch_spec(*cases), metadata_of(record))
        (folder / LOG_FILE).write_text("it said this\n")
        for rank in range(NUM_RANKS):
            write_spool(SpoolWriter(folder, rank), rank)
        return store, folder

    return make


def write_spool(spool, rank):
    spool.write(rank_info(rank))
    spool.write(Gate(name="gradient", passed=True, value=0.0, tolerance=1e-4, detail="change"))
    for case in range(2):
        for number in range(4):
            window = MeasuredWindow(
                phase="steady", num_steps=2, start=1.0 + number, seconds=0.5, step_seconds=[0.25, 0.25]
            )
            spool.write(window, case=case)
        spool.write(CaseResult(steady=True, settings={"overlap": True}), case=case)
        spool.write(CaseEnd(peak_rss_bytes=10**8, load=2.5), case=case)
    spool.close()


def edit(folder, old, new, *, case=None, rank=1):
    """Changes what comes first, of all lines or of those of a case."""
    path = folder / f"rank-{rank:05d}.jsonl"
    content = path.read_bytes()
    begin = 0 if case is None else content.rindex(b"\n", 0, content.index(b'"case": %d' % case)) + 1
    assert old in content[begin:]
    path.write_bytes(content[:begin] + content[begin:].replace(old, new, 1))


def good(store):
    return {record.case.cell.control for record in store.load() if record.good}


CONTROLS = ("train", "synthetic")  # of the two cases


@pytest.mark.parametrize("case", [0, 1])
@pytest.mark.parametrize(
    ("old", "new", "line", "problem"),
    [
        (b'"num_steps": 2', b'"num_steps": "2"', 1, "event MeasuredWindow, num_steps: "),
        (
            b'"num_steps": 2',
            b'"num_steps": -2',
            1,
            "event MeasuredWindow, num_steps: input should be greater than or equal to 0",
        ),
        (b'"seconds": 0.5', b'"seconds": 1e999', 1, "event MeasuredWindow, seconds: "),
        (
            b'"start": 1.0',
            b'"start": 1e16',
            1,
            "event MeasuredWindow, start: input should be less than 9007199254740992",
        ),
        (b'"seconds": 0.5', b'"seconds": NaN', 1, "event MeasuredWindow, seconds: "),
        (b'"load": 2.5', b'"load": 1e999', 6, "event CaseEnd, load: input should be a finite number"),
        (b'"seconds": 0.5', b'"seconds": ' + b"9" * 5000, 1, ""),
        (b'"seconds": 0.5', b'"seconds": ' + b"[" * 10**5, 1, ""),
        (
            b'"start": 1.0',
            b'"start": 1' + b"0" * 400,
            1,
            "event MeasuredWindow, start: input should be a finite number",
        ),
        (b'"overlap": true', b'"overlap": "\\ud800"', 5, ""),
        (b'"num_steps"', b"\xff\xfe", 1, "event MeasuredWindow, the file: invalid JSON"),
        (b'{"event": "CaseEnd"', b'{"event": "CaseEnds"', 6, "unknown event 'CaseEnds'"),
    ],
)
def test_a_damaged_line_is_a_failure_of_its_case_that_names_it(left_behind, case, old, new, line, problem):
    store, folder = left_behind()
    edit(folder, old, new, case=case)
    assert collect_leftovers(store.spool_folder, store, planned=[folder.name]) == 1
    assert good(store) == {CONTROLS[1 - case]}
    (record,) = (record for record in store.load() if not record.good)
    place = f"rank-00001.jsonl, line {2 + 6 * case + line}: {problem}"
    assert record.failure.kind == "interrupted"
    assert f"kept as damaged/{folder.name}: {place}" in record.failure.message
    assert "\n" not in record.failure.message
    assert record.failure.log_tail == "it said this"
    assert not record.windows
    assert (store.damaged_folder / folder.name / "rank-00001.jsonl").exists()
    assert not list(store.spool_folder.iterdir())


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (b'{"event": "Gate"', b'{"event": "Gate', "line 2: "),
        (b'"event": "Gate"', b'"event": ["Gate"]', "line 2: it does not begin as an event"),
        (b"gradient", b"\xff\xfe", "line 2: "),
        (b'"case": 0', b'"case": "0"', "line 3: event MeasuredWindow, case: extra inputs"),
        (b'{"event": "MeasuredWindow", "case": 0', b"{", "line 3: "),
        (b'"start": 2.0, ', b"\n", "line "),  # cut off, and the rest of it behind
    ],
)
def test_a_damaged_line_that_may_be_of_the_launch_is_one_of_all_cases(left_behind, old, new, problem):
    store, folder = left_behind()
    edit(folder, old, new)
    collect_leftovers(store.spool_folder, store, planned=[folder.name])
    messages = [record.failure.message for record in store.load()]
    assert len(messages) == 2
    assert all(f"rank-00001.jsonl, {problem}" in message for message in messages)


def test_damaged_lines_are_counted(left_behind):
    store, folder = left_behind()
    for number in range(3):
        edit(folder, b'"start": %d.0' % (number + 1), b'"start": NaN', case=0)
    collect_leftovers(store.spool_folder, store, planned=[folder.name])
    (record,) = (record for record in store.load() if not record.good)
    assert record.failure.message.endswith(", and 2 more")


@pytest.mark.parametrize("case", [0, 1])
@pytest.mark.parametrize(
    ("old", "new", "ranks"),
    [
        (b'"num_steps": 2', b'"num_steps": 0', (0, 1)),
        (b"[0.25, 0.25]", b"[0.25, 0.25, 0.25]", (1,)),  # more than the other rank has
    ],
)
def test_a_case_with_impossible_numbers_is_a_failure_and_the_other_case_counts(
    left_behind, case, old, new, ranks
):
    store, folder = left_behind()
    for rank in ranks:
        edit(folder, old, new, case=case, rank=rank)
    collect_leftovers(store.spool_folder, store, planned=[folder.name])
    assert all("\n" not in record.failure.message for record in store.load() if record.failure)
    assert good(store) == {CONTROLS[1 - case]}
    assert list(store.damaged_folder.iterdir())


@pytest.mark.parametrize("name", [SPEC_FILE, METADATA_FILE])
def test_a_launch_of_which_nobody_knows_what_it_was_is_set_aside(left_behind, name):
    store, folder = left_behind()
    (folder / name).write_bytes(b'{"cases": [')
    assert collect_leftovers(store.spool_folder, store, planned=[folder.name]) == 0
    assert [path.name for path in store.damaged_folder.iterdir()] == [folder.name]
    assert store.load() == []


def test_a_second_damaged_launch_of_that_name_is_kept_beside_the_first(left_behind):
    store, folder = left_behind()
    (store.damaged_folder / folder.name).mkdir(parents=True)
    edit(folder, b"Window", b"Widow")
    collect_leftovers(store.spool_folder, store, planned=[folder.name])
    assert {path.name for path in store.damaged_folder.iterdir()} == {folder.name, f"{folder.name}-2"}


def test_a_launch_killed_before_its_ranks_started_leaves_nothing(left_behind):
    store, folder = left_behind()
    for path in [*folder.glob("rank-*"), folder / METADATA_FILE]:
        path.unlink()
    assert collect_leftovers(store.spool_folder, store, planned=[folder.name]) == 0
    assert not store.damaged_folder.exists()
    assert not folder.exists()


@pytest.mark.timeout(60)
def test_damaged_spools_never_stop_later_runs(left_behind, monkeypatch):
    """500 launches with damage at random places; a seed makes it the same 500 for everybody."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    (store, folder), choice = left_behind(), random.Random(36)  # noqa: S311
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    names = ["rank-00000.jsonl", "rank-00001.jsonl", "rank-00001.jsonl", SPEC_FILE, METADATA_FILE]
    known: set[str] = set()
    for number in range(500):
        folder.mkdir(exist_ok=True)
        start = f"2026-11-22T{number // 60:02d}:{number % 60:02d}:00".encode()  # another launch
        files = whole | {METADATA_FILE: whole[METADATA_FILE].replace(b"2026-11-22T03:47:20", start)}
        name = choice.choice(names)
        for path, content in (files | {name: damaged(files[name], choice)}).items():
            (folder / path).write_bytes(content)
        before = set(os.listdir(store.records_folder))
        collect_leftovers(store.spool_folder, store, planned=[folder.name])
        assert not folder.exists()
        if new := set(os.listdir(store.damaged_folder) if store.damaged_folder.exists() else []) - known:
            names_of_new = set(os.listdir(store.records_folder)) - before
            written = [(store.records_folder / name).read_text() for name in names_of_new]
            assert not written or any(f"damaged/{place}:" in text for text in written for place in new)
        known |= new
    assert len(known) > 250
    assert len(store.load()) > 500  # none of them is invalid


def test_a_damaged_spool_of_a_launch_that_runs_is_a_failure_too(left_behind):
    store, folder = left_behind()
    edit(folder, b"Window", b"Widow")
    spec = LaunchSpec.model_validate_json((folder / SPEC_FILE).read_bytes())
    metadata = LaunchMetadata.model_validate_json((folder / METADATA_FILE).read_bytes())
    left = supervisor.PreparedLaunch(spec=spec, metadata=metadata, spool=folder, environment={})
    records = supervisor.collect(left, store, None)
    assert [record.failure and record.failure.kind for record in records] == ["error", None]
    assert "rank-00001.jsonl, line 3: unknown event 'MeasuredWidow'" in records[0].failure.message
