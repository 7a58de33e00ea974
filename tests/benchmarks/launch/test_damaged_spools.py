"""A spool that a killed dlscale left in a bad state becomes a failure that names it, and later runs go on."""

import os
import random
import shutil

import pytest

from dlscale.benchmarks.launch.supervisor import LOG_FILE, METADATA_FILE, collect_leftovers
from dlscale.benchmarks.records.cell import Case
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
        (b'"seconds": 0.5', b'"seconds": 1e999', 1, "event MeasuredWindow, seconds: "),
        (b'"start": 1.0', b'"start": 1e16', 1, "event MeasuredWindow, start: "),
        (b'"seconds": 0.5', b'"seconds": ' + b"[" * 10**5, 1, ""),
        (b'"overlap": true', b'"overlap": "\\ud800"', 5, ""),
        (b'"num_steps"', b"\xff\xfe", 1, "event MeasuredWindow, the file: "),
        (b'{"event": "CaseEnd"', b'{"event": "CaseEnds"', 6, "unknown event 'CaseEnds'"),
    ],
)
def test_a_damaged_line_is_a_failure_of_its_case_that_names_it(left_behind, case, old, new, line, problem):
    store, folder = left_behind()
    edit(folder, old, new, case=case)
    collect_leftovers(store.spool_folder, store, planned=[folder.name])
    assert good(store) == {CONTROLS[1 - case]}
    (record,) = (record for record in store.load() if not record.good)
    assert record.failure.kind == "interrupted"
    assert f"rank-00001.jsonl, line {2 + 6 * case + line}: {problem}" in record.failure.message
    assert "\n" not in record.failure.message
    assert record.failure.log_tail == "it said this"
    assert not record.windows
    assert not list(store.spool_folder.iterdir())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'{"event": "Gate"', b'{"event": "Gate'),
        (b"gradient", b"\xff\xfe"),
        (b'"case": 0', b'"case": "0"'),
        (b'{"event": "MeasuredWindow", "case": 0', b"{"),
        (b'"start": 2.0, ', b"\n"),  # cut off, and the rest of it behind
    ],
)
def test_a_damaged_line_that_may_be_of_the_launch_is_one_of_all_cases(left_behind, old, new):
    store, folder = left_behind()
    edit(folder, old, new)
    collect_leftovers(store.spool_folder, store, planned=[folder.name])
    assert ["rank-00001.jsonl, line " in record.failure.message for record in store.load()] == [True, True]


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
    assert good(store) == {CONTROLS[1 - case]}


@pytest.mark.parametrize("name", [SPEC_FILE, METADATA_FILE])
def test_a_launch_that_does_not_say_what_it_was_is_run_again(left_behind, name):
    store, folder = left_behind()
    (folder / name).write_bytes(b'{"cases": [')
    collect_leftovers(store.spool_folder, store, planned=[folder.name])
    assert store.load() == []
    assert not folder.exists()


@pytest.mark.timeout(60)
def test_damaged_spools_never_stop_later_runs(left_behind, monkeypatch):
    """100 launches with damage at random places; a seed makes it the same 100 for everybody."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    (store, folder), choice = left_behind(), random.Random(36)  # noqa: S311
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    names = ["rank-00000.jsonl", "rank-00001.jsonl", "rank-00001.jsonl", SPEC_FILE, METADATA_FILE]
    for number in range(100):
        folder.mkdir(exist_ok=True)
        start = f"2026-11-22T{number // 60:02d}:{number % 60:02d}:00".encode()  # another launch
        files = whole | {METADATA_FILE: whole[METADATA_FILE].replace(b"2026-11-22T03:47:20", start)}
        name = choice.choice(names)
        for path, content in (files | {name: damaged(files[name], choice)}).items():
            (folder / path).write_bytes(content)
        collect_leftovers(store.spool_folder, store, planned=[folder.name])
        assert not folder.exists()
    records = store.load()  # none of them is invalid
    assert len(records) > 100
    failures = [record.failure for record in records if record.failure]
    assert sum("its spool is damaged" in failure.message for failure in failures) > 30
