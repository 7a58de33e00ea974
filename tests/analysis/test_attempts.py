import json

import numpy as np
import pytest

from dlscale.analysis.attempts import start_skew
from dlscale.analysis.findings import scaling
from dlscale.analysis.findings.cautions import texts
from dlscale.analysis.load import Study
from dlscale.benchmarks.records.record import GATES_VERSION, SCHEMA_VERSION, Gate, required_gates
from dlscale.benchmarks.records.store import load_records
from tests.made_records import make_record, rows_of, windows_of


def measured(*attempts):
    """The one launch of these attempts."""
    (launch,) = Study(attempts).launches.to_dict("records")
    return launch


def notes(record):
    return scaling.FINDING.of(Study([record]))["notes"].iloc[0]


@pytest.fixture
def study(tmp_path):
    (tmp_path / "records").mkdir()
    return tmp_path


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
    assert Study([even]).windows["step_seconds"].to_numpy() == pytest.approx(np.full(10, 0.16))
    assert Study([late]).windows["step_seconds"].to_numpy() == pytest.approx(np.full(10, 0.24))
    assert measured(late)["samples_per_second"] == pytest.approx(100 * 0.8 / 1.2)


def test_the_launch_is_the_median_cost_of_its_steady_windows():
    # The cost is 1 in the median; the mean rate of these windows would be below 100, and the warm-up's far off.
    launch = measured(make_record(window_factors=[1.0, 1.0, 1.0, 5.0, 0.9]))
    assert launch["samples_per_second"] == pytest.approx(100.0)
    assert launch["num_windows"] == 5


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
    assert start_skew(make_record(**fields)) == pytest.approx(skew)


@pytest.mark.parametrize(("skew", "is_noted"), [(0.01, False), (0.011, True)])
def test_more_start_skew_than_a_hundredth_is_noted(skew, is_noted):
    """Windows of 5 x 16 samples of 1 s."""
    record = make_record(num_ranks=2, samples_per_second=80.0, start_skew=skew)
    assert ("ranks start 1% of a window apart" in notes(record)) == is_noted


def test_one_rank_on_each_machine_has_no_skew():
    record = make_record(num_ranks=2, num_nodes=2, clock_offsets=(0.0, 86_400.0))
    assert np.isnan(start_skew(record))
    assert "apart" not in notes(record)


def starting(*starts, **fields):
    """The launches of a block that began at these times, each on another number of ranks."""
    records = [
        make_record(num_ranks=place + 1, block=3, started_at=f"2026-11-{start}Z", **fields)
        for place, start in enumerate(starts)
    ]
    return Study(records).launches.set_index("num_ranks")


def test_a_block_that_was_resumed_days_later_is_two():
    launches = starting("21T07:00:00", "21T07:01:00", "25T07:01:00", "25T07:03:00")
    first, second = "weak-scaling 003", "weak-scaling 003, part 2"
    assert list(launches["block"]) == [first, first, second, second]
    assert launches.at[3, "pause_seconds"] == pytest.approx(4 * 86_400, rel=1e-3)


def test_a_long_launch_is_no_pause():
    """10 windows of 500 s: the next launch begins when the first has ended."""
    long = {"samples_per_second": 0.08}
    cases = starting("21T07:00:00", "21T08:24:00", **long)
    assert set(cases["part"]) == {1}
    cases = starting("21T07:00:00", "21T09:30:00", **long)
    assert list(cases["part"]) == [1, 2]


@pytest.mark.parametrize(("second", "parts"), [("08:00:19", [1, 1]), ("08:00:20", [1, 2])])
def test_a_pause_is_longer_than_an_hour(second, parts):
    """The first launch has a warm-up of 9 s and 10 windows of 1 s."""
    cases = starting("21T07:00:00", f"21T{second}", local_batch=16, samples_per_second=80.0)
    assert list(cases["part"]) == parts


@pytest.mark.parametrize(
    ("skipped", "note"),
    [
        ([3, 0, 9, 0], "12 unreadable samples left out"),
        ([1, 0, 0, 0], "1 unreadable sample left out"),
        ([0] * 4, None),
        ([None] * 4, None),
    ],
)
def test_skipped_samples_are_summed(skipped, note):
    record = make_record(num_ranks=4).model_copy(update={"skipped_samples": skipped})
    assert [text for text in notes(record).split("; ") if "unreadable" in text] == ([note] if note else [])


