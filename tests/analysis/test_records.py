import json

import numpy as np
import pytest

from dlscale.analysis.findings.failures import study_warnings
from dlscale.analysis.launches import good_by_cell, latest_good, launches_of
from dlscale.analysis.measured import measure
from dlscale.analysis.records import start_skews, why_unusable, world_step_seconds
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.files import load_records
from dlscale.benchmarks.records.record import SCHEMA_VERSION, Gate
from dlscale.benchmarks.records.required_gates import GATES_VERSION, required_gates
from tests.made_records import make_record, rows_of, windows_of


@pytest.fixture
def study(tmp_path):
    (tmp_path / "records").mkdir()
    return tmp_path


def measured(*attempts):
    """The one case of these attempts, with the attempt that counts."""
    (launches,) = launches_of(attempts)
    (case,) = launches.cases
    return case


def write(study, record):
    path = study / "records" / f"{record.case.id}.{record.attempt}.json"
    path.write_text(record.model_dump_json())
    return path


def test_bad_files_are_listed_with_a_reason_and_hide_nothing(study):
    good = make_record()
    path = write(study, good)
    content = json.loads(path.read_text())
    folder = study / "records"
    (folder / "cut.json").write_text(path.read_text()[:200])
    (folder / "binary.json").write_bytes(b"\xff\xfe\x00")
    (folder / "list.json").write_text("[]")
    (folder / "newer.json").write_text(json.dumps(content | {"schema_version": SCHEMA_VERSION + 1}))
    (folder / "odd.json").write_text(json.dumps(content | {"evidence": "guessed"}))
    (folder / "folder.json").mkdir()
    (folder / ".being-written.json").write_text("{")
    records, bad = load_records(study)
    assert records == [good]
    reasons = {one.path.name: one.reason for one in bad}
    assert sorted(reasons) == [f"{name}.json" for name in ("binary", "cut", "folder", "list", "newer", "odd")]
    newer = f"schema version {SCHEMA_VERSION + 1}; this version of dlscale reads {SCHEMA_VERSION}"
    assert reasons["newer.json"] == newer
    assert reasons["odd.json"].startswith("not a record: evidence: ")
    assert "not complete JSON" in reasons["cut.json"]
    assert "cannot be read" in reasons["folder.json"]


def test_the_slowest_rank_decides():
    even = make_record(num_ranks=2, samples_per_second=100.0)
    late = make_record(num_ranks=2, samples_per_second=100.0, rank_delays=[0.0, 0.4])
    # 5 steps of 16 samples at 100 per second take 0.8 s, with the delay 1.2 s.
    assert world_step_seconds(even) == pytest.approx(np.full(10, 0.16))
    assert world_step_seconds(late) == pytest.approx(np.full(10, 0.24))
    assert measured(late).samples_per_second == pytest.approx(100 * 0.8 / 1.2)


def test_the_launch_is_the_median_cost_of_its_steady_windows():
    # The cost is 1 in the median; the mean rate of these windows would be below 100, and the warm-up's far off.
    case = measured(make_record(window_factors=[1.0, 1.0, 1.0, 5.0, 0.9]))
    assert case.samples_per_second == pytest.approx(100.0)
    assert len(case.seconds) == 5


@pytest.mark.parametrize(
    ("fields", "skew"),
    [
        ({"num_ranks": 3, "start_skew": 0.02}, 0.02),
        # of machines that booted a day apart that of each
        ({"num_ranks": 4, "num_nodes": 2, "clock_offsets": (0.0, -86_400.0)}, 0),
        ({"num_ranks": 4, "num_nodes": 2, "clock_offsets": (0.0, -86_400.0), "start_skew": 0.02}, 0.02),
    ],
)
def test_start_skew_is_a_fraction_of_the_window(fields, skew):
    assert start_skews([make_record(**fields)])[0] == pytest.approx(skew)


