"""Files of predictions: what was written is read, and nothing else."""

import json

import pytest

from dlscale.base.errors import UsageError
from dlscale.benchmarks.records.prediction import read_predictions, write_predictions
from dlscale.benchmarks.records.record import Record
from tests.analysis.made_predictions import prediction, predictions


def test_records_come_back_equal_a_line_each(tmp_path):
    path = tmp_path / "hep_cnn.jsonl"
    records = [
        *predictions(doubts=("too far", "too few")),
        prediction("horovod", backend_options={"cycle_time_ms": 0.5}),
    ]
    write_predictions(records, path)
    assert read_predictions(path) == records
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert {line["evidence"] for line in lines} == {"simulated"}
    assert [file.name for file in tmp_path.iterdir()] == [path.name]  # no temporary file is left


def test_no_prediction_passes_for_the_record_of_a_launch():
    with pytest.raises(ValueError, match="Field required"):
        Record.model_validate(prediction().model_dump())


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"evidence": "measured"}, "evidence: "),
        ({"schema_version": 3}, "schema_version: "),
        ({"parts": {"stragglers": float("nan")}}, "parts.stragglers: "),
        ({"num_ranks": 10**30}, "num_ranks: "),
    ],
)
def test_a_line_with_anything_else_in_it_is_refused(change, problem, tmp_path):
    path = tmp_path / "mine.jsonl"
    good = prediction().model_dump(mode="json")
    path.write_text(f"{json.dumps(good)}\n{json.dumps(good | change)}\n")
    with pytest.raises(UsageError) as caught:
        read_predictions(path)
    assert str(caught.value).startswith(f"{path}, line 2, is no prediction: {problem}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", None])
def test_a_file_that_is_no_predictions_is_one_line(content, tmp_path):
    path = tmp_path / "mine.jsonl"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(UsageError, match="predict again") as caught:
        read_predictions(path)
    assert "\n" not in str(caught.value)
