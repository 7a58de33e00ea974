"""What is missing: attempts without a number, repeated ones, unreadable files and other fingerprints."""

from pathlib import Path

from dlscale.analysis.findings.failures import FINDING
from dlscale.analysis.load import Study
from dlscale.benchmarks.records.store import BadFile
from tests.made_records import make_record


def test_what_failed_first_and_what_was_repeated() -> None:
    study = Study(
        [
            make_record(backend="ring", num_ranks=2, block=4, failure="late"),
            make_record(backend="ring", num_ranks=2, block=1, failure="early"),
            make_record(backend="ring", num_ranks=2, block=1, failure="early", attempt=2),
            make_record(block=0, failure="once"),
            make_record(block=0, attempt=2),
        ]
    )
    frame = FINDING.of(study)
    assert frame["is_repeated"].sum() == 1
    assert set(frame["kind"]) == {"hang"}
    assert list(frame["rank"]) == [0, 1, 1, 1]
    assert FINDING.sentence(frame) == (
        "2 cases gave no number. First: ring on 2 ranks, block 1, node n: hang on rank 1: early. "
        "1 attempt failed and succeeded when repeated."
    )


def test_windows_without_a_number_are_a_failure_without_a_rank() -> None:
    (row,) = FINDING.of(Study([make_record(window_factors=())])).to_dict("records")
    assert (row["kind"], row["rank"], row["node"]) == ("unusable", None, "")
    assert row["why"] == "no window after the warm-up"


def test_files_and_fingerprints_that_are_left_out_are_rows_without_a_cell() -> None:
    records = [make_record(), make_record(block=1), make_record(block=2, fingerprint="0" * 12)]
    frame = FINDING.of(Study(records, bad_files=[BadFile(path=Path("records/x.json"), reason="no JSON")]))
    assert list(frame["kind"]) == ["file", "fingerprint"]
    assert list(frame["file"]) == ["x.json", ""]
    assert "1 case of local / default / torch with fingerprint 000000000000" in frame["why"].iloc[1]
    assert FINDING.sentence(frame) == "Left out: 1 unreadable file and 1 fingerprint."
    assert FINDING.table(frame)["why"].tolist()[0] == "no JSON"


def test_nothing_is_missing_of_a_good_study() -> None:
    assert FINDING.of(Study([make_record()])).empty