@pytest.mark.parametrize(("skew", "is_noted"), [(0.01, False), (0.011, True)])
def test_more_start_skew_than_a_hundredth_is_noted(skew, is_noted):
    """Windows of 5 x 16 samples of 1 s."""
    (launches,) = launches_of([make_record(num_ranks=2, samples_per_second=80.0, start_skew=skew)])
    assert ("ranks start 1% of a window apart" in launches.flaws) == is_noted


def test_one_rank_on_each_machine_has_no_skew():
    record = make_record(num_ranks=2, num_nodes=2, clock_offsets=(0.0, 86_400.0))
    assert start_skews([record])[0] is None
    assert not [note for note in launches_of([record])[0].flaws if "apart" in note]


def starting(*starts, **fields):
    """Blocks of the launches of a block that began at these times, each on another number of ranks."""
    records = [
        make_record(num_ranks=place + 1, block=3, started_at=f"2026-11-{start}Z", **fields)
        for place, start in enumerate(starts)
    ]
    return {launches.cell.num_ranks: launches.cases[0] for launches in launches_of(records)}


def test_a_block_that_was_resumed_days_later_is_two():
    cases = starting("21T07:00:00", "21T07:01:00", "25T07:01:00", "25T07:03:00")
    assert [cases[ranks].block for ranks in (1, 2, 3, 4)] == [
        ("weak-scaling", 3),
        ("weak-scaling", 3),
        ("weak-scaling, part 2", 3),
        ("weak-scaling, part 2", 3),
    ]
    assert cases[3].pause_seconds == pytest.approx(4 * 86_400, rel=1e-3)


def test_a_long_launch_is_no_pause():
    """10 windows of 500 s: the next launch begins when the first has ended."""
    long = {"samples_per_second": 0.08}
    cases = starting("21T07:00:00", "21T08:24:00", **long)
    assert {case.part for case in cases.values()} == {1}
    cases = starting("21T07:00:00", "21T09:30:00", **long)
    assert [cases[ranks].part for ranks in (1, 2)] == [1, 2]


@pytest.mark.parametrize(("second", "parts"), [("08:00:19", [1, 1]), ("08:00:20", [1, 2])])
def test_a_pause_is_longer_than_an_hour(second, parts):
    """The first launch has a warm-up of 9 s and 10 windows of 1 s."""
    cases = starting("21T07:00:00", f"21T{second}", local_batch=16, samples_per_second=80.0)
    assert [cases[ranks].part for ranks in (1, 2)] == parts


def test_a_canary_does_not_fill_a_pause():
    launched = [
        make_record(num_ranks=2, started_at="2026-11-21T07:00:00Z"),
        make_record(control="canary", started_at="2026-11-21T07:50:00Z"),
        make_record(num_ranks=1, started_at="2026-11-21T08:40:00Z"),
    ]
    parts = {(one.cell.num_ranks, one.cell.control): one.cases[0].part for one in launches_of(launched)}
    assert parts == {(2, "train"): 1, (1, "canary"): 1, (1, "train"): 2}


@pytest.mark.parametrize(("peaks", "known"), [([200, 700, 300], 700), ([0], None), ([], None)])
def test_memory_is_the_largest_rank_s(peaks, known):
    """Nobody measured 0; without peaks, no rank said where it was."""
    record = make_record(num_ranks=3, peak_rss_bytes=peaks or [0])
    (launches,) = launches_of([record if peaks else record.model_copy(update={"ranks": []})])
    assert launches.peak_rss_bytes == known


@pytest.mark.parametrize(
    ("skipped", "note"),
    [
        ([3, 0, 9, 0], "12 unreadable samples left out on 2 ranks"),
        ([1, 0, 0, 0], "1 unreadable sample left out on 1 rank"),
        ([0] * 4, None),
        ([None] * 4, None),
    ],
)
def test_skipped_samples_are_summed_and_their_ranks_counted(skipped, note):
    record = make_record(num_ranks=4).model_copy(update={"skipped_samples": skipped})
    found = [flaw for flaw in launches_of([record])[0].flaws if "unreadable" in flaw]
    assert found == ([note] if note else [])


