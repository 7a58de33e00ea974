import json

import numpy as np
import pytest

from dlscale.analysis.records import start_skew, tidy, why_unusable, world_step_seconds
from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.files import load_records


@pytest.fixture
def study(tmp_path):
    (tmp_path / "records").mkdir()
    return tmp_path


def write(study, record):
    path = study / "records" / f"{record.case.id}.{record.attempt}.json"
    path.write_text(record.model_dump_json())
    return path


def test_records_come_back_as_they_were_written(study, make_record):
    record = make_record(backend="ring", num_ranks=2)
    write(study, record)
    assert load_records(study) == ([record], [])


def test_bad_files_are_listed_with_a_reason_and_hide_nothing(study, make_record):
    good = make_record()
    path = write(study, good)
    content = json.loads(path.read_text())
    folder = study / "records"
    (folder / "cut.json").write_text(path.read_text()[:200])
    (folder / "binary.json").write_bytes(b"\xff\xfe\x00")
    (folder / "list.json").write_text("[]")
    (folder / "newer.json").write_text(json.dumps(content | {"schema_version": 7}))
    (folder / "odd.json").write_text(json.dumps(content | {"evidence": "guessed"}))
    (folder / "folder.json").mkdir()
    (folder / ".being-written.json").write_text("{")
    records, bad = load_records(study)
    assert records == [good]
    reasons = {one.path.name: one.reason for one in bad}
    assert reasons.keys() == {
        "cut.json",
        "binary.json",
        "list.json",
        "newer.json",
        "odd.json",
        "folder.json",
    }
    assert reasons["newer.json"] == "schema version 7; this version of dlscale reads 5"
    assert reasons["odd.json"].startswith("not a record: evidence: ")
    assert "not complete JSON" in reasons["cut.json"]
    assert "cannot be read" in reasons["folder.json"]


def test_a_folder_without_records_is_a_mistake_of_the_user(tmp_path):
    with pytest.raises(UsageError, match="no records in"):
        load_records(tmp_path / "tpyo")


def test_the_slowest_rank_decides(make_record):
    even = make_record(num_ranks=2, samples_per_second=100.0)
    late = make_record(num_ranks=2, samples_per_second=100.0, rank_delays=[0.0, 0.4])
    # 5 steps of 16 samples at 100 per second take 0.8 s, with the delay 1.2 s.
    assert world_step_seconds(even) == pytest.approx(np.full(10, 0.16))
    assert world_step_seconds(late) == pytest.approx(np.full(10, 0.24))
    assert tidy([late])["samples_per_second"].item() == pytest.approx(100 * 0.8 / 1.2)


def test_the_launch_is_the_median_cost_of_its_steady_windows(make_record):
    # The cost is 1 in the median; the mean rate of these windows would be below 100, and the warm-up's far off.
    frame = tidy([make_record(window_factors=[1.0, 1.0, 1.0, 5.0, 0.9])])
    assert frame["samples_per_second"].item() == pytest.approx(100.0)
    assert frame["num_windows"].item() == 5


def test_start_skew_is_a_fraction_of_the_window(make_record):
    assert start_skew(make_record(num_ranks=3, start_skew=0.02)) == pytest.approx(0.02)


def test_memory_is_the_largest_rank_s(make_record):
    frame = tidy([make_record(num_ranks=3, peak_rss_bytes=[200, 700, 300])])
    assert frame["peak_rss_bytes"].item() == 700


def test_memory_that_nobody_measured_is_not_0(make_record):
    assert np.isnan(tidy([make_record(peak_rss_bytes=[0])])["peak_rss_bytes"].item())


def test_skipped_samples_are_summed_and_their_ranks_counted(make_record):
    record = make_record(num_ranks=4, skipped=[3, 0, 9])
    row = tidy([record]).iloc[0]
    assert (row["num_skipped"], row["num_skipping"]) == (12, 2)
    unknown = record.model_copy(update={"skipped_samples": [None] * 4})
    assert tidy([unknown])["num_skipped"].item() == 0


@pytest.mark.parametrize(
    ("overlap", "word"),
    [(None, ""), (True, "overlapped"), (False, "in line"), ("False | True", "mixed")],
)
def test_how_gradients_were_exchanged_is_a_word(make_record, overlap, word):
    assert tidy([make_record(overlap=overlap)])["exchange"].item() == word


def test_the_latest_good_attempt_counts(make_record):
    attempts = [
        make_record(attempt=2, samples_per_second=90.0),
        make_record(attempt=1, failure="killed by signal 9"),
        make_record(attempt=3, failure="hung"),
    ]
    row = tidy(attempts).iloc[0]
    assert (row["attempt"], row["num_attempts"], row["good"]) == (2, 3, True)
    assert row["samples_per_second"] == pytest.approx(90.0)


def test_a_failed_case_keeps_its_row_without_a_value(make_record):
    row = tidy([make_record(failure="out of memory")]).iloc[0]
    assert not row["good"]
    assert np.isnan(row["samples_per_second"])


def test_a_window_without_all_ranks_gives_no_number(make_record):
    record = make_record(num_ranks=2)
    window = record.windows[-1].model_copy(update={"seconds": [0.8]})
    broken = record.model_copy(update={"windows": [*record.windows[:-1], window]})
    assert not tidy([broken])["good"].item()


def test_warm_up_alone_gives_no_number(make_record):
    assert not tidy([make_record(window_factors=[])])["good"].item()


def test_mixed_fingerprints_are_refused_by_name(make_record):
    with pytest.raises(UsageError, match="fingerprints aaaa and bbbb"):
        tidy([make_record(fingerprint="aaaa"), make_record(num_ranks=2, fingerprint="bbbb")])


def test_environments_have_their_own_fingerprints(make_record):
    records = [
        make_record(fingerprint="aaaa"),
        make_record(environment="openmpi", fingerprint="bbbb"),
        make_record(block=1, fingerprint="cccc", failure="was repaired afterwards"),
    ]
    assert len(tidy(records)) == 3


def test_no_records_are_an_empty_table():
    assert tidy([]).empty


def test_where_ranks_do_not_step_together_only_what_was_applied_counts(make_record):
    together = make_record(num_ranks=2)
    windows = [
        window.model_copy(update={"num_applied": 6, "rank_steps": [10, 10], "num_steps": 10})
        for window in together.windows
    ]
    apart = together.model_copy(update={"windows": windows})
    seconds = [max(window.seconds) for window in apart.windows if window.phase == "steady"]
    assert world_step_seconds(apart) == pytest.approx(np.array(seconds) / 3)
    nothing = [window.model_copy(update={"num_applied": 0}) for window in windows]
    assert "no gradient was applied" in why_unusable(together.model_copy(update={"windows": nothing}))
