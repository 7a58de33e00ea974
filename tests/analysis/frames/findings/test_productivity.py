"""Productivity: the counted lines of the study's frameworks and backends."""

from dlscale.analysis.frames.findings.productivity import FINDING
from dlscale.analysis.frames.load import Study
from tests.made_records import make_record


def test_only_scripts_of_the_study_are_shown() -> None:
    records = [
        make_record(),
        make_record(backend="ring", num_ranks=2),
        make_record(backend="gloo", framework="tensorflow"),
    ]
    frame = FINDING.of(Study(records))
    assert list(frame["script"]) == ["torch/ring.py"]
    assert frame[["added", "changed", "removed"]].to_numpy().min() >= 0