@pytest.mark.parametrize(
    ("overlap", "word"), [(None, ""), (True, "overlapped"), (False, "in line"), ("False | True", "mixed")]
)
def test_how_gradients_were_exchanged_is_a_word(overlap, word):
    assert measured(make_record(overlap=overlap))["exchange"] == word


def test_the_latest_good_attempt_counts():
    launch = measured(
        make_record(attempt=2, samples_per_second=90.0),
        make_record(attempt=1, failure="killed by signal 9"),
        make_record(attempt=3, failure="hung"),
    )
    assert (launch["attempt"], launch["num_attempts"], launch["why"]) == (2, 3, "")
    assert launch["samples_per_second"] == pytest.approx(90.0)


def test_a_failed_launch_is_kept_with_its_latest_attempt_and_no_value():
    launch = measured(*(make_record(failure="out of memory", attempt=attempt) for attempt in (1, 2)))
    assert (launch["attempt"], launch["num_attempts"]) == (2, 2)
    assert launch["why"] == "hang on rank 0: out of memory"
    assert np.isnan(launch["samples_per_second"])


def test_impossible_windows_or_of_warm_up_alone_give_no_number():
    record = make_record(num_ranks=2)
    window = rows_of(record.windows)[-1]._replace(seconds=[0.8, 0.0])
    windows = windows_of([*rows_of(record.windows)[:-1], window])
    assert "impossible times" in measured(record.model_copy(update={"windows": windows}))["why"]
    assert measured(make_record(window_factors=[]))["why"] == "no window after the warm-up"


def test_of_two_fingerprints_the_one_of_most_launches_stays_and_the_other_is_named():
    records = [make_record(fingerprint="aaaa", block=block) for block in range(2)]
    found = Study([*records, make_record(num_ranks=2, fingerprint="bbbb")])
    assert set(found.good["fingerprint"]) == {"aaaa"}
    (text,) = found.left_out
    assert "1 case of local / default / torch with fingerprint bbbb" in text


def test_environments_have_their_own_fingerprints_and_failures_stay():
    records = [
        make_record(fingerprint="aaaa"),
        make_record(environment="openmpi", fingerprint="bbbb"),
        make_record(block=1, fingerprint="cccc", failure="was repaired afterwards"),
    ]
    assert len(Study(records).launches) == 3


def test_where_ranks_do_not_step_together_only_what_was_applied_counts():
    together = make_record(num_ranks=2)
    windows = [
        window._replace(num_applied=6, rank_steps=[10, 10], num_steps=10)
        for window in rows_of(together.windows)
    ]
    apart = together.model_copy(update={"windows": windows_of(windows)})
    seconds = [max(window.seconds) for window in rows_of(apart.windows) if window.phase == "steady"]
    assert Study([apart]).windows["step_seconds"].to_numpy() == pytest.approx(np.array(seconds) / 3)
    nothing = windows_of([window._replace(num_applied=0) for window in windows])
    assert "no gradient was applied" in measured(together.model_copy(update={"windows": nothing}))["why"]


@pytest.mark.parametrize(("version", "is_told"), [(None, True), (GATES_VERSION, False)])
def test_records_from_before_the_list_of_gates_are_told_of(version, is_told):
    record = make_record()
    gates = [Gate.unchecked(name, "") for name in required_gates(record.case.cell)]
    found = Study([record.model_copy(update={"gates_version": version, "gates": gates})])
    assert any("not listed in 1 older record" in text for text in texts(found)) == is_told


def test_a_record_of_an_older_list_of_gates_lacks_none_of_todays():
    record = make_record().model_copy(update={"gates_version": 2, "gates": []})
    assert len(Study([record]).good) == 1
    assert Study([record.model_copy(update={"gates_version": GATES_VERSION})]).good.empty


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00.123456789Z", "9999-12-31T23:59:59Z"])
def test_any_moment_that_a_record_may_have_is_one(moment):
    records = [make_record(started_at=moment), make_record(block=1)]
    assert len(Study(records).launches) == 2