@pytest.mark.parametrize(
    ("overlap", "word"), [(None, ""), (True, "overlapped"), (False, "in line"), ("False | True", "mixed")]
)
def test_how_gradients_were_exchanged_is_a_word(overlap, word):
    (launches,) = launches_of([make_record(overlap=overlap)])
    assert launches.exchange == word


def test_the_latest_good_attempt_counts():
    attempts = [
        make_record(attempt=2, samples_per_second=90.0),
        make_record(attempt=1, failure="killed by signal 9"),
        make_record(attempt=3, failure="hung"),
    ]
    case = measured(*attempts)
    assert (case.record.attempt, case.num_attempts, case.good) == (2, 3, True)
    assert case.samples_per_second == pytest.approx(90.0)
    assert latest_good(attempts) == [attempts[0]]


def test_a_failed_case_is_kept_with_its_latest_attempt_and_no_value():
    attempts = [make_record(failure="out of memory", attempt=attempt) for attempt in (1, 2)]
    (launches,) = launches_of(attempts)
    assert [(case.record.attempt, case.num_attempts, case.good) for case in launches.cases] == [(2, 2, False)]
    assert launches.samples_per_second == {}
    assert latest_good(attempts) == []


def test_impossible_windows_or_of_warm_up_alone_give_no_number():
    record = make_record(num_ranks=2)
    window = rows_of(record.windows)[-1]._replace(seconds=[0.8, 0.0])
    windows = windows_of([*rows_of(record.windows)[:-1], window])
    assert not measured(record.model_copy(update={"windows": windows})).good
    assert not measured(make_record(window_factors=[])).good


def test_mixed_fingerprints_are_refused_by_name():
    with pytest.raises(UsageError, match="fingerprints aaaa and bbbb"):
        launches_of([make_record(fingerprint="aaaa"), make_record(num_ranks=2, fingerprint="bbbb")])


def test_environments_have_their_own_fingerprints():
    records = [
        make_record(fingerprint="aaaa"),
        make_record(environment="openmpi", fingerprint="bbbb"),
        make_record(block=1, fingerprint="cccc", failure="was repaired afterwards"),
    ]
    assert sum(len(launches.cases) for launches in launches_of(records)) == 3


def test_good_records_that_have_something_are_grouped_by_cell():
    two, one = make_record(num_ranks=2, peak_rss_bytes=[7]), make_record(peak_rss_bytes=[7])
    again = make_record(num_ranks=2, peak_rss_bytes=[7], block=1)
    others = [make_record(failure="killed", peak_rss_bytes=[7]), make_record(block=2, peak_rss_bytes=[0])]
    grouped = good_by_cell([two, *others, one, again], lambda record: record.ranks[0].peak_rss_bytes)
    assert grouped == [[two, again], [one]]


def test_where_ranks_do_not_step_together_only_what_was_applied_counts():
    together = make_record(num_ranks=2)
    windows = [
        window._replace(num_applied=6, rank_steps=[10, 10], num_steps=10)
        for window in rows_of(together.windows)
    ]
    apart = together.model_copy(update={"windows": windows_of(windows)})
    seconds = [max(window.seconds) for window in rows_of(apart.windows) if window.phase == "steady"]
    assert world_step_seconds(apart) == pytest.approx(np.array(seconds) / 3)
    nothing = [window._replace(num_applied=0) for window in windows]
    assert "no gradient was applied" in why_unusable(
        together.model_copy(update={"windows": windows_of(nothing)})
    )


@pytest.mark.parametrize(("version", "is_told"), [(None, True), (GATES_VERSION, False)])
def test_records_from_before_the_list_of_gates_are_told_of(version, is_told):
    record = make_record()
    gates = [Gate.unchecked(name, "") for name in required_gates(record.case.cell)]
    study = measure([record.model_copy(update={"gates_version": version, "gates": gates})])
    said = [text for text, _ in study_warnings(study)]
    assert said == ["Audits not asked for by name in 1 older record."] * is_told
